#include "csrc/fusion/passes/ready.h"

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {
namespace {

Status NotReady(const ir::Value& value, std::string_view what) {
  return {Code::kFailedPrecondition, base::Cat("%", value.name, " ", what)};
}

Status CheckHasLayout(const ir::Value& value) {
  if (value.type->kind != ir::TypeKind::kTensor) return {};
  if (value.layout != nullptr && value.layout->mesh != nullptr) return {};
  return NotReady(value,
                  "has no layout; propagate_shardings must come before, and behind "
                  "decompose_ops");
}

}  // namespace

Status CheckHasAxes(const ir::Graph& graph) {
  for (const ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    if (IsComposite(CodeOf(*op))) {
      return NotReady(*op->results[0],
                      base::Cat("is the composite op ", op->info->name, "; decompose_ops must come before"));
    }
    if (IsCommunication(CodeOf(*op))) {
      return NotReady(*op->results[0], base::Cat("is the communication ", op->info->name,
                                                 "; this must come before localize, which makes "
                                                 "those"));
    }
  }
  return {};
}

Status CheckHasLayouts(const ir::Graph& graph) {
  HIR_TRY(CheckHasAxes(graph));
  for (const ir::Value* param : graph.params) HIR_TRY(CheckHasLayout(*param));
  for (const ir::Op* op = graph.body.first; op != nullptr; op = op->next) HIR_TRY(CheckHasLayout(*op->results[0]));
  return {};
}

}  // namespace hir::fusion
