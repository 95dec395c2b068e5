// Curves between what was measured, waves of a product, and the file of rates.
#include "host_ir/predict/rates.h"

#include <gtest/gtest.h>

#include <random>

namespace hir::host {
namespace {

TEST(Curve, GoesThroughItsPoints) {
  Curve curve;
  EXPECT_EQ(curve.Seconds(8), 0);
  curve.Add(100, 2e-6);
  curve.Add(10000, 8e-6);
  curve.Add(10000, 9e-6);  // The shorter time is kept.
  EXPECT_DOUBLE_EQ(curve.Seconds(100), 2e-6);
  EXPECT_NEAR(curve.Seconds(1000), 4e-6, 1e-12);  // Half way, in logarithms.
  EXPECT_DOUBLE_EQ(curve.Seconds(10000), 8e-6);
  EXPECT_DOUBLE_EQ(curve.Seconds(1), 2e-6);
  EXPECT_DOUBLE_EQ(curve.Seconds(30000), 24e-6);
}

TEST(WaveShare, IsOfTheLastWave) {
  EXPECT_EQ(WaveShare(0, 1, 8192, 8192), 1);        // A CPU.
  EXPECT_EQ(WaveShare(132, 1, 512, 512), 1);        // One wave.
  EXPECT_EQ(WaveShare(132, 1, 128 * 132, 512), 1);  // Two full ones.
  EXPECT_EQ(WaveShare(132, 1, 128 * 133, 256), 133.0 / 264);
  EXPECT_EQ(WaveShare(132, 133, 128, 256), 133.0 / 264);
}

TEST(Rates, AreReadAsTheyAreWritten) {
  Rates rates = {.device = "NVIDIA H100 80GB HBM3", .ranks = 2, .multiprocessors = 132, .run_seconds = 1.5e-6};
  rates.memory.Add(8192, 2.5e-6);
  rates.products["bf16"].Add(524288, 1e-5);
  rates.communications["allgather"].Add(1024, 4e-6);
  const Result<Rates> read = ParseRates(ToText(rates));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, rates);
}

TEST(Rates, FaultsNameTheLine) {
  const std::string head = "hostir rates 1\nmemory 8192 2e-06\n";
  const auto fault = [](const std::string& text) { return std::string(ParseRates(text).status().message()); };
  EXPECT_EQ(fault(""), "line 1: wants \"hostir rates 1\"; hostir-eval --calibrate FILE writes such a file");
  EXPECT_EQ(fault("hostir rates 1\ndevice x\n"), "no line says memory: the file is cut off");
  EXPECT_EQ(fault(head + "memory 8192"), "line 3: memory wants bytes and seconds, both above 0");
  EXPECT_EQ(fault(head + "memory 1 0"), "line 3: memory wants bytes and seconds, both above 0");
  EXPECT_EQ(fault(head + "memory 1 nan"), "line 3: memory wants bytes and seconds, both above 0");
  EXPECT_EQ(fault(head + "\nranks 0"), "line 4: ranks wants a number from 1");
  EXPECT_EQ(fault(head + "run -1"), "line 3: run wants seconds");
  EXPECT_EQ(fault(head + "run 1 2"), "line 3: run wants no more");
  EXPECT_EQ(fault(head + "product bf16 1"), "line 3: product wants a dtype, operations and seconds");
  EXPECT_EQ(fault(head + "speed 1"),
            "line 3: speed wants device, ranks, multiprocessors, run, memory, product or communication");
}

// Whatever is read makes predictions that are numbers.
TEST(Rates, DamagedFilesAreReadOrRefused) {
  const std::string whole =
      "hostir rates 1\ndevice a\nranks 2\nmultiprocessors 132\nrun 1.5e-06\nmemory 8192 2.5e-06\nmemory 1e9 3e-4\n"
      "product bf16 524288 1e-05\nproduct f32 1e12 0.01\ncommunication allgather 1024 4e-06\n";
  constexpr std::string_view kOthers("0123456789.e-+ \nanif\0\xff", 22);
  std::mt19937 random(7);
  int64_t read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char other = kOthers[random() % kOthers.size()];
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 8);
      else if (random() % 2 == 0)
        text.insert(at, 1, other);
      else
        text[at] = other;
      if (text.empty()) text = whole;
    }
    const Result<Rates> rates = ParseRates(text);
    if (!rates.ok()) {
      EXPECT_EQ(rates.status().code(), Code::kInvalidArgument);
      continue;
    }
    ++read;
    for (const double amount : {0.0, 1.0, 8192.0, 1e7, 1e18}) {
      EXPECT_GE(rates->memory.Seconds(amount), 0) << text;
      for (const auto& [dtype, curve] : rates->products) EXPECT_GE(curve.Seconds(amount), 0) << text;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_LT(read, 19000);
}

}  // namespace
}  // namespace hir::host
