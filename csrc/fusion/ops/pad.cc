#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

constexpr int64_t kWidthMax = int64_t{1} << 40;

struct Widths {
  int64_t before = 0;
  int64_t after = 0;
};

// The widths of value axis `axis` of a tensor of `rank` axes.
Widths WidthsOf(const ir::Op& op, size_t axis, size_t rank) {
  const std::span<const int64_t> widths = op.Ints("widths");
  const size_t pair = 2 * (rank - 1 - axis);
  if (pair >= widths.size()) return {};
  return {widths[pair], widths[pair + 1]};
}

}  // namespace

Status InferPad(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  const std::span<const int64_t> widths = op.Ints("widths");
  if (widths.size() % 2 != 0 || widths.size() > 2 * axes.size()) {
    return InvalidArgument(base::Cat("widths has ", widths.size(), " entries; %", op.operands[0]->name, " has ",
                                     axes.size(), " axes, so it holds at most ", axes.size(), " pairs"));
  }
  std::vector<ir::Axis> result = axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Widths w = WidthsOf(op, i, axes.size());
    for (const int64_t width : {w.before, w.after}) {
      if (width < -kWidthMax || width > kWidthMax) {
        return InvalidArgument(base::Cat("width ", width, " on axis ", i, "; the limit is ", kWidthMax));
      }
    }
    if (w.before == 0 && w.after == 0) continue;
    const int64_t more = w.before + w.after;
    const std::string name = AxisName(*op.operands[0], i);
    if (axes[i].extent->IsConst() && axes[i].extent->value < -more) {
      return InvalidArgument(
          base::Cat(name, " has extent ", axes[i].extent->value, ", less than the ", -more, " to crop"));
    }
    HIR_TRY(RequireAtMost(graph, graph.exprs().Const(-more), axes[i].extent, base::Cat("pad of ", name)));
    result[i] = {ir::AxisKind::kIteration, graph.exprs().Add(axes[i].extent, graph.exprs().Const(more))};
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesPad(const ir::Op& op, std::vector<AxisLink>& links) {
  const size_t rank = ir::ValueAxes(*op.operands[0]->type).size();
  for (size_t i = 0; i < rank; ++i) {
    const Widths w = WidthsOf(op, i, rank);
    links.push_back({0, static_cast<int>(i), 0, static_cast<int>(i),
                     w.before == 0 && w.after == 0 ? AxisRelation::kSame : AxisRelation::kPadded});
  }
}

const Element* DefinePad(ElementBuilder& builder, const ir::Op& op, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const Element* inside = builder.Int(DType::kBool, 1);
  std::vector<const Element*> own;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Widths w = WidthsOf(op, i, axes.size());
    const Element* at = builder.Apply(Prim::kSub, {index[i], builder.Int(DType::kInt64, w.before)});
    own.push_back(at);
    if (w.before > 0) {
      const Element* after_start = builder.Apply(Prim::kGe, {at, builder.Int(DType::kInt64, 0)});
      inside = builder.Apply(Prim::kAnd, {inside, after_start});
    }
    if (w.after > 0) {
      const Element* before_end = builder.Apply(Prim::kLt, {at, builder.Extent(axes[i].extent)});
      inside = builder.Apply(Prim::kAnd, {inside, before_end});
    }
  }
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = ComputeDType(dtype);
  const Element* value = builder.Convert(carried, builder.Float(DType::kFloat64, op.Float("value")));
  const Element* loaded = builder.Convert(carried, builder.Load(op.operands[0], own));
  return builder.Convert(dtype, builder.Select(inside, loaded, value));
}

}  // namespace hir::fusion
