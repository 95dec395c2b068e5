// Goal: the plans of the corpus move few bytes more than they must (host_ir/pipeline/traffic.h). Method: each program
// is planned for a CPU at large sizes; a row says what its kernels and calls read and write over the least. Then the
// same with each optional pass left out: what that pass brings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "csrc/ir/clone.h"
#include "csrc/ir/pass.h"
#include "host_ir/pipeline/group_passes.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/pipeline/traffic.h"
#include "tests/corpus/corpus.h"

namespace hir::testing {
namespace {

// Times the sizes of tests: rows enough that no tensor fits a cache.
constexpr int64_t kTimes = 256;

// Programs that move more than one and a half times the least, and why.
const std::map<std::string, std::string> kReasons = {
    {"channels_last_block_backward",
     "sums over images and places of channels side by side: all is read again behind them"},
    {"cumulative_features", "running sums and products are kernels of their own, and end up side by side in one array"},
    {"layer_norm_channels_backward", "sums along a middle axis, and along both others: rows of two kinds"},
    {"reductions_of_each_axis",
     "sums over the first axis, and over the second: one kernel carries either from row to row"},
    {"sinkhorn", "rows and columns are normalized in turn: the least has the matrix on the chip"},
    {"unet_backward_3",
     "the next layer's sums of channels are read with groups and channels joined: a kernel of their own"},
};
constexpr double kMeanMax = 1.08, kRatioMax = 1.5;

// Nothing where it is not known (traffic.h).
std::optional<host::Traffic> TrafficOf(const CorpusProgram& program, std::string_view without) {
  fusion::SymbolValues sizes = program.sizes;
  for (auto& [symbol, value] : sizes) value *= kTimes;
  const host::PlanOptions options = {
      .num_devices = program.num_devices, .sizes = {sizes.begin(), sizes.end()}, .without = without};
  const auto plan = host::PlanProgram(ir::Clone(*program.graph), options);
  if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
  return plan.ok() ? host::TrafficOf(*plan, options.sizes) : std::nullopt;
}

double RatioOf(const host::Traffic& traffic) {
  return traffic.floor == 0 ? 1 : static_cast<double>(traffic.bytes) / static_cast<double>(traffic.floor);
}

TEST(Bytes, AreNearTheLeast) {
  std::map<std::string, double> logs;  // By what is left out; "": nothing.
  int64_t programs = 0;
  for (const std::string& name : CorpusNames()) {
    SCOPED_TRACE(name);
    const auto program = ReadCorpus(name);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    const auto all = TrafficOf(*program, "");
    if (!all) {
      std::cout << std::left << std::setw(46) << name << " not known\n";
      continue;
    }
    ++programs;
    std::cout << std::left << std::setw(46) << name << " bytes " << std::setw(12) << all->bytes << " least "
              << std::setw(12) << all->floor << " ratio " << std::fixed << std::setprecision(3) << RatioOf(*all);
    logs[""] += std::log(RatioOf(*all));
    const auto reason = kReasons.find(name);
    EXPECT_TRUE(RatioOf(*all) > kRatioMax || reason == kReasons.end()) << "no exception any more: " << RatioOf(*all);
    EXPECT_TRUE(RatioOf(*all) <= kRatioMax || reason != kReasons.end()) << RatioOf(*all) << " times the least";
    if (reason != kReasons.end()) std::cout << ": " << reason->second;
    for (const std::string_view pass : host::OptionalPasses()) {
      const auto without = TrafficOf(*program, pass);
      ASSERT_TRUE(without.has_value());
      const double times = static_cast<double>(without->bytes) / static_cast<double>(std::max<int64_t>(all->bytes, 1));
      logs[std::string(pass)] += std::log(std::max(times, 1e-9));
      if (times < 0.999 || times > 1.1) std::cout << "; without " << pass << " " << times;
    }
    std::cout << "\n";
  }
  ASSERT_GT(programs, 0);
  for (const auto& [pass, sum] : logs) {
    const double mean = std::exp(sum / static_cast<double>(programs));
    std::cout << (pass.empty() ? "all passes, over the least" : "without " + pass + ", over all passes") << ": " << mean
              << "\n";
    if (pass.empty()) {
      EXPECT_LE(mean, kMeanMax) << "geometric mean of " << programs << " programs";
    } else {
      EXPECT_GE(mean, 0.999) << pass << " costs bytes";
    }
  }
}

}  // namespace
}  // namespace hir::testing
