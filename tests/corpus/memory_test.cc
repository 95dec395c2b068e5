// Goal: no program of the corpus takes more than 1.05 times the memory for intermediates that must be there at once.
// Method: each is planned for CPUs, for a GPU and with its products in parts beside communications, for its sizes and
// for larger ones; of each rank the bytes of the pool are compared with what tests/property/liveness.h finds from the
// host program. A row a program says how near it comes at worst.
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/ir/clone.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/corpus/corpus.h"
#include "tests/property/liveness.h"

namespace hir::testing {
namespace {

struct Case {
  std::string name;
  host::PlanOptions options;
  fusion::SymbolValues sizes;
};

std::vector<Case> CasesOf(const CorpusProgram& program) {
  std::vector<Case> cases;
  for (const int64_t times : {1, 8, 4096}) {
    if (times > 1 && program.sizes.empty()) break;
    fusion::SymbolValues sizes = program.sizes;
    for (auto& [symbol, value] : sizes) value *= times;
    const host::PlanOptions cpu = {.num_devices = program.num_devices, .sizes = {sizes.begin(), sizes.end()}};
    host::PlanOptions gpu = cpu;
    gpu.target = codegen::kHopper;
    host::PlanOptions parts = gpu;
    parts.overlap = host::OverlapChoice::kAlways;
    cases.push_back({base::Cat("cpu, sizes x", times), cpu, sizes});
    cases.push_back({base::Cat("gpu, sizes x", times), gpu, sizes});
    cases.push_back({base::Cat("gpu in parts, sizes x", times), parts, sizes});
  }
  return cases;
}

double InOrder(const PoolBounds& bounds) {
  return bounds.in_order == 0 ? 1 : static_cast<double>(bounds.peak) / static_cast<double>(bounds.in_order);
}

class Memory : public ::testing::TestWithParam<std::string> {};

TEST_P(Memory, IsNearItsBound) {
  const auto program = ReadCorpus(GetParam());
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  PoolBounds worst;
  std::string where;
  double in_order = 0;
  for (const Case& c : CasesOf(*program)) {
    SCOPED_TRACE(c.name);
    const auto plan = host::PlanProgram(ir::Clone(*program->graph), c.options);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto bounds = BoundPools(*plan->host, program->num_devices, c.sizes);
    ASSERT_TRUE(bounds.ok()) << bounds.status().ToString();
    for (const PoolBounds& of_rank : *bounds) {
      EXPECT_LE(RatioOf(of_rank), kPoolRatioMax)
          << "a pool of " << of_rank.peak << " bytes, where " << of_rank.side_by_side << " live at once";
      EXPECT_LE(of_rank.in_order, of_rank.side_by_side);
      in_order = std::max(in_order, InOrder(of_rank));
      if (!where.empty() && RatioOf(of_rank) <= RatioOf(worst)) continue;
      worst = of_rank;
      where = c.name;
    }
  }
  // None has so much go on beside products that its pool needs more than the program's order alone would.
  EXPECT_LE(in_order, kPoolRatioMax) << "times what lives in the program's order";
  std::cout << std::left << std::setw(46) << GetParam() << " peak " << std::setw(10) << worst.peak << " bound "
            << std::setw(10) << worst.side_by_side << " ratio " << std::fixed << std::setprecision(3) << RatioOf(worst)
            << " in order " << in_order << " (" << where << ")\n";
}

INSTANTIATE_TEST_SUITE_P(Corpus, Memory, ::testing::ValuesIn(CorpusNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::testing
