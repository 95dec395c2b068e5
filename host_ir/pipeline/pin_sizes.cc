#include "host_ir/pipeline/pin_sizes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/ir/builder.h"

namespace hir::host {
namespace {

class Pinned {
 public:
  Pinned(const ir::Graph& program, const codegen::Sizes& sizes)
      : program_(program), graph_(new ir::Graph(program.ops(), program.name())) {
    for (const auto& [symbol, size] : sizes) sizes_.emplace(symbol, graph_->exprs().Const(size));
  }

  Result<std::unique_ptr<ir::Graph>> Build() {
    for (const ir::Mesh& mesh : program_.meshes()) graph_->AddMesh(mesh.mesh, mesh.name);
    for (const ir::Value* param : program_.params) Keep(*param, graph_->AddParam(param->name, TypeOf(*param->type)));
    for (const ir::Op* op = program_.body.first; op != nullptr; op = op->next)
      HIR_TRY(ir::WithLocation(Add(*op), op->location));
    for (const ir::Output& output : program_.outputs) {
      ir::Value* const alias = output.alias == nullptr ? nullptr : values_.at(output.alias);
      graph_->outputs.push_back({values_.at(output.value), alias});
    }
    for (const ir::Guard& guard : program_.guards) {
      HIR_TRY(graph_->AddGuard({guard.kind, ExtentOf(guard.left), ExtentOf(guard.right), guard.reason}));
    }
    HIR_TRY(graph_->exprs().status());
    return std::move(graph_);
  }

 private:
  const ir::Expr* ExtentOf(const ir::Expr* extent) { return graph_->exprs().Substitute(extent, sizes_); }

  const ir::Type* TypeOf(const ir::Type& type) {
    if (type.kind != ir::TypeKind::kTensor) return graph_->Scalar(type.dtype);
    std::vector<ir::Axis> axes(type.axes.begin(), type.axes.end());
    for (ir::Axis& axis : axes) axis.extent = ExtentOf(axis.extent);
    return graph_->Tensor(type.dtype, axes);
  }

  void Keep(const ir::Value& from, ir::Value* to) {
    values_.emplace(&from, to);
    to->stride_order = graph_->Copy(from.stride_order);
    if (from.layout == nullptr) return;
    to->layout = graph_->New(
        ir::Layout{.mesh = from.layout->mesh == nullptr ? nullptr : graph_->AddMesh(from.layout->mesh->mesh),
                   .transforms = graph_->Copy(from.layout->transforms),
                   .parallel = graph_->Copy(from.layout->parallel)});
  }

  Status Add(const ir::Op& op) {
    std::vector<ir::Value*> operands;
    for (const ir::Value* operand : op.operands) operands.push_back(values_.at(operand));
    std::vector<ir::Attr> attrs(op.attrs.begin(), op.attrs.end());
    for (ir::Attr& attr : attrs) {
      using Extents = std::span<const ir::Expr* const>;
      if (std::holds_alternative<const ir::Expr*>(attr.value))
        attr.value = ExtentOf(std::get<const ir::Expr*>(attr.value));
      if (!std::holds_alternative<Extents>(attr.value)) continue;
      std::vector<const ir::Expr*> extents;
      for (const ir::Expr* extent : std::get<Extents>(attr.value)) extents.push_back(ExtentOf(extent));
      attr.value = Extents(graph_->Copy(extents));
    }
    ir::Builder builder(*graph_);
    std::vector<std::string_view> names;
    for (const ir::Value* result : op.results) names.push_back(result->name);
    HIR_ASSIGN(ir::Op* const made, builder.Add({.info = op.info,
                                                .operands = operands,
                                                .attrs = attrs,
                                                .result_names = names,
                                                .location = op.location,
                                                .line = op.line}));
    for (size_t i = 0; i < op.results.size(); ++i) Keep(*op.results[i], made->results[i]);
    return {};
  }

  const ir::Graph& program_;
  std::unique_ptr<ir::Graph> graph_;
  std::unordered_map<std::string_view, const ir::Expr*> sizes_;
  std::unordered_map<const ir::Value*, ir::Value*> values_;
};

}  // namespace

codegen::Sizes LeastShared(const ir::Graph& program) {
  codegen::Sizes least;
  std::vector<std::string_view> symbols;
  for (const ir::Value* param : program.params) {
    for (const ir::Axis& axis : param->type->axes) ir::CollectSymbols(axis.extent, symbols);
  }
  for (const std::string_view symbol : symbols) least.emplace(symbol, 2);
  const auto keep_apart = [&](const ir::Value& value) {
    if (value.type->kind != ir::TypeKind::kTensor) return;
    const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
    // Indices are mostly of tokens, as many as a prompt has: no plan for each of those counts.
    if (axes.size() < 2 || !IsFloat(value.type->dtype)) return;
    const std::span<const int64_t> order = value.stride_order;
    const size_t innermost = order.empty() ? axes.size() - 1 : std::ranges::min_element(order) - order.begin();
    const ir::Expr* extent = axes[innermost].extent;
    if (extent->kind != ir::ExprKind::kSymbol) return;
    const auto of_input = least.find(std::string(extent->symbol));
    if (of_input != least.end()) of_input->second = kNarrow + 1;
  };
  for (const ir::Value* param : program.params) keep_apart(*param);
  for (const ir::Output& output : program.outputs) keep_apart(*output.value);
  return least;
}

Result<std::unique_ptr<ir::Graph>> PinSizes(const ir::Graph& program, const codegen::Sizes& sizes) {
  return Pinned(program, sizes).Build();
}

}  // namespace hir::host
