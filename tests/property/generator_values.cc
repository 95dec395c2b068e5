// Steps of the generator that make tensors or numbers of nothing, read and write at indices, and take moments.
#include <algorithm>

#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;

void Generator::Full() {
  const DType dtype = RandomDType();
  Exprs shape;
  for (int64_t rank = rng_.Between(0, 3); rank > 0; --rank) shape.push_back(KnownExtent(8));
  if (!pool_.empty() && Chance(50)) {
    shape.clear();
    for (const ir::Axis& axis : AxesOf(OneOf(pool_).value)) shape.push_back(axis.extent);
  }
  int64_t elements = 1;
  for (const ir::Expr* extent : shape) elements *= *fusion::ValueOf(extent, sizes_);
  if (elements > options_.elements_max) shape = {};
  const double value = dtype == DType::kBool ? 1 : OneOf<double>({0, 1, -3});
  AddExact(Emit("full", {}, {{"shape", Copy(shape)}, {"value", value}, {"dtype", DTypeName(dtype)}}), 3, 0);
}

void Generator::Iota() {
  DType dtype = RandomDType();
  if (dtype == DType::kBool) dtype = DType::kInt32;
  const Exprs shape = {KnownExtent(8)}, offset = {graph_->exprs().Const(0)};
  const bool halves = IsFloat(dtype) && Chance(50);
  const Item start = NewScalar(DType::kInt64, OneOf<double>({-3, 0, 2}));
  const Item step = halves ? NewScalar(DType::kFloat64, OneOf<double>({-0.5, 0.25}))
                           : NewScalar(DType::kInt64, OneOf<double>({-1, 0, 1, 2}));
  AddExact(Emit("iota", {start.value, step.value},
                {{"shape", Copy(shape)}, {"offset", Copy(offset)}, {"dtype", DTypeName(dtype)}}),
           19, 0);
}

void Generator::Sizes(FusionOp op) {
  const Item x = Tame(PickNumber(), 64);
  ir::Value* size = nullptr;
  int64_t value = 0;
  if (op == FusionOp::kExtent || AxesOf(x.value).empty()) {
    const ir::Expr* extent = KnownExtent(8);
    value = *fusion::ValueOf(extent, sizes_);
    size = Emit("extent", {}, {{"value", extent}});
  } else {
    const int64_t axis = rng_.Below(std::ssize(AxesOf(x.value)));
    value = ShapeOf(x.value)[static_cast<size_t>(axis)];
    const int64_t number = axis - (Chance(30) ? std::ssize(AxesOf(x.value)) : 0);
    size = Emit("size", {x.value}, {{"axis", number}});
  }
  const double bound = x.bound + static_cast<double>(value);
  ir::Value* sum = Emit("add", {x.value, size});
  IsFloat(sum->type->dtype) ? Add(sum, bound, x.error) : AddExact(sum, bound, 0);
}

void Generator::Moments(std::string_view name) {
  const Item x = Tame(PickNumber(), 8);
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  Ints axes;
  int64_t count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 || Chance(40)) continue;
    count *= sizes[i];
    axes.push_back(static_cast<int64_t>(i) - (Chance(30) ? std::ssize(sizes) : 0));
  }
  if (axes.empty()) count = ElementsOf(x.value);
  if (count == 0) return Move(FusionOp::kSet);
  std::vector<ir::Attr> attrs = {{"axes", Copy(axes)}, {"keepdim", Chance(30)}};
  if (name == "var") attrs.push_back({"correction", int64_t{count > 1 && Chance(50) ? 1 : 0}});
  ir::Value* value = Emit(name, {x.value}, attrs);
  const auto n = static_cast<double>(count);
  const double unit = n * Epsilon(ComputeDType(value->type->dtype));
  if (name == "mean") {
    Add(value, x.bound, x.error + unit * x.bound);
    return;
  }
  const double deviation = 2 * x.bound, error = 2 * x.error + unit * deviation;
  const double times = name == "var" ? 2 : n;
  Add(value, times * deviation * deviation, times * (2 * deviation * error + unit * deviation * deviation));
}

void Generator::Random(bool uniform) {
  const DType dtype = RandomFloat();
  Exprs shape;
  for (int64_t rank = rng_.Between(0, 3); rank > 0; --rank) shape.push_back(KnownExtent(8));
  const Item seed = NewScalar(DType::kInt64, static_cast<double>(rng_.Between(-9, 9)));
  const Item offset = NewScalar(DType::kInt32, static_cast<double>(rng_.Between(-9, 9)));
  ir::Value* value = Emit(uniform ? "uniform" : "normal", {seed.value, offset.value},
                          {{"shape", Copy(shape)}, {"dtype", DTypeName(dtype)}});
  if (uniform) {
    AddExact(value, 1, 0);
  } else {
    // Logarithm and cosine are not the same everywhere, times a radius of at most 9.
    Add(value, 9, 64 * Epsilon(ComputeDType(dtype)));
  }
}

void Generator::AnyAll(std::string_view name) {
  const Item x = Pick([](const Item& i) { return i.exact(); }, RandomDType());
  Ints axes;
  const int64_t rank = std::ssize(AxesOf(x.value));
  for (int64_t i = 0; i < rank; ++i) {
    if (Chance(50)) axes.push_back(i - (Chance(30) ? rank : 0));
  }
  AddExact(Emit(name, {x.value}, {{"axes", Copy(axes)}, {"keepdim", Chance(30)}}), 1, 0);
}

Generator::Along Generator::PickAlong() {
  const auto fits = [&](const Item& i) {
    return !AxesOf(i.value).empty() && ElementsOf(i.value) > 0 && ElementsOf(i.value) <= options_.elements_max / 4;
  };
  Item x = Pick(fits, RandomDType());
  if (!fits(x)) x = NewParam(RandomDType(), {{ir::AxisKind::kIteration, ExtentOfSize(3)}});
  const int64_t rank = std::ssize(AxesOf(x.value)), axis = rng_.Below(rank);
  return {x, static_cast<size_t>(axis), axis - (Chance(30) ? rank : 0)};
}

// Indices made of places and numbers of the host; most are no expressions of places.
Item Generator::ComputedIndices(const ir::Expr* count) {
  const Exprs shape = {count}, offset = {graph_->exprs().Const(0)};
  const Item start = NewScalar(DType::kInt64, OneOf<double>({0, 2, 5}));
  const Item step = NewScalar(DType::kInt64, OneOf<double>({-1, 1, 2}));
  ir::Value* const at = Emit("iota", {start.value, step.value},
                             {{"shape", Copy(shape)}, {"offset", Copy(offset)}, {"dtype", DTypeName(DType::kInt64)}});
  const Item end = NewScalar(DType::kInt64, OneOf<double>({1, 2, 3, 4}));
  const auto op = OneOf<std::string_view>({"remainder", "fmod", "bitwise_and", "minimum"});
  return AddExact(Emit(op, {at, end.value}), 19, 0);
}

// Some indices lie outside of x.
void Generator::IndexSelect() {
  const auto [x, axis, number] = PickAlong();
  const bool computed = Chance(40);
  const ir::Expr* count = computed ? KnownExtent(4) : ExtentOfSize(rng_.Between(options_.zero_extents ? 0 : 1, 4));
  const Item y = computed ? ComputedIndices(count) : NewIndices({{ir::AxisKind::kIteration, count}});
  AddExact(Emit("index_select", {x.value, y.value}, {{"axis", number}}), x.bound, x.error);
}

void Generator::Gather() {
  const auto [x, axis, number] = PickAlong();
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  std::vector<ir::Axis> axes = AxesOf(x.value);
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t low = options_.zero_extents && rng_.OneIn(10) ? 0 : 1;
    if (k == axis) axes[k].extent = ExtentOfSize(rng_.Between(low, 4));
    if (k != axis && rng_.OneIn(3)) axes[k].extent = ExtentOfSize(rng_.Between(low, sizes[k]));
    axes[k].kind = ir::AxisKind::kIteration;
  }
  const Item y = NewIndices(axes);
  AddExact(Emit("gather", {x.value, y.value}, {{"axis", number}}), x.bound, x.error);
}

void Generator::IndexSum() {
  const auto fits = [&](const Item& i) { return !AxesOf(i.value).empty() && i.dtype() != DType::kBool; };
  Item x = Pick(fits, RandomFloat());
  if (!fits(x)) x = NewParam(RandomFloat(), {{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 8))}});
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const auto axis = static_cast<size_t>(rng_.Below(std::ssize(axes)));
  const int64_t count = ShapeOf(x.value)[axis];
  const int64_t columns = ElementsOf(x.value) / std::max<int64_t>(count, 1);
  const Item y = NewIndices({{ir::AxisKind::kIteration, axes[axis].extent}});
  const ir::Expr* const size = KnownExtent(options_.elements_max / std::max<int64_t>(columns, 1));
  const int64_t number = static_cast<int64_t>(axis) - (Chance(30) ? std::ssize(axes) : 0);
  ir::Value* const value = Emit("index_sum", {x.value, y.value}, {{"axis", number}, {"size", size}});
  const auto n = static_cast<double>(std::max<int64_t>(count, 1));
  if (!IsFloat(x.dtype())) return void(AddExact(value, x.bound * n, 0));
  Add(value, x.bound * n, n * x.error + n * Epsilon(ComputeDType(x.dtype())) * x.bound * n);
}

void Generator::Scatter() {
  const auto [x, axis, number] = PickAlong();
  std::vector<ir::Axis> axes = AxesOf(x.value);
  for (ir::Axis& a : axes) a.kind = ir::AxisKind::kIteration;
  axes[axis].extent = ExtentOfSize(rng_.Between(1, 4));
  const Item z = NewParam(x.dtype(), axes);
  for (size_t k = 0; k < axes.size(); ++k) {
    if (k != axis && rng_.OneIn(4)) axes[k].extent = graph_->exprs().Const(1);
  }
  const Item y = NewIndices(axes);
  AddExact(Emit("scatter", {x.value, y.value, z.value}, {{"axis", number}}), std::max(x.bound, z.bound), x.error);
}

void Generator::Select() {
  const auto [x, axis, number] = PickAlong();
  const int64_t size = ShapeOf(x.value)[axis];
  const Item y =
      NewScalar(Chance(50) ? DType::kInt32 : DType::kInt64, static_cast<double>(rng_.Between(-size, size - 1)));
  AddExact(Emit("select", {x.value, y.value}, {{"axis", number}}), x.bound, x.error);
}

void Generator::SqueezeExpanded() {
  std::vector<ir::Axis> axes = RandomAxes();
  if (axes.size() > 4) axes.pop_back();
  const auto at = static_cast<size_t>(rng_.Below(std::ssize(axes) + 1));
  axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(at),
              {ir::AxisKind::kBroadcast, ExtentOfSize(rng_.Between(1, 4))});
  const Item x = NewParam(RandomDType(), axes);
  const Ints gone = {static_cast<int64_t>(at) - (Chance(30) ? std::ssize(axes) : 0)};
  AddExact(Emit("squeeze_expanded", {x.value}, {{"axes", Copy(gone)}}), x.bound, x.error);
}

void Generator::Triangle(std::string_view name) {
  const auto fits = [&](const Item& i) { return AxesOf(i.value).size() >= 2; };
  Item x = Pick(fits, RandomDType());
  if (!fits(x)) {
    const ir::Axis axis = {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 5))};
    x = NewParam(RandomDType(), {axis, axis});
  }
  AddExact(Emit(name, {x.value}, {{"diagonal", rng_.Between(-3, 3)}}), x.bound, x.error);
}

// Elements that rounding moves may trade places.
void Generator::PlaceOf(std::string_view name) {
  auto [x, axis, number] = PickAlong();
  if (!x.exact()) x = NewParam(x.dtype(), AxesOf(x.value));
  const auto last = static_cast<double>(ShapeOf(x.value)[axis] - 1);
  AddExact(Emit(name, {x.value}, {{"axis", number}, {"keepdim", Chance(30)}}), last, 0);
}

void Generator::Running(std::string_view name) {
  auto [x, axis, number] = PickAlong();
  const auto n = static_cast<double>(ShapeOf(x.value)[axis]);
  const bool sum = name == "cumsum";
  if (!sum || x.bound * n > 2000) x = Tame(x, 1);
  const double bound = sum ? x.bound * n : 1;
  ir::Value* value = Emit(name, {x.value}, {{"axis", number}, {"dtype", std::string_view("null")}});
  if (!IsFloat(value->type->dtype)) {
    AddExact(value, bound, 0);
    return;
  }
  const double unit = value->type->dtype == DType::kFloat64 ? 0 : Epsilon(DType::kFloat32);
  Add(value, bound, n * (x.error + unit * bound));
}

void Generator::Argsort() {
  auto [x, axis, number] = PickAlong();
  if (!x.exact()) x = NewParam(x.dtype(), AxesOf(x.value));
  const auto last = static_cast<double>(ShapeOf(x.value)[axis] - 1);
  AddExact(Emit("argsort", {x.value}, {{"axis", number}, {"descending", Chance(50)}}), last, 0);
}

void Generator::Flip() {
  const Item x = PickAny();
  Ints axes;
  const int64_t rank = std::ssize(AxesOf(x.value));
  for (int64_t i = 0; i < rank; ++i) {
    if (Chance(50)) axes.push_back(i - (Chance(30) ? rank : 0));
  }
  AddExact(Emit("flip", {x.value}, {{"axes", Copy(axes)}}), x.bound, x.error);
}

void Generator::OneHot() {
  const auto fits = [&](const Item& i) {
    const bool is_int = i.dtype() == DType::kInt32 || i.dtype() == DType::kInt64;
    return is_int && i.exact() && AxesOf(i.value).size() < 5 && ElementsOf(i.value) <= options_.elements_max / 4;
  };
  Item x = Pick(fits, Chance(50) ? DType::kInt32 : DType::kInt64);
  if (!fits(x)) x = NewIndices({{ir::AxisKind::kIteration, ExtentOfSize(3)}});
  const int64_t classes = rng_.Between(options_.zero_extents ? 0 : 1, 4);
  AddExact(Emit("one_hot", {x.value}, {{"classes", classes}, {"dtype", DTypeName(RandomDType())}}), 1, 0);
}

}  // namespace hir::testing
