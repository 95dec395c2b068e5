// Steps of the generator that attend: values, lse, and gradients that begin with them.
#include <algorithm>
#include <cmath>

#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;

// Of q from the pool, so that whatever is in front of attention is in front of some, with k, v and perhaps a mask, of
// which some have fewer leading axes.
void Generator::Attention(FusionOp op) {
  const auto fits = [&](const Item& i) {
    const size_t rank = AxesOf(i.value).size();
    return rank >= 2 && rank < 5 && IsFloat(i.dtype()) && ElementsOf(i.value) <= 128;
  };
  Item q = Pick(fits, RandomFloat());
  if (!fits(q)) {
    q = NewParam(RandomFloat(), {{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 5))},
                                 {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 6))}});
  }
  q = Reordered(Tame(q, 2));
  const std::vector<ir::Axis> axes = AxesOf(q.value);
  const ir::Axis m = axes[axes.size() - 2], d = {ir::AxisKind::kIteration, axes.back().extent};
  const auto sized = [&](int64_t most) {
    return ir::Axis{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, most))};
  };
  const ir::Axis n = sized(6), e = sized(4);
  // Those of q, some with extent 1, some missing.
  const auto with_leading = [&](std::vector<ir::Axis> own) {
    std::vector<ir::Axis> made(axes.begin() + rng_.Between(0, std::ssize(axes) - 2), axes.end() - 2);
    for (ir::Axis& axis : made) axis = {ir::AxisKind::kIteration, Chance(30) ? graph_->exprs().Const(1) : axis.extent};
    made.insert(made.end(), own.begin(), own.end());
    return made;
  };
  const Item k = ViewedParam(q.dtype(), with_leading({n, d})), v = ViewedParam(q.dtype(), with_leading({n, e}));
  std::vector<Item> mask;
  const ir::Axis one = {ir::AxisKind::kIteration, graph_->exprs().Const(1)};
  const ir::Axis row = Chance(30) ? one : ir::Axis{ir::AxisKind::kIteration, m.extent};
  if (Chance(40))
    mask.push_back(NewParam(Chance(50) ? RandomFloat() : DType::kBool, with_leading({row, Chance(20) ? one : n})));
  const bool causal = Chance(50), hides = !mask.empty() && mask[0].dtype() == DType::kBool;
  const int64_t before = rng_.Between(0, 2);  // A query sees a key, so that lse is finite.
  const double scale = OneOf<double>({0.25, -0.5});
  const auto emit = [&](std::string_view name, std::string_view result, std::vector<Item> operands, size_t own,
                        size_t at) {
    operands.insert(operands.end(), mask.begin(), mask.end());
    std::vector<ir::Value*> values;
    for (const Item& item : operands) values.push_back(item.value);
    Exprs offset(axes.size() - 2 + own, graph_->exprs().Const(0));
    offset[axes.size() - 2 + at] = graph_->exprs().Const(before);
    return Emit(name, values, {{"result", result}, {"causal", causal}, {"offset", Copy(offset)}, {"scale", scale}});
  };
  const auto size_of = [&](const ir::Axis& axis) {
    return static_cast<double>(std::max<int64_t>(*fusion::ValueOf(axis.extent, sizes_), 1));
  };
  // Products may be rounded before the softmax.
  const double unit = Epsilon(q.dtype()) + Epsilon(ComputeDType(q.dtype())) * 16;
  const double terms = size_of(d) * std::abs(scale);
  const double score = terms * q.bound * k.bound + (mask.empty() ? 0 : mask[0].bound);
  const double wrong = terms * q.error * k.bound + unit * score;
  const double weight = std::expm1(4 * wrong + 2 * unit);  // Relative, of a weight.
  if (op == FusionOp::kAttention || hides) {
    const bool wants_lse = !hides && Chance(40);
    if (!wants_lse || Chance(50))
      Reordered(Add(emit("attention", "values", {q, k, v}, 2, 0), v.bound, v.bound * weight + v.error));
    if (wants_lse) Add(emit("attention", "lse", {q, k, v}, 1, 0), score + std::log(size_of(n)), wrong + unit);
    if (op == FusionOp::kAttention) return;
    mask.clear();
  }
  const Item lse = Add(emit("attention", "lse", {q, k, v}, 1, 0), score + std::log(size_of(n)), wrong + unit);
  std::vector<ir::Axis> rows = AxesOf(lse.value);
  for (ir::Axis& axis : rows) axis.kind = ir::AxisKind::kIteration;
  rows.push_back(e);
  const Item values = ViewedParam(q.dtype(), rows);
  const Item gradient = ViewedParam(q.dtype(), rows);
  const std::vector<Item> operands = {q, k, v, gradient, lse, values};
  const double of_weight = size_of(e) * gradient.bound * (v.bound + values.bound);
  const double of_score = of_weight * (weight + 2 * unit);
  const double s = std::abs(scale);
  for (const std::string_view result : {"q", "k", "v"}) {
    if (Chance(30)) continue;
    ir::Value* const made = emit("attention_grad", result, operands, 3, result == "q" ? 0 : 2);
    if (result == "q") {
      Add(made, s * size_of(n) * of_weight * k.bound, s * size_of(n) * k.bound * of_score);
    } else if (result == "k") {
      Add(made, s * size_of(m) * of_weight * q.bound, s * size_of(m) * (of_score * q.bound + of_weight * q.error));
    } else {
      Add(made, size_of(m) * gradient.bound, size_of(m) * gradient.bound * (weight + unit));
    }
  }
}

}  // namespace hir::testing
