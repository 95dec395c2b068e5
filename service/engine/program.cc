#include "service/engine/program.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/expr.h"
#include "csrc/ir/parse.h"
#include "service/convert/tensor.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

Result<int64_t> ValueOf(const ir::Expr* expr, const Sizes& sizes) {
  return ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto found = sizes.find(symbol);
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  });
}

bool AreGiven(const ir::Expr* extent, const Sizes& sizes) {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(extent, symbols);
  return std::ranges::all_of(symbols, [&](std::string_view s) { return sizes.contains(s); });
}

// An extent whose sizes are not given counts for 1.
Status CheckBytes(const Program::Param& param, const Sizes& sizes) {
  std::vector<int64_t> shape;
  for (const ir::Expr* extent : param.shape) {
    const Result<int64_t> value = ValueOf(extent, sizes);
    if (!value.ok() && AreGiven(extent, sizes)) return value.status();  // It overflows.
    shape.push_back(value.ok() ? *value : 1);
  }
  if (ElementsBytes(param.dtype, shape).has_value()) return {};
  std::vector<std::string> texts;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const ir::Expr* const extent = param.shape[axis];
    texts.push_back(AreGiven(extent, sizes) ? base::Cat(shape[axis]) : ir::ToString(extent));
  }
  return TooManyBytes(param.dtype, base::Join(texts, ", "));
}

// "i0 = 8, i1 = 3"
std::string Text(const Sizes& sizes) {
  std::string out;
  for (const auto& [symbol, value] : sizes) base::Append(out, out.empty() ? "" : ", ", symbol, " = ", value);
  return out;
}

// Memory that outputs share is there when the plan comes: runs do not look again.
Status CheckShared(const pb::Plan& plan) {
  const auto is_tensor = [&](int input) {
    return input >= 0 && input < plan.inputs_size() && !plan.inputs(input).scalar();
  };
  for (int i = 0; i < plan.outputs_size(); ++i) {
    const pb::PlanParam& output = plan.outputs(i);
    if (output.has_same_as_input() && !is_tensor(output.same_as_input()))
      return InvalidArgument(
          base::Cat("output ", i, " is input ", output.same_as_input(), ", which is no tensor of it"));
    if (output.has_same_as_output() && (output.same_as_output() < 0 || output.same_as_output() >= i))
      return InvalidArgument(
          base::Cat("output ", i, " is output ", output.same_as_output(), ", which is not before it"));
    if (output.has_alias_input() && !is_tensor(output.alias_input()))
      return InvalidArgument(
          base::Cat("output ", i, " replaces input ", output.alias_input(), ", which is no tensor of it"));
  }
  return {};
}

}  // namespace

Program::Program(std::string id, int64_t number, pb::Plan plan)
    : id_(std::move(id)),
      number_(number),
      plan_(std::move(plan)),
      graph_(std::make_unique<ir::Graph>(fusion::kFusionOps, "sizes")) {}

Result<std::shared_ptr<const Program>> Program::Make(std::string id, int64_t number, pb::Plan plan) {
  std::shared_ptr<Program> program(new Program(std::move(id), number, std::move(plan)));
  if (Status status = program->Parse(); !status.ok()) {
    return Internal(base::Cat("the planner's plan: ", status.message()));
  }
  return std::shared_ptr<const Program>(std::move(program));
}

Status Program::Parse() {
  HIR_TRY(CheckShared(plan_));
  HIR_ASSIGN(inputs_, ParseParams(plan_.inputs()));
  HIR_ASSIGN(outputs_, ParseParams(plan_.outputs()));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const bool is_constant =
        std::ranges::all_of(outputs_[i].shape, [](const ir::Expr* extent) { return extent->IsConst(); });
    constant_outputs_.emplace_back();
    if (!is_constant) continue;
    HIR_ASSIGN(constant_outputs_.back(), OutputSpec(static_cast<int>(i), {}));
  }
  for (const pb::PlanGuard& guard : plan_.guards()) {
    HIR_ASSIGN(const ir::Expr* left, ir::ParseExtent(guard.left(), *graph_, {}));
    HIR_ASSIGN(const ir::Expr* right, ir::ParseExtent(guard.right(), *graph_, {}));
    guards_.push_back({left, right});
    if (guard.replans()) serves_all_ = false;
  }
  if (plan_.provisional()) serves_all_ = false;
  return {};
}

Result<std::vector<Program::Param>> Program::ParseParams(
    const google::protobuf::RepeatedPtrField<pb::PlanParam>& params) {
  std::vector<Param> out;
  for (const pb::PlanParam& from : params) {
    Param param;
    HIR_ASSIGN(param.dtype, FromProto(from.dtype()));
    for (const std::string& extent : from.shape()) {
      HIR_ASSIGN(const ir::Expr* expr, ir::ParseExtent(extent, *graph_, {}));
      param.shape.push_back(expr);
    }
    param.stored_once = FlagsFromProto(from.stored_once(), from.shape_size());
    if (param.stored_once.size() != param.shape.size()) {
      return InvalidArgument(base::Cat(from.name(), " has ", param.stored_once.size(), " stored-once flags for ",
                                       param.shape.size(), " axes"));
    }
    param.sharding = mesh::Sharding::OnDevice0(param.shape.size());
    if (from.has_sharding()) {
      HIR_ASSIGN(param.sharding, FromProto(from.sharding(), param.shape.size()));
    }
    param.memory_order.assign(from.memory_order().begin(), from.memory_order().end());
    HIR_TRY(CheckMemoryOrder(param.memory_order, param.shape.size()).WithContext(from.name()));
    out.push_back(std::move(param));
  }
  return out;
}

std::string Program::NameOf(int index) const {
  return base::Cat("input ", index, " (", plan_.inputs(index).name(), ")");
}

std::string Program::NameOfOutput(int index) const {
  return base::Cat("output ", index, " (", plan_.outputs(index).name(), ")");
}

Status Program::Fits(int index, const TensorSpec& spec, Sizes& sizes) const {
  HIR_TRY(CheckInput(index, spec.dtype, spec.shape));
  const Param& wanted = inputs_[static_cast<size_t>(index)];
  if (!SameParts(spec.sharding, wanted.sharding, spec.shape)) {
    return InvalidArgument(base::Cat(NameOf(index), ": the tensor lies ", Describe(spec.sharding),
                                     "; the program wants it ", Describe(wanted.sharding),
                                     "; reshard it, or put it as this input"));
  }
  if (!SameMemory(spec, wanted.memory_order)) {
    return InvalidArgument(base::Cat(NameOf(index), ": the tensor lies ", DescribeOrder(spec.memory_order),
                                     " in memory; the program wants it ", DescribeOrder(wanted.memory_order),
                                     ", as its stride_order says; put it as this input"));
  }
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    // One element is stored alike both ways, but that of a split axis is on one device unless it is stored once.
    const bool alike = spec.shape[axis] == 1 && (spec.stored_once[axis] || spec.sharding.Ways(axis) == 1);
    if (!alike && spec.stored_once[axis] != wanted.stored_once[axis]) {
      return InvalidArgument(base::Cat(NameOf(index), ": axis ", axis, " is stored ",
                                       spec.stored_once[axis] ? "once" : "in full", " in the tensor, but ",
                                       wanted.stored_once[axis] ? "once" : "in full",
                                       " in the program; put it as this input"));
    }
    const ir::Expr* extent = wanted.shape[axis];
    if (extent->kind == ir::ExprKind::kSymbol) sizes.emplace(extent->symbol, spec.shape[axis]);
  }
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    const ir::Expr* extent = wanted.shape[axis];
    if (extent->IsConst()) continue;  // CheckInput.
    const Result<int64_t> value = ValueOf(extent, sizes);
    // A symbol that a later input binds: CheckSizes and the other input's turn see to it.
    if (value.ok() && *value != spec.shape[axis]) {
      return InvalidArgument(base::Cat(NameOf(index), ": axis ", axis, " has extent ", spec.shape[axis],
                                       "; the program wants ", ir::ToString(extent), " = ", *value, " (", Text(sizes),
                                       ")"));
    }
  }
  return {};
}

Result<TensorSpec> Program::InputSpec(int index, DType dtype, const std::vector<int64_t>& shape) const {
  HIR_TRY(CheckInput(index, dtype, shape));
  const Param& param = inputs_[static_cast<size_t>(index)];
  return TensorSpec{dtype, shape, param.stored_once, param.sharding, param.memory_order};
}

Status Program::CheckInput(int index, DType dtype, const std::vector<int64_t>& shape) const {
  const Param& param = inputs_[static_cast<size_t>(index)];
  if (plan_.inputs(index).scalar())
    return InvalidArgument(base::Cat(NameOf(index), ": a number is wanted, not a tensor"));
  if (dtype != param.dtype) {
    return InvalidArgument(
        base::Cat(NameOf(index), ": the tensor is ", DTypeName(dtype), "; the program wants ", DTypeName(param.dtype)));
  }
  if (shape.size() != param.shape.size()) {
    return InvalidArgument(base::Cat(NameOf(index), ": the tensor has ", shape.size(), " axes; the program wants ",
                                     plan_.inputs(index).type()));
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (param.shape[axis]->IsConst() && param.shape[axis]->value != shape[axis]) {
      return InvalidArgument(base::Cat(NameOf(index), ": axis ", axis, " has extent ", shape[axis],
                                       "; the program wants ", param.shape[axis]->value));
    }
  }
  return {};
}

Status Program::CheckBytes(const Sizes& sizes) const {
  if (sizes.empty()) return {};  // Of constants the parser has seen to it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (Status s = service::CheckBytes(inputs_[i], sizes); !s.ok()) return s.WithContext(NameOf(static_cast<int>(i)));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (Status s = service::CheckBytes(outputs_[i], sizes); !s.ok())
      return s.WithContext(NameOfOutput(static_cast<int>(i)));
  }
  return {};
}

Status Program::CheckSizes(const Sizes& sizes) const {
  HIR_TRY(CheckBytes(sizes));
  return CheckGuards(sizes, /*replans=*/false);
}

Status Program::Serves(const Sizes& sizes) const {
  if (plan_.provisional()) return {Code::kFailedPrecondition, "the plan was made without sizes"};
  return CheckGuards(sizes, /*replans=*/true);
}

Status Program::CheckGuards(const Sizes& sizes, bool replans) const {
  for (size_t i = 0; i < guards_.size(); ++i) {
    const pb::PlanGuard& guard = plan_.guards(static_cast<int>(i));
    if (guard.replans() != replans) continue;
    HIR_ASSIGN(const int64_t left, ValueOf(guards_[i].left, sizes));
    HIR_ASSIGN(const int64_t right, ValueOf(guards_[i].right, sizes));
    if (guard.kind() == pb::PlanGuard::KIND_AT_MOST ? left <= right : left == right) continue;
    return InvalidArgument(base::Cat(guard.condition(), " does not hold with ", Text(sizes), ": ", guard.reason()));
  }
  return {};
}

Result<std::shared_ptr<const TensorSpec>> Program::OutputSpec(int index, const Sizes& sizes) const {
  if (const auto& constant = constant_outputs_[static_cast<size_t>(index)]; constant != nullptr) return constant;
  const Param& param = outputs_[static_cast<size_t>(index)];
  TensorSpec spec = {param.dtype, {}, param.stored_once, param.sharding, param.memory_order};
  for (const ir::Expr* extent : param.shape) {
    HIR_ASSIGN(const int64_t value, ValueOf(extent, sizes));
    spec.shape.push_back(value);
  }
  return std::make_shared<const TensorSpec>(std::move(spec));
}

std::set<std::string, std::less<>> Program::Symbols() const {
  std::vector<std::string_view> symbols;
  for (const Param& input : inputs_) {
    for (const ir::Expr* extent : input.shape) ir::CollectSymbols(extent, symbols);
  }
  for (const Guard& guard : guards_) ir::CollectSymbols(guard.left, symbols), ir::CollectSymbols(guard.right, symbols);
  return {symbols.begin(), symbols.end()};
}

Result<int64_t> Program::Evaluate(const std::string& expression, const Sizes& sizes) const {
  ir::Graph graph(fusion::kFusionOps, "expression");  // graph_ is read by many threads.
  HIR_ASSIGN(const ir::Expr* expr, ir::ParseExtent(expression, graph, {}));
  return ValueOf(expr, sizes);
}

}  // namespace hir::service
