#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

using base::Cat;

// Consecutive operand axes that become consecutive result axes, with equally many elements.
struct Group {
  std::vector<size_t> in, out;
};

std::vector<const ir::Expr*> ExtentsOf(std::span<const ir::Axis> axes) {
  std::vector<const ir::Expr*> extents;
  for (const ir::Axis& axis : axes) extents.push_back(axis.extent);
  return extents;
}

// The shortest pair (a, b) such that the first a of `in` and the first b of `out` hold equally many elements, whatever
// the symbols are. When there is none, what is left of both before the extents that they end with alike: there are
// equally many elements where there are any, as a guard says. So [i0, 8, i1 / 8, i2] to [i0, i1, i2] joins two axes.
std::pair<size_t, size_t> ShortestMatch(ir::ExprPool& pool, std::span<const ir::Expr* const> in,
                                        std::span<const ir::Expr* const> out) {
  const auto products = [&pool](std::span<const ir::Expr* const> extents) {
    std::vector<const ir::Expr*> result = {pool.Const(1)};
    for (const ir::Expr* extent : extents) result.push_back(pool.Mul(result.back(), extent));
    return result;
  };
  const std::vector<const ir::Expr*> ins = products(in);
  const std::vector<const ir::Expr*> outs = products(out);
  for (size_t sum = 2; sum <= in.size() + out.size(); ++sum) {
    for (size_t a = 1; a < sum && a <= in.size(); ++a) {
      if (sum - a <= out.size() && ins[a] == outs[sum - a]) return {a, sum - a};
    }
  }
  size_t same = 0;
  const auto at_end = [](std::span<const ir::Expr* const> extents, size_t i) {
    return extents[extents.size() - 1 - i];
  };
  if (ins.back() == outs.back()) return {in.size(), out.size()};
  while (same + 1 < std::min(in.size(), out.size()) && at_end(in, same) == at_end(out, same)) ++same;
  const bool is_one_each = in.size() - same == 1 && out.size() - same == 1;
  return is_one_each ? std::pair(in.size(), out.size()) : std::pair(in.size() - same, out.size() - same);
}

std::vector<Group> Match(std::span<const ir::Expr* const> in_extents, std::span<const ir::Expr* const> out_extents) {
  ir::ExprPool pool;  // Equal extents are one pointer in here.
  std::vector<const ir::Expr*> in, out;
  for (const ir::Expr* extent : in_extents) in.push_back(pool.Import(extent));
  for (const ir::Expr* extent : out_extents) out.push_back(pool.Import(extent));
  std::vector<Group> groups;
  for (size_t i = 0, j = 0; i < in.size() || j < out.size();) {
    const bool one_in = i < in.size() && in[i]->IsConst(1);
    const bool one_out = j < out.size() && out[j]->IsConst(1);
    size_t a = one_in ? 1 : 0;
    size_t b = one_out ? 1 : 0;
    if (!one_in && !one_out) {
      std::tie(a, b) = ShortestMatch(pool, std::span(in).subspan(i), std::span(out).subspan(j));
    }
    Group& group = groups.emplace_back();
    for (; a > 0; --a) group.in.push_back(i++);
    for (; b > 0; --b) group.out.push_back(j++);
  }
  return groups;
}

// total / known where both are products and the division is exact, else null.
const ir::Expr* DivideProducts(ir::ExprPool& pool, const ir::Expr* total, const ir::Expr* known) {
  struct Product {
    int64_t coefficient = 1;
    std::vector<const ir::Expr*> atoms;
  };
  const auto product = [](const ir::Expr* e) -> Product {
    if (e->IsConst()) return {e->value, {}};
    if (e->kind == ir::ExprKind::kMul) return {e->value, {e->args.begin(), e->args.end()}};
    return {1, {e}};
  };
  Product left = product(total);
  const Product right = product(known);
  if (right.coefficient < 1 || left.coefficient % right.coefficient != 0) return nullptr;
  for (const ir::Expr* atom : right.atoms) {
    const auto found = std::ranges::find(left.atoms, atom);
    if (found == left.atoms.end()) return nullptr;
    left.atoms.erase(found);
  }
  const ir::Expr* quotient = pool.Const(left.coefficient / right.coefficient);
  for (const ir::Expr* atom : left.atoms) quotient = pool.Mul(quotient, atom);
  return quotient;
}

const ir::Expr* Product(ir::ExprPool& pool, std::span<const ir::Expr* const> extents) {
  const ir::Expr* product = pool.Const(1);
  for (const ir::Expr* extent : extents) product = pool.Mul(product, extent);
  return product;
}

std::string ShapeText(std::span<const ir::Expr* const> shape) {
  std::vector<std::string> parts;
  for (const ir::Expr* extent : shape) parts.push_back(ir::ToString(extent));
  return Cat("[", base::Join(parts, ", "), "]");
}

// Replaces the -1 of `shape`, if there is one, and demands that the shape holds as many elements as there are.
Status CompleteShape(ir::Graph& graph, const ir::Op& op, std::span<const ir::Axis> axes,
                     std::vector<const ir::Expr*>& shape) {
  ir::ExprPool& pool = graph.exprs();
  const std::string given = ShapeText(shape);
  const ir::Expr* total = Product(pool, ExtentsOf(axes));
  const auto open = std::ranges::find_if(shape, [](const ir::Expr* e) { return e->IsConst(-1); });
  const std::string_view name = op.operands[0]->name;
  if (open != shape.end()) {
    if (std::find_if(open + 1, shape.end(), [](const ir::Expr* e) { return e->IsConst(-1); }) != shape.end()) {
      return InvalidArgument(Cat("shape ", given, " holds -1 more than once"));
    }
    *open = pool.Const(1);
    const ir::Expr* known = Product(pool, shape);
    if (known->IsConst(0)) return InvalidArgument(Cat("shape ", given, " holds 0, so -1 can be any extent"));
    const ir::Expr* missing = DivideProducts(pool, total, known);
    if (missing == nullptr && total->IsConst() && known->IsConst()) {
      return InvalidArgument(Cat("%", name, " has ", total->value, " elements, not a multiple of the ", known->value,
                                 " of shape ", given));
    }
    *open = missing != nullptr ? missing : pool.FloorDiv(total, known);
  }
  const ir::Expr* made = Product(pool, shape);
  HIR_TRY(pool.status());
  if (total->IsConst() && made->IsConst() && total->value != made->value) {
    return InvalidArgument(Cat("%", name, " has ", total->value, " elements, shape ", given, " has ", made->value));
  }
  return RequireEqual(graph, total, made, Cat("reshape of %", name, " to ", given));
}

}  // namespace

Status InferReshape(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  std::vector<const ir::Expr*> shape(op.Exprs("shape").begin(), op.Exprs("shape").end());
  if (shape.size() > static_cast<size_t>(ir::kAxesMax)) {
    return InvalidArgument(Cat("shape has ", shape.size(), " entries; the limit is ", ir::kAxesMax));
  }
  for (const ir::Expr* extent : shape) {
    if (extent->IsConst() && extent->value < -1) {
      return InvalidArgument(Cat("shape ", ShapeText(shape), " holds ", extent->value));
    }
  }
  HIR_TRY(CompleteShape(graph, op, axes, shape));
  HIR_TRY(RequireExtents(graph, op, shape));
  SetExprs(graph, op, "shape", shape);
  std::vector<ir::Axis> result;
  for (const Group& group : Match(ExtentsOf(axes), shape)) {
    // A part of a tensor that is stored once stays so.
    const bool stored_once =
        std::ranges::all_of(group.in, [&](size_t i) { return axes[i].kind == ir::AxisKind::kBroadcast; });
    for (const size_t j : group.out) {
      result.push_back({stored_once ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, shape[j]});
    }
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesReshape(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const auto relation = [](const Group& group, size_t a, size_t b) {
    if (group.in.size() == 1 && group.out.size() == 1) return AxisRelation::kSame;
    if (group.in.size() == 1) return b == 0 ? AxisRelation::kSplitOuter : AxisRelation::kSplitInner;
    if (group.out.size() == 1) return a == 0 ? AxisRelation::kMergedOuter : AxisRelation::kMergedInner;
    return AxisRelation::kOpaque;
  };
  for (const Group& group : Match(ExtentsOf(axes), ExtentsOf(op.results[0]->type->axes))) {
    for (size_t a = 0; a < group.in.size(); ++a) {
      for (size_t b = 0; b < group.out.size(); ++b) {
        links.push_back({0, static_cast<int>(group.in[a]), 0, static_cast<int>(group.out[b]), relation(group, a, b)});
      }
    }
  }
}

const Element* DefineReshape(ElementBuilder& builder, const ir::Op& op, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  std::vector<const Element*> own(axes.size());
  for (const Group& group : Match(ExtentsOf(axes), ExtentsOf(result))) {
    const Element* flat = builder.Int(DType::kInt64, 0);
    for (const size_t j : group.out) {
      flat = builder.Apply(Prim::kMul, {flat, builder.Extent(result[j].extent)});
      flat = builder.Apply(Prim::kAdd, {flat, index[j]});
    }
    for (size_t a = group.in.size(); a-- > 0;) {
      const Element* extent = builder.Extent(axes[group.in[a]].extent);
      own[group.in[a]] = IsOne(axes[group.in[a]]) ? builder.Int(DType::kInt64, 0)
                         : a == 0                 ? flat
                                                  : builder.DividePlace(Prim::kRem, flat, extent);
      if (a > 0) flat = builder.DividePlace(Prim::kDiv, flat, extent);
    }
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
