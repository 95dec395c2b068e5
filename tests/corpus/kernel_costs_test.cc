// Goal: segmentation decides by costs that plans have (codegen::Cost). Method: every kernel of the corpus is planned
// for a CPU and for a GPU, at small sizes and at large ones; its launches, and the bytes that they read and write, are
// those that its cost says, of all but one in a hundred: a row says which are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "csrc/ir/clone.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/pipeline/traffic.h"
#include "tests/corpus/corpus.h"

namespace hir::testing {
namespace {

TEST(Cost, IsThatOfThePlan) {
  int64_t kernels = 0, other_launches = 0, other_bytes = 0;
  for (const std::string& name : CorpusNames()) {
    SCOPED_TRACE(name);
    const auto program = ReadCorpus(name);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    for (const codegen::Target& target : {codegen::Target(), codegen::kHopper}) {
      for (const int64_t times : {1, 256}) {
        codegen::Sizes sizes;
        for (const auto& [symbol, value] : program->sizes) sizes[symbol] = value * times;
        const auto plan = host::PlanProgram(ir::Clone(*program->graph),
                                            {.num_devices = program->num_devices, .target = target, .sizes = sizes});
        ASSERT_TRUE(plan.ok()) << plan.status().ToString();
        codegen::Acceptance acceptance(target, sizes);
        ir::ExprPool pool;
        for (const host::LoweredSegment& segment : plan->segments) {
          if (segment.kind != host::SegmentKind::kKernel) continue;
          const auto cost = acceptance.CostOf(segment.group->View(*plan->local.graph));
          ASSERT_TRUE(cost.has_value()) << segment.name;
          const auto bytes =
              ir::Evaluate(host::BytesOf(pool, *plan, segment), [&](std::string_view symbol) -> std::optional<int64_t> {
                const auto found = sizes.find(std::string(symbol));
                return found == sizes.end() ? std::nullopt : std::optional(found->second);
              });
          if (!bytes.ok()) continue;
          ++kernels;
          const double ratio =
              static_cast<double>(cost->bytes + cost->again) / static_cast<double>(std::max<int64_t>(*bytes, 1));
          if (cost->launches != segment.launches) ++other_launches;
          if (ratio < 0.8 || ratio > 1.25) ++other_bytes;
          if (cost->launches != segment.launches || ratio < 0.8 || ratio > 1.25)
            std::cout << name << " " << segment.name << " " << (target.multiprocessors > 0 ? "gpu" : "cpu") << " x"
                      << times << " " << segment.schedule << ": " << cost->launches << " launches, " << segment.launches
                      << " planned; " << cost->bytes << " + " << cost->again << " bytes, " << *bytes << " planned\n";
        }
      }
    }
  }
  EXPECT_LE(100 * other_launches, kernels);
  EXPECT_LE(100 * other_bytes, kernels);
  std::cout << kernels << " kernels, " << other_launches << " of other launches, " << other_bytes
            << " of other bytes\n";
}

}  // namespace
}  // namespace hir::testing
