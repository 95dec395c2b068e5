// stream_loop: in the place of ops that the host goes through in a loop (host_ir/lower/stream_loops.h).
#include "csrc/base/text.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// Its types are those of the ops it stands for; all of them tensors.
Status InferStreamLoop(ir::Graph&, ir::Op& op, std::span<const ir::Type* const> declared) {
  if (declared.size() != op.results.size()) return InvalidArgument("declare the types of the results");
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i] == nullptr || declared[i]->kind != ir::TypeKind::kTensor) {
      return InvalidArgument(base::Cat("declare the type of result ", i, ", a tensor"));
    }
    op.results[i]->type = declared[i];
  }
  return {};
}

void AxesStreamLoop(const ir::Op&, std::vector<AxisLink>&) {}

}  // namespace hir::fusion
