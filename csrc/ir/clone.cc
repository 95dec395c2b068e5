#include "csrc/ir/clone.h"

#include <string>

namespace hir::ir {
namespace {

using Symbols = std::unordered_map<std::string_view, const Expr*>;

// Carries types, attributes and layouts into `to`.
class Carrier {
 public:
  Carrier(Graph& to, const Symbols& symbols) : to_(to), symbols_(symbols) {}

  const Type* TypeOf(const Type* type) {
    if (type == nullptr) return nullptr;
    switch (type->kind) {
      case TypeKind::kIndex: return to_.Index();
      case TypeKind::kEvent: return to_.Event(type->count);
      case TypeKind::kScalar: return to_.Scalar(type->dtype);
      case TypeKind::kTensor: break;
    }
    std::vector<Axis> axes(type->axes.begin(), type->axes.end());
    for (Axis& axis : axes) axis.extent = ExprOf(axis.extent);
    return to_.Tensor(type->dtype, axes);
  }

  const Layout* LayoutOf(const Layout* layout) {
    if (layout == nullptr) return nullptr;
    return to_.New(Layout{.mesh = MeshOf(layout->mesh),
                          .transforms = to_.Copy(layout->transforms),
                          .parallel = to_.Copy(layout->parallel)});
  }

  std::vector<Attr> AttrsOf(const Op& op) {
    std::vector<Attr> attrs(op.attrs.begin(), op.attrs.end());
    for (Attr& attr : attrs) {
      if (auto* expr = std::get_if<const Expr*>(&attr.value)) *expr = ExprOf(*expr);
      if (auto* mesh = std::get_if<const Mesh*>(&attr.value)) *mesh = MeshOf(*mesh);
      if (auto* exprs = std::get_if<std::span<const Expr* const>>(&attr.value)) {
        std::vector<const Expr*> carried;
        for (const Expr* expr : *exprs) carried.push_back(ExprOf(expr));
        *exprs = to_.Copy(carried);
      }
    }
    return attrs;
  }

  const Expr* ExprOf(const Expr* expr) { return to_.exprs().Substitute(expr, symbols_); }
  const Mesh* MeshOf(const Mesh* mesh) { return mesh == nullptr ? nullptr : to_.AddMesh(mesh->mesh, mesh->name); }

 private:
  Graph& to_;
  const Symbols& symbols_;
};

using Values = std::unordered_map<const Value*, Value*>;

// `value` under its own name, which is free: Clone keeps names.
Value* CloneValue(const Value& value, Graph& to, Carrier& carrier, Values& values) {
  Value* copy = to.NewValue(value.name, carrier.TypeOf(value.type));
  copy->layout = carrier.LayoutOf(value.layout);
  copy->stride_order = to.Copy(value.stride_order);
  copy->index = value.index;
  values.emplace(&value, copy);
  return copy;
}

void CloneBlock(const Block& from, Block& block, Graph& to, Carrier& carrier, Values& values) {
  std::vector<Value*> args;
  for (const Value* arg : from.args) args.push_back(CloneValue(*arg, to, carrier, values));
  block.args = to.Copy(args);
  for (const Op* op = from.first; op != nullptr; op = op->next) {
    std::vector<Value*> operands;
    for (const Value* operand : op->operands) operands.push_back(values.at(operand));
    Op* copy = to.NewOp(*op->info, operands, carrier.AttrsOf(*op), 0);
    std::vector<Value*> results;
    for (const Value* result : op->results) results.push_back(CloneValue(*result, to, carrier, values));
    for (Value* result : results) result->def = copy;
    copy->results = to.Copy(results);
    copy->location = to.Copy(op->location);
    copy->line = op->line;
    block.InsertBefore(nullptr, copy);
    for (size_t i = 0; i < op->blocks.size(); ++i) CloneBlock(*op->blocks[i], *copy->blocks[i], to, carrier, values);
  }
}

// The symbols of the loop indices around `op` whose values have other names in `graph`.
Symbols RenamedIndices(const Op& op, Graph& graph, const Values& values) {
  Symbols symbols;
  for (const Block* block = op.parent; block != nullptr && block->owner != nullptr; block = block->owner->parent) {
    for (const Value* arg : block->args) {
      const auto found = values.find(arg);
      if (arg->type->kind != TypeKind::kIndex || found == values.end() || found->second->name == arg->name) continue;
      const std::string_view old_name = graph.Copy("%" + std::string(arg->name));
      symbols.emplace(old_name, graph.exprs().Symbol("%" + std::string(found->second->name)));
    }
  }
  return symbols;
}

}  // namespace

std::unique_ptr<Graph> Clone(const Graph& graph) {
  auto to = std::make_unique<Graph>(graph.ops(), graph.name());
  to->segmentation = graph.segmentation;
  for (const Expr* symbol : graph.exprs().symbols()) to->exprs().Symbol(symbol->symbol);  // The order decides in Unify.
  for (const Mesh& mesh : graph.meshes()) to->AddMesh(mesh.mesh, mesh.name);
  const Symbols none;
  Carrier carrier(*to, none);
  Values values;
  for (const Value* param : graph.params) to->params.push_back(CloneValue(*param, *to, carrier, values));
  CloneBlock(graph.body, to->body, *to, carrier, values);
  for (const Output& output : graph.outputs) {
    to->outputs.push_back({values.at(output.value), output.alias == nullptr ? nullptr : values.at(output.alias)});
  }
  for (const Guard& guard : graph.guards) {
    to->guards.push_back({guard.kind, carrier.ExprOf(guard.left), carrier.ExprOf(guard.right), guard.reason});
  }
  return to;
}

Result<Op*> CloneOp(const Op& op, Builder& builder, Values& values) {
  Graph& to = builder.graph();
  const bool declare = to.ops().declares || op.info->infer == nullptr;
  const Symbols symbols = RenamedIndices(op, to, values);
  Carrier carrier(to, symbols);
  std::vector<Value*> operands;
  for (const Value* operand : op.operands) operands.push_back(values.at(operand));
  std::vector<std::string_view> names;
  std::vector<const Type*> declared;
  for (const Value* result : op.results) {
    names.push_back(result->name);
    declared.push_back(declare ? carrier.TypeOf(result->type) : nullptr);
  }
  const std::vector<Attr> attrs = carrier.AttrsOf(op);
  HIR_ASSIGN(Op* const copy, builder.Add({.info = op.info,
                                          .operands = operands,
                                          .attrs = attrs,
                                          .result_names = names,
                                          .declared = declared,
                                          .num_results = static_cast<int>(names.size()),
                                          .location = op.location,
                                          .line = op.line}));
  for (size_t i = 0; i < op.results.size(); ++i) values[op.results[i]] = copy->results[i];
  for (size_t i = 0; i < op.blocks.size(); ++i) {
    for (const Value* arg : op.blocks[i]->args) {
      values[arg] = to.AddBlockArg(*copy->blocks[i], arg->name, carrier.TypeOf(arg->type));
    }
    Builder inner(to, *copy->blocks[i]);
    for (const Op* nested = op.blocks[i]->first; nested != nullptr; nested = nested->next) {
      HIR_TRY(CloneOp(*nested, inner, values).status());
    }
  }
  return copy;
}

Result<std::unique_ptr<Graph>> Rebuild(const Graph& graph) {
  auto to = std::make_unique<Graph>(graph.ops(), graph.name());
  to->segmentation = graph.segmentation;
  for (const Expr* symbol : graph.exprs().symbols()) to->exprs().Symbol(symbol->symbol);
  for (const Mesh& mesh : graph.meshes()) to->AddMesh(mesh.mesh, mesh.name);
  const Symbols none;
  Carrier carrier(*to, none);
  Values values;
  for (const Value* param : graph.params) to->params.push_back(CloneValue(*param, *to, carrier, values));
  Builder builder(*to);
  for (const Op* op = graph.body.first; op != nullptr; op = op->next) {
    const Status status = CloneOp(*op, builder, values).status();
    HIR_TRY(op->line > 0 ? status.WithContext("line " + std::to_string(op->line)) : status);
  }
  for (const auto& [from, copy] : values) {
    copy->layout = carrier.LayoutOf(from->layout);
    copy->stride_order = to->Copy(from->stride_order);
  }
  for (const Output& output : graph.outputs) {
    to->outputs.push_back({values.at(output.value), output.alias == nullptr ? nullptr : values.at(output.alias)});
  }
  for (const Guard& guard : graph.guards) {
    const Expr* left = carrier.ExprOf(guard.left);
    const Expr* right = carrier.ExprOf(guard.right);
    HIR_TRY(guard.kind == Guard::Kind::kEqual ? Builder::Unify(*to, left, right, guard.reason)
                                              : to->AddGuard({guard.kind, left, right, guard.reason}));
  }
  return to;
}

namespace {

// Extents are shared in memory but not in text or in a copy: what a few bytes stand for is limited here.
Status CheckTerms(const Graph& graph) {
  int64_t terms = 0;
  for (const Value* value : graph.values()) {
    if (value->type == nullptr) continue;
    for (const Axis& axis : value->type->axes) terms += axis.extent->nodes;
  }
  ForEachOp(graph.body, [&](const Op* op) {
    for (const Attr& attr : op->attrs) {
      if (const auto* one = std::get_if<const Expr*>(&attr.value)) terms += (*one)->nodes;
      const auto* list = std::get_if<std::span<const Expr* const>>(&attr.value);
      for (size_t i = 0; list != nullptr && i < list->size(); ++i) terms += (*list)[i]->nodes;
    }
  });
  if (terms <= kTermsMax) return {};
  return ResourceExhausted("the extents of this program have " + std::to_string(terms) +
                           " terms and factors; the limit is " + std::to_string(kTermsMax));
}

}  // namespace

Result<std::unique_ptr<Graph>> Settle(std::unique_ptr<Graph> graph) {
  HIR_TRY(CheckTerms(*graph));
  for (int round = 0; graph->has_replaced(); ++round) {
    if (round == kSettleRoundsMax) {
      return ResourceExhausted("the sizes of this program do not settle in " + std::to_string(round) +
                               " rounds of inference");
    }
    HIR_ASSIGN(graph, Rebuild(*graph));
    HIR_TRY(CheckTerms(*graph));
  }
  return graph;
}

}  // namespace hir::ir
