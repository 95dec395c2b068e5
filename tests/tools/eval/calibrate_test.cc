// Rates that follow from times: those of a machine whose times are made by a formula.
#include "tools/eval/calibrate.h"

#include <gtest/gtest.h>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "tools/transform.h"

namespace hir::eval {
namespace {

constexpr double kRun = 3e-6, kProduct = 2e-6;

// A run takes kRun, the small product kProduct; kernels a picosecond a byte, products a femtosecond an operation,
// communications a nanosecond a byte.
double SecondsOf(const Probe& probe) {
  switch (probe.kind) {
    case Probe::Kind::kOneOp: return kRun + kProduct;
    case Probe::Kind::kChain: return kRun + 16 * kProduct;
    case Probe::Kind::kMemory: return kRun + 1e-12 * probe.amount;
    case Probe::Kind::kProduct: return kRun + 1e-15 * probe.amount;
    case Probe::Kind::kCommunication: return kRun + kProduct + 1e-9 * probe.amount;
  }
  return 0;
}

TEST(Calibrate, RatesAreThoseOfTheMachine) {
  for (const codegen::Target& target : {codegen::Target(), codegen::kHopper}) {
    const std::vector<Probe> probes = ProbesFor(target, 2);
    std::vector<double> seconds;
    for (const Probe& probe : probes) seconds.push_back(SecondsOf(probe));
    const host::Rates rates = RatesOf(probes, seconds, "a machine", 2, target);
    EXPECT_NEAR(rates.run_seconds, kRun, 1e-12);
    EXPECT_NEAR(rates.memory.Seconds(1 << 20), 1.048576e-6, 1e-9);
    const double operations = 2.0 * 512 * 512 * 512;
    for (const auto& [dtype, curve] : rates.products) EXPECT_NEAR(curve.Seconds(operations), 1e-15 * operations, 1e-12);
    EXPECT_EQ(rates.communications.size(), 6U);
    for (const auto& [type, curve] : rates.communications) EXPECT_NEAR(curve.Seconds(131072), 1.31072e-4, 1e-9) << type;
    const Result<host::Rates> read = host::ParseRates(host::ToText(rates));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->ranks, 2);
  }
}

TEST(Calibrate, EveryProbeIsAProgram) {
  for (const int64_t ranks : {1, 2, 3, 300}) {
    for (const Probe& probe : ProbesFor(codegen::kHopper, ranks)) {
      const auto graph = ir::Parse(probe.text, tools::OpSetOf(probe.text));
      EXPECT_TRUE(graph.ok()) << probe.name << ": " << graph.status().ToString();
      EXPECT_TRUE(probe.kind <= Probe::Kind::kChain || probe.amount > 0) << probe.name;
    }
  }
}

}  // namespace
}  // namespace hir::eval
