// Steps of the generator that multiply groups of rows: of rows from the pool, with ends in any order, some outside.
#include <algorithm>

#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;

void Generator::Grouped(FusionOp op) {
  const auto fits = [&](const Item& i) {
    return AxesOf(i.value).size() == 2 && i.dtype() != DType::kBool && ElementsOf(i.value) <= 256;
  };
  const auto sized = [&](int64_t least, int64_t most) {
    return ir::Axis{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(least, most))};
  };
  Item x = Pick(fits, RandomFloat());
  if (!fits(x)) x = NewParam(RandomFloat(), {sized(1, 8), sized(1, 6)});
  x = Tame(x, 4);
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const ir::Axis rows = {ir::AxisKind::kIteration, axes[0].extent}, k = {ir::AxisKind::kIteration, axes[1].extent};
  const ir::Axis groups = sized(options_.zero_extents ? 0 : 1, 4), n = sized(1, 5);
  const bool is_outer = op == FusionOp::kGroupedOuter;
  const bool is_turned = !is_outer && Chance(40);
  Item y = NewParam(x.dtype(), is_outer    ? std::vector{rows, n}
                               : is_turned ? std::vector{groups, n, k}
                                           : std::vector{groups, k, n});
  if (is_turned) y = AddExact(Emit("permute", {y.value}, {{"dims", Copy(Ints{0, 2, 1})}}), y.bound, y.error);
  const Item ends = NewIndices({groups});
  const Exprs offset(is_outer ? 4 : 3, graph_->exprs().Const(0));
  ir::Value* const value =
      Emit(is_outer ? "grouped_outer" : "grouped_matmul", {x.value, y.value, ends.value}, {{"offset", Copy(offset)}});
  const auto terms = static_cast<double>(std::max<int64_t>(ShapeOf(x.value)[is_outer ? 0 : 1], 1));
  const double bound = x.bound * y.bound * terms;
  if (!IsFloat(x.dtype())) return void(AddExact(value, bound, 0));
  Add(value, bound, terms * (x.error * y.bound + y.error * x.bound) + terms * Epsilon(ComputeDType(x.dtype())) * bound);
}

}  // namespace hir::testing
