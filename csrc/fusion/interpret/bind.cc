#include "csrc/fusion/interpret/bind.h"

#include "csrc/base/text.h"

namespace hir::fusion {
namespace {

using base::Cat;

std::string Where(const ir::Value& param, size_t axis) { return Cat("axis ", axis, " of input %", param.name); }

Status BindParam(const ir::Value& param, const HostTensor& input, SymbolValues& symbols) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*param.type);
  if (input.dtype != param.type->dtype) {
    return InvalidArgument(Cat("input %", param.name, " is ", DTypeName(input.dtype), "; the program's is ",
                               DTypeName(param.type->dtype)));
  }
  if (input.shape.size() != axes.size()) {
    return InvalidArgument(
        Cat("input %", param.name, " has ", input.shape.size(), " axes; the program's has ", axes.size()));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].extent->kind != ir::ExprKind::kSymbol) continue;
    const auto [found, is_new] = symbols.emplace(axes[i].extent->symbol, input.shape[i]);
    if (!is_new && found->second != input.shape[i]) {
      return InvalidArgument(
          Cat(Where(param, i), " has extent ", input.shape[i], "; ", found->first, " is ", found->second));
    }
  }
  return {};
}

Status CheckShape(const ir::Value& param, const HostTensor& input, const SymbolValues& symbols) {
  HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*param.type, symbols));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == input.shape[i]) continue;
    return InvalidArgument(Cat(Where(param, i), " has extent ", input.shape[i], "; the program's has ", shape[i]));
  }
  return {};
}

}  // namespace

Result<SymbolValues> BindSymbols(const ir::Graph& graph, std::span<const HostTensor> inputs, SymbolValues known) {
  if (inputs.size() != graph.params.size()) {
    return InvalidArgument(Cat(inputs.size(), " inputs; the program takes ", graph.params.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) HIR_TRY(BindParam(*graph.params[i], inputs[i], known));
  for (size_t i = 0; i < inputs.size(); ++i) HIR_TRY(CheckShape(*graph.params[i], inputs[i], known));
  for (const ir::Guard& guard : graph.guards) {
    HIR_ASSIGN(const int64_t left, ValueOf(guard.left, known));
    HIR_ASSIGN(const int64_t right, ValueOf(guard.right, known));
    const bool equal = guard.kind == ir::Guard::Kind::kEqual;
    if (equal ? left == right : left <= right) continue;
    return InvalidArgument(Cat(guard.reason, ": ", ir::ToString(guard.left), " is ", left, ", ",
                               ir::ToString(guard.right), " is ", right,
                               equal ? "; they must be equal" : "; the first may not exceed the second"));
  }
  return known;
}

Result<int64_t> ValueOf(const ir::Expr* expr, const SymbolValues& symbols) {
  return ir::Evaluate(expr, [&](std::string_view name) -> std::optional<int64_t> {
    const auto found = symbols.find(name);
    return found == symbols.end() ? std::nullopt : std::optional(found->second);
  });
}

Result<std::vector<int64_t>> ShapeOf(const ir::Type& type, const SymbolValues& symbols) {
  std::vector<int64_t> shape;
  for (const ir::Axis& axis : ir::ValueAxes(type)) {
    HIR_ASSIGN(shape.emplace_back(), ValueOf(axis.extent, symbols));
  }
  return shape;
}

}  // namespace hir::fusion
