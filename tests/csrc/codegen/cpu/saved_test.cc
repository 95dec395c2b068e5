// Goal: rows that depend on each other, norms in a row, are computed once each, however many there are, and right.
// Method: the length of the code of such a chain grows with the chain; beside the interpreter.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen::cpu {
namespace {

// So many times: less the row's sum, through tanh, added to the row.
std::string Chain(int depth, int64_t columns) {
  std::string body, row = "%x";
  for (int k = 0; k < depth; ++k) {
    base::Append(body, "  %s", k, " = sum(", row, ") {axes=[1], keepdim=true, dtype=null}\n  %d", k, " = sub(", row,
                 ", %s", k, ")\n  %t", k, " = tanh(%d", k, ")\n  %y", k, " = add(", row, ", %t", k, ")\n");
    row = base::Cat("%y", k);
  }
  return base::Cat("fusion @f(%x: f32[3, ", columns, "]) {\n", body, "  return ", row, "\n}\n");
}

// Lines of the code of one kernel that holds all of it.
int64_t LinesOf(int depth) {
  const auto graph = ir::Parse(Chain(depth, 1024), fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  for (ir::Op* op = (*graph)->body.first; op != nullptr; op = op->next) ops.push_back(op);
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k", {}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  const auto ir = EmitIr(*plan, HostTarget());
  EXPECT_TRUE(ir.ok()) << ir.status().ToString();
  return std::ranges::count(*ir, '\n');
}

TEST(Saved, AChainIsAsLongAsItsNorms) {
  const int64_t three = LinesOf(3), six = LinesOf(6), twelve = LinesOf(12);
  EXPECT_LT(six, 2.3 * static_cast<double>(three));
  EXPECT_LT(twelve, 2.3 * static_cast<double>(six));
}

TEST(Saved, AChainIsRight) {
  for (const int64_t columns : {5, 64, 1000}) CheckProgram(Chain(6, columns), {}, 1);
}

}  // namespace
}  // namespace hir::codegen::cpu
