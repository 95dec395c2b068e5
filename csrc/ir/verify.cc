#include "csrc/ir/verify.h"

#include <algorithm>
#include <unordered_set>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/builder.h"

namespace hir::ir {
namespace {

using base::Cat;

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), visible_(graph.values().size()) {}

  Status Run() {
    for (const Value* param : graph_.params) HIR_TRY(Define(*param));
    HIR_TRY(CheckBlock(graph_.body));
    for (const Output& output : graph_.outputs) {
      if (!Visible(*output.value))
        return InvalidArgument(Cat("return: %", output.value->name, " is not defined there"));
      if (output.alias != nullptr) HIR_TRY(CheckAlias(output));
    }
    return {};
  }

 private:
  bool Visible(const Value& value) const { return visible_[static_cast<size_t>(value.id)]; }

  Status CheckAlias(const Output& output) {
    const auto fail = [&](std::string_view what) {
      return InvalidArgument(Cat("return: %", output.value->name, " alias %", output.alias->name, ": ", what));
    };
    const auto& params = graph_.params;
    if (std::find(params.begin(), params.end(), output.alias) == params.end())
      return fail("only an input's memory can be taken");
    for (const Output& other : graph_.outputs) {
      if (&other != &output && other.alias == output.alias) return fail("another output takes that memory");
    }
    const Type& to = *output.alias->type;
    if (to.kind != TypeKind::kTensor || output.value->type->kind != TypeKind::kTensor)
      return fail("only tensors have memory");
    const auto once = std::find_if(to.axes.begin(), to.axes.end(), [](const Axis& a) {
      return a.kind == AxisKind::kBroadcast && !a.extent->IsConst(1);
    });
    if (once == to.axes.end()) return {};
    return fail(Cat("axis ", once - to.axes.begin(), " of the input, b:", ToString(once->extent),
                    ", is stored once, so it has less memory than elements; return without alias, "
                    "or declare the axis ",
                    ToString(once->extent), ", stored in full"));
  }

  Status Define(const Value& value) {
    if (value.type == nullptr) return InvalidArgument(Cat("%", value.name, " has no type"));
    if (!names_.insert(value.name).second) return InvalidArgument(Cat("%", value.name, " is defined twice"));
    visible_[static_cast<size_t>(value.id)] = true;
    HIR_TRY(CheckType(*value.type).WithContext(value.name));
    for (const Axis& axis : value.type->axes) HIR_TRY(CheckSymbols(axis.extent).WithContext(value.name));
    return value.layout == nullptr ? Status() : CheckLayout(value, *value.layout).WithContext(value.name);
  }

  // Whether only sizes are in `expr`, which need no scope.
  static bool IsPlain(const Expr* expr) {
    if (expr->kind == ExprKind::kSymbol) return expr->symbol[0] != '%' && expr->symbol[0] != '@';
    return std::all_of(expr->args.begin(), expr->args.end(), [](const Expr* arg) { return IsPlain(arg); });
  }

  // Loop indices must be in scope, coordinates of a mesh of this graph.
  Status CheckSymbols(const Expr* expr) {
    if (expr->IsConst() || plain_.contains(expr)) return {};
    if (IsPlain(expr)) {
      plain_.insert(expr);
      return {};
    }
    if (expr->kind != ExprKind::kSymbol) {
      for (const Expr* arg : expr->args) HIR_TRY(CheckSymbols(arg));
      return {};
    }
    if (expr->symbol[0] == '%') {
      const Value* index = graph_.FindValue(expr->symbol.substr(1));
      if (index == nullptr || !Visible(*index) || index->type->kind != TypeKind::kIndex) {
        return InvalidArgument(Cat(expr->symbol, " is no loop index here"));
      }
    } else if (expr->symbol[0] == '@') {
      const std::string_view mesh = expr->symbol.substr(1, expr->symbol.rfind('.') - 1);
      if (graph_.FindMesh(mesh) == nullptr) return InvalidArgument(Cat(expr->symbol, ": undefined mesh @", mesh));
    }
    return {};
  }

  bool Owns(const Mesh* mesh) const {
    return std::any_of(graph_.meshes().begin(), graph_.meshes().end(), [&](const Mesh& m) { return &m == mesh; });
  }

  Status CheckLayout(const Value& value, const Layout& layout) {
    if (value.type->kind != TypeKind::kTensor) return InvalidArgument("only a tensor has a layout");
    if (layout.mesh != nullptr && !Owns(layout.mesh))
      return InvalidArgument("its layout is on a mesh of another graph");
    size_t leaves = value.type->axes.size();
    for (const LoopTransform& step : layout.transforms) {
      const bool merge = step.kind == LoopTransform::Kind::kMerge;
      if (step.axis < 0 || static_cast<size_t>(step.axis) + (merge ? 1 : 0) >= leaves || (!merge && step.factor < 1)) {
        return InvalidArgument(Cat("its layout splits or merges axis ", step.axis, " of ", leaves));
      }
      leaves = merge ? leaves - 1 : leaves + 1;
    }
    if (layout.parallel.size() != leaves) {
      return InvalidArgument(
          Cat("its layout has ", layout.parallel.size(), " parallel types for ", leaves, " loop axes"));
    }
    for (const mesh::ParallelType type : mesh::kMeshTypes) {
      const auto count = std::count(layout.parallel.begin(), layout.parallel.end(), type);
      if (count > 1) return InvalidArgument(Cat(mesh::ParallelTypeName(type), " is on ", count, " loop axes"));
      if (count == 1 && layout.mesh == nullptr)
        return InvalidArgument(Cat("its layout has ", mesh::ParallelTypeName(type), " and no mesh"));
      if (count == 1 && !layout.mesh->mesh.Has(type)) {
        return InvalidArgument(
            Cat("@", layout.mesh->name, " = ", layout.mesh->mesh.ToString(), " has no ", mesh::ParallelTypeName(type)));
      }
    }
    return {};
  }

  Status CheckOp(const Op& op) {
    const auto operands = static_cast<int64_t>(op.operands.size());
    if (op.info->num_operands != kVariadic && operands != op.info->num_operands) {
      return InvalidArgument(Cat("has ", operands, " operands, takes ", op.info->num_operands));
    }
    for (const Value* operand : op.operands) {
      if (!Visible(*operand)) return InvalidArgument(Cat("%", operand->name, " is not defined there"));
    }
    if (static_cast<int>(op.attrs.size()) != op.info->num_attrs()) {
      return InvalidArgument(Cat("has ", op.attrs.size(), " attributes, takes ", op.info->num_attrs()));
    }
    for (size_t i = 0; i < op.attrs.size(); ++i) {
      const AttrInfo& row = op.info->attrs[i];
      if (op.attrs[i].name != row.name || !Holds(op.attrs[i].value, row.kind)) {
        return InvalidArgument(Cat("attribute ", row.name, " is missing or not ", AttrKindName(row.kind)));
      }
      if (const auto* expr = std::get_if<const Expr*>(&op.attrs[i].value)) HIR_TRY(CheckSymbols(*expr));
      if (const auto* exprs = std::get_if<std::span<const Expr* const>>(&op.attrs[i].value)) {
        for (const Expr* expr : *exprs) HIR_TRY(CheckSymbols(expr));
      }
      if (const auto* mesh = std::get_if<const Mesh*>(&op.attrs[i].value); mesh != nullptr && !Owns(*mesh)) {
        return InvalidArgument(Cat("attribute ", row.name, " is a mesh of another graph"));
      }
    }
    for (const Value* result : op.results) {
      HIR_CHECK(result->def == &op);
      HIR_TRY(Define(*result));
    }
    return {};
  }

  Status CheckBlock(const Block& block) {
    std::vector<const Value*> defined;
    for (const Value* arg : block.args) {
      HIR_TRY(Define(*arg));
      defined.push_back(arg);
    }
    for (const Op* op = block.first; op != nullptr; op = op->next) {
      HIR_CHECK(op->parent == &block);
      Status status = WithLocation(CheckOp(*op).WithContext(op->info->name), op->location);
      if (op->line > 0) status = status.WithContext(Cat("line ", op->line));
      HIR_TRY(status);
      defined.insert(defined.end(), op->results.begin(), op->results.end());
      for (const Block* inner : op->blocks) HIR_TRY(CheckBlock(*inner));
    }
    if (&block == &graph_.body) return {};
    for (const Value* value : defined) visible_[static_cast<size_t>(value->id)] = false;
    return {};
  }

  const Graph& graph_;
  std::vector<bool> visible_;  // By value id.
  std::unordered_set<std::string_view> names_;
  std::unordered_set<const Expr*> plain_;  // Known to be.
};

}  // namespace

Status Verify(const Graph& graph) {
  HIR_TRY(Verifier(graph).Run());
  return graph.ops().verify == nullptr ? Status() : graph.ops().verify(graph);
}

}  // namespace hir::ir
