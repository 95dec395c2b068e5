#include "csrc/fusion/ops/sequence.h"

#include <vector>

namespace hir::fusion {

ir::Value* Zero(ir::Builder& builder, DType dtype) {
  return builder.Make("constant", {}, {{"value", 0.0}, {"dtype", DTypeName(dtype)}});
}

ir::Value* IntConstant(ir::Builder& builder, int64_t value) {
  return builder.Make("constant", {}, {{"value", static_cast<double>(value)}, {"dtype", std::string_view("i64")}});
}

ir::Value* SequenceAlong(ir::Builder& builder, const ir::Expr* extent, size_t axis, size_t rank,
                         std::string_view name) {
  const ir::Expr* shape[] = {extent};
  const ir::Expr* offset[] = {builder.graph().exprs().Const(0)};
  ir::Value* sequence = builder.Make("iota", {IntConstant(builder, 0), IntConstant(builder, 1)},
                                     {{"shape", std::span<const ir::Expr* const>(shape)},
                                      {"offset", std::span<const ir::Expr* const>(offset)},
                                      {"dtype", std::string_view("i64")}},
                                     name);
  if (rank == 1) return sequence;
  std::vector<int64_t> flags(rank, 1);
  flags[axis] = 0;
  return builder.Make("broadcast", {sequence}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
}

}  // namespace hir::fusion
