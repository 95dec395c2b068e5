// Curves between what was measured, waves of a product, and the file of rates.
#include "host_ir/predict/rates.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hir::host
