// Goal: nothing passes through memory between two kernels that costs nothing to make again. Method: in the plans of the
// corpus, on CPUs and GPUs, each value that one kernel writes for others alone is looked at: no constant, no sequence,
// no view of an input, no chain of cheap ops that starts from an input of as many bytes or fewer.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <unordered_set>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/clone.h"
#include "host_ir/lower/storage.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/corpus/corpus.h"

namespace hir::testing {
namespace {

using host::SegmentKind;

bool IsTensor(const ir::Value* value) { return value->type->kind == ir::TypeKind::kTensor; }

// An element of its result is one of a single tensor, in place or broadcast, by arithmetic that costs nothing.
bool IsCheapUnary(const ir::Op& op) {
  static const std::unordered_set<std::string_view> kCheap = {"cast",  "neg", "abs", "broadcast", "broadcast_in_dim",
                                                              "add",   "sub", "mul", "expand",    "squeeze",
                                                              "where", "eq",  "set", "permute"};
  if (op.info->effects != ir::kPure || !kCheap.contains(op.info->name)) return false;
  return std::ranges::count_if(op.operands, IsTensor) <= 1;
}

// Why `value` need not cross; empty where it has to.
std::string WhyNot(const ir::Value& value) {
  const ir::Value* at = &value;
  while (at->def != nullptr && IsCheapUnary(*at->def)) {
    const auto tensor = std::ranges::find_if(at->def->operands, IsTensor);
    if (tensor == at->def->operands.end()) return "made of nothing";
    at = *tensor;
  }
  if (at->def != nullptr && at->def->info->effects == ir::kPure && std::ranges::none_of(at->def->operands, IsTensor))
    return "made of nothing";
  if (at->def == nullptr && segment::StorageBytes(*at) <= segment::StorageBytes(value)) return "made of an input alone";
  if (value.def != nullptr && host::IsView(*value.def) && value.def->operands[0]->def == nullptr)
    return "a view of an input";
  return "";
}

// A line for each value that crosses and need not.
std::vector<std::string> FreeOnesThatCross(const CorpusProgram& program, const host::PlanOptions& options) {
  const auto plan = host::PlanProgram(ir::Clone(*program.graph), options);
  if (!plan.ok()) return {plan.status().ToString()};
  std::unordered_set<const ir::Value*> in_memory;  // For somebody that is no kernel.
  for (const ir::Output& output : plan->local.graph->outputs) in_memory.insert(output.value);
  for (const host::LoweredSegment& segment : plan->segments) {
    const std::vector<ir::Value*>& inputs = segment.group->inputs;
    if (segment.kind != SegmentKind::kKernel) in_memory.insert(inputs.begin(), inputs.end());
  }
  std::vector<std::string> found;
  for (const host::LoweredSegment& segment : plan->segments) {
    if (segment.kind != SegmentKind::kKernel) continue;
    for (const ir::Value* output : segment.group->outputs) {
      if (!IsTensor(output) || in_memory.contains(output)) continue;
      const std::string why = WhyNot(*output);
      if (!why.empty()) found.push_back(base::Cat(segment.name, " writes %", output->name, ": ", why));
    }
  }
  return found;
}

class Crossing : public ::testing::TestWithParam<std::string> {};

TEST_P(Crossing, NothingThatIsFree) {
  const auto program = ReadCorpus(GetParam());
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  for (const codegen::Target& target : {codegen::Target(), codegen::kHopper}) {
    EXPECT_EQ(FreeOnesThatCross(*program, {.num_devices = program->num_devices, .target = target}),
              std::vector<std::string>());
  }
}

// So that the other test shows something: without the passes there are some.
TEST(CrossingWithout, TheyAreFound) {
  size_t found = 0;
  for (const std::string& name : CorpusNames()) {
    const auto program = ReadCorpus(name);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    found +=
        FreeOnesThatCross(*program, {.num_devices = program->num_devices, .without = "forward,rematerialize"}).size();
  }
  std::cout << found << " values\n";
  EXPECT_GE(found, 1U);
}

INSTANTIATE_TEST_SUITE_P(Corpus, Crossing, ::testing::ValuesIn(CorpusNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::testing
