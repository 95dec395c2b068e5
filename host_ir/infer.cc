#include "host_ir/infer.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/shapes.h"
#include "multidevice/mesh.h"

namespace hir::host {
namespace {

using base::Cat;
using ir::TypeKind;

using Declared = std::span<const ir::Type* const>;

Status CheckTensor(const ir::Op& op, size_t operand) {
  const ir::Value& value = *op.operands[operand];
  if (value.type->kind == TypeKind::kTensor) return {};
  return InvalidArgument(Cat("operand ", operand, ", %", value.name, ", is ", ToString(*value.type), ", not a buffer"));
}

Status CheckEvent(const ir::Op& op) {
  const ir::Value& value = *op.operands[0];
  if (value.type->kind == TypeKind::kEvent) return {};
  return InvalidArgument(Cat("%", value.name, " is ", ToString(*value.type), ", not an event"));
}

Status CheckOneOf(std::string_view what, std::string_view word, std::span<const std::string_view> words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return {};
  return InvalidArgument(Cat(what, " is ", word, ", not one of ", base::Join(words, ", ")));
}

Status CheckAxis(const ir::Op& op, const std::vector<ir::Axis>& axes, int64_t axis) {
  if (axis >= 0 && axis < static_cast<int64_t>(axes.size())) return {};
  return InvalidArgument(Cat("axis ", axis, " of %", op.operands[0]->name, " is not in [0, ", axes.size(), ")"));
}

void SetTensor(ir::Graph& graph, ir::Op& op, const std::vector<ir::Axis>& axes) {
  op.results[0]->type = graph.Tensor(op.operands[0]->type->dtype, axes);
}

}  // namespace

Status InferAlloc(ir::Graph&, ir::Op& op, Declared declared) {
  if (declared.empty() || declared[0] == nullptr || declared[0]->kind != TypeKind::kTensor) {
    return InvalidArgument("declare the type of the result, a tensor");
  }
  if (op.Name("space") != "pool") return Unimplemented(Cat("space is ", op.Name("space"), "; there is only pool"));
  op.results[0]->type = declared[0];
  return {};
}

Status InferDealloc(ir::Graph&, ir::Op& op, Declared) {
  HIR_TRY(CheckTensor(op, 0));
  const ir::Op* def = op.operands[0]->def;
  if (def != nullptr && CodeOf(*def) == HostOp::kAlloc) return {};
  return InvalidArgument(Cat("%", op.operands[0]->name, " is not the result of an alloc"));
}

Status InferEvent(ir::Graph&, ir::Op& op, Declared declared) {
  if (declared.empty() || declared[0] == nullptr || declared[0]->kind != TypeKind::kEvent) {
    return InvalidArgument("declare the type of the result, event[n]");
  }
  if (declared[0]->count < 1 || declared[0]->count > 65536) {
    return InvalidArgument(Cat("event[", declared[0]->count, "]: the count must be in [1, 65536]"));
  }
  op.results[0]->type = declared[0];
  return {};
}

Status InferRecord(ir::Graph&, ir::Op& op, Declared) { return CheckEvent(op); }
Status InferWait(ir::Graph&, ir::Op& op, Declared) { return CheckEvent(op); }
Status InferGroup(ir::Graph&, ir::Op&, Declared) { return {}; }
Status InferIf(ir::Graph&, ir::Op&, Declared) { return {}; }
Status InferFor(ir::Graph&, ir::Op& op, Declared) {
  const ir::Expr* step = op.ExprOf("step");
  if (step->IsConst() && step->value > 0) return {};
  return InvalidArgument(Cat("step is ", ToString(step), "; it must be a constant above 0"));
}

Status InferFill(ir::Graph&, ir::Op& op, Declared) { return CheckTensor(op, 0); }

Status InferLaunch(ir::Graph&, ir::Op& op, Declared) {
  const int64_t inputs = op.Int("inputs"), outputs = op.Int("outputs"), workspaces = op.Int("workspaces");
  const auto num_operands = static_cast<int64_t>(op.operands.size());
  const bool negative = inputs < 0 || outputs < 0 || workspaces < 0;
  if (negative || inputs > num_operands || outputs > num_operands || workspaces > num_operands ||
      inputs + outputs + workspaces > num_operands) {
    return InvalidArgument(Cat("inputs, outputs and workspaces are ", inputs, ", ", outputs, ", ", workspaces,
                               "; there are ", num_operands, " operands"));
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (AccessOf(op, static_cast<int>(i)) != Access::kNone) {
      HIR_TRY(CheckTensor(op, i));
    } else if (op.operands[i]->type->kind != TypeKind::kScalar) {
      return InvalidArgument(Cat("operand ", i, ", %", op.operands[i]->name, ", is ", ToString(*op.operands[i]->type),
                                 ", not a host scalar"));
    }
  }
  return {};
}

Status InferLibrary(ir::Graph&, ir::Op& op, Declared) {
  constexpr std::string_view kOps[] = {"matmul", "linear"};
  HIR_TRY(CheckOneOf("op", op.Name("op"), kOps));
  const int64_t inputs = op.Int("inputs");
  if (inputs != 2 && inputs != 3) return InvalidArgument(Cat(op.Name("op"), " of ", inputs, " inputs"));
  constexpr std::string_view kEpilogues[] = {"none", "gelu", "relu", "tanh_gelu"};
  HIR_TRY(CheckOneOf("epilogue", op.Name("epilogue"), kEpilogues));
  constexpr std::string_view kPrecisions[] = {"full", "tf32"};
  HIR_TRY(CheckOneOf("precision", op.Name("precision"), kPrecisions));
  constexpr std::string_view kTransposed[] = {"none", "x", "y", "both"};
  HIR_TRY(CheckOneOf("transposed", op.Name("transposed"), kTransposed));
  if (static_cast<int64_t>(op.operands.size()) != inputs + 1) {
    return InvalidArgument(Cat(inputs, " inputs and an output are not ", op.operands.size(), " operands"));
  }
  for (size_t i = 0; i < op.operands.size(); ++i) HIR_TRY(CheckTensor(op, i));
  return {};
}

Status InferAttention(ir::Graph&, ir::Op& op, Declared) {
  const int64_t inputs = op.Int("inputs");
  const bool is_gradient = inputs == 6 || inputs == 7;
  if (!is_gradient && inputs != 3 && inputs != 4) return InvalidArgument(Cat("attention of ", inputs, " inputs"));
  constexpr std::string_view kForward[] = {"values", "lse", "values,lse"};
  constexpr std::string_view kBackward[] = {"q", "k", "v", "q,k", "q,v", "k,v", "q,k,v"};
  const std::string_view results = op.Name("results");
  if (is_gradient) {
    HIR_TRY(CheckOneOf("results", results, kBackward));
  } else {
    HIR_TRY(CheckOneOf("results", results, kForward));
  }
  const int64_t outputs = std::ranges::count(results, ',') + 1;
  if (static_cast<int64_t>(op.operands.size()) != inputs + outputs)
    return InvalidArgument(
        Cat(inputs, " inputs and the outputs ", results, " are not ", op.operands.size(), " operands"));
  for (size_t i = 0; i < op.operands.size(); ++i) HIR_TRY(CheckTensor(op, i));
  return {};
}

Status InferGroupedProduct(ir::Graph&, ir::Op& op, Declared) {
  constexpr std::string_view kOps[] = {"grouped_matmul", "grouped_outer"};
  HIR_TRY(CheckOneOf("op", op.Name("op"), kOps));
  const bool is_outer = op.Name("op") == kOps[1];
  constexpr std::string_view kTransposed[] = {"none", "y"};
  HIR_TRY(CheckOneOf("transposed", op.Name("transposed"), is_outer ? std::span(kTransposed).first(1) : kTransposed));
  const size_t ranks[] = {2, is_outer ? size_t{2} : size_t{3}, 1, is_outer ? size_t{3} : size_t{2}};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    HIR_TRY(CheckTensor(op, i));
    const ir::Value& operand = *op.operands[i];
    const bool fits = i == 2 ? IsIndex(operand.type->dtype) : operand.type->dtype == op.operands[0]->type->dtype;
    if (fits && ir::ValueAxes(*operand.type).size() == ranks[i]) continue;
    return InvalidArgument(Cat("%", operand.name, " is ", ToString(*operand.type), "; operand ", i, " of ",
                               op.Name("op"), " has ", ranks[i], ranks[i] == 1 ? " axis" : " axes", " and is ",
                               i == 2 ? std::string_view("i32 or i64") : DTypeName(op.operands[0]->type->dtype)));
  }
  return {};
}

Status InferIndexSum(ir::Graph&, ir::Op& op, Declared) {
  for (size_t i = 0; i < op.operands.size(); ++i) HIR_TRY(CheckTensor(op, i));
  const ir::Value& indices = *op.operands[1];
  const std::vector<ir::Axis> updates = ir::ValueAxes(*op.operands[0]->type);
  HIR_TRY(CheckAxis(op, updates, op.Int("axis")));
  if (!IsIndex(indices.type->dtype) || ir::ValueAxes(*indices.type).size() != 1) {
    return InvalidArgument(
        Cat("%", indices.name, " is ", ToString(*indices.type), "; indices are i32 or i64 of one axis"));
  }
  const ir::Type& out = *op.operands[2]->type;
  const ir::Type& from = *op.operands[0]->type;
  if (out.dtype == from.dtype && ir::ValueAxes(out).size() == updates.size()) return {};
  return InvalidArgument(Cat("%", op.operands[2]->name, " is ", ToString(out), ", %", op.operands[0]->name, " is ",
                             ToString(from), "; sums have the type and the number of axes of what is added"));
}

Status InferViewSlice(ir::Graph& graph, ir::Op& op, Declared) {
  HIR_TRY(CheckTensor(op, 0));
  std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  HIR_TRY(CheckAxis(op, axes, op.Int("axis")));
  const ir::Expr* extent = graph.exprs().Sub(op.ExprOf("to"), op.ExprOf("from"));
  if (extent->IsConst() && extent->value < 0) {
    return InvalidArgument(Cat("[", ToString(op.ExprOf("from")), ", ", ToString(op.ExprOf("to")), ") is not a range"));
  }
  axes[static_cast<size_t>(op.Int("axis"))].extent = extent;
  SetTensor(graph, op, axes);
  return {};
}

Status InferViewSelect(ir::Graph& graph, ir::Op& op, Declared) {
  HIR_TRY(CheckTensor(op, 0));
  std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  HIR_TRY(CheckAxis(op, axes, op.Int("axis")));
  axes.erase(axes.begin() + op.Int("axis"));
  SetTensor(graph, op, axes);
  return {};
}

Status InferViewPermute(ir::Graph& graph, ir::Op& op, Declared) {
  HIR_TRY(CheckTensor(op, 0));
  const std::vector<ir::Axis> from = ir::ValueAxes(*op.operands[0]->type);
  const std::span<const int64_t> dims = op.Ints("dims");
  std::vector<int64_t> sorted(dims.begin(), dims.end());
  std::ranges::sort(sorted);
  bool each_once = sorted.size() == from.size();
  for (size_t i = 0; each_once && i < sorted.size(); ++i) each_once = sorted[i] == static_cast<int64_t>(i);
  if (!each_once) {
    return InvalidArgument(Cat("dims=[", base::JoinInts(dims, ", "), "] does not name each of the ", from.size(),
                               " axes of %", op.operands[0]->name, " once"));
  }
  std::vector<ir::Axis> axes;
  for (const int64_t dim : dims) axes.push_back(from[static_cast<size_t>(dim)]);
  SetTensor(graph, op, axes);
  return {};
}

Status InferViewReshape(ir::Graph& graph, ir::Op& op, Declared declared) {
  HIR_TRY(CheckTensor(op, 0));
  if (declared.empty() || declared[0] == nullptr || declared[0]->kind != TypeKind::kTensor) {
    return InvalidArgument("declare the type of the result, a tensor");
  }
  const ir::Type& from = *op.operands[0]->type;
  const ir::Expr* had = StorageElements(graph.exprs(), from);
  const ir::Expr* wanted = StorageElements(graph.exprs(), *declared[0]);
  if (from.dtype != declared[0]->dtype || (had->IsConst() && wanted->IsConst() && had != wanted)) {
    return InvalidArgument(
        Cat("%", op.operands[0]->name, " is ", ToString(from), ", which is not ", ToString(*declared[0]), " reshaped"));
  }
  op.results[0]->type = declared[0];
  return {};
}

}  // namespace hir::host
