// Steps of the generator that move elements, make tensors, reduce and contract.
#include <algorithm>
#include <numeric>

#include "csrc/fusion/promote.h"
#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;

void Generator::Move(FusionOp op) {
  if (op == FusionOp::kBroadcast) return Broadcast();
  if (op == FusionOp::kBroadcastInDim) return BroadcastInDim();
  if (op == FusionOp::kExpand) return Expand();
  if (op == FusionOp::kSqueeze) return Squeeze();
  if (op == FusionOp::kReshape) return Reshape();
  if (op == FusionOp::kPermute) return Permute();
  if (op == FusionOp::kSlice) return Slice();
  if (op == FusionOp::kPad) return Pad();
  if (op == FusionOp::kCat) return Cat();
  if (op == FusionOp::kTakeAlongAxis) return TakeAlongAxis();
  if (op == FusionOp::kGather) return Gather();
  if (op == FusionOp::kIndexSelect) return IndexSelect();
  if (op == FusionOp::kIndexSum) return IndexSum();
  if (op == FusionOp::kScatter) return Scatter();
  if (op == FusionOp::kSelect) return Select();
  if (op == FusionOp::kSqueezeExpanded) return SqueezeExpanded();
  if (op == FusionOp::kTriu || op == FusionOp::kTril) return Triangle(op == FusionOp::kTriu ? "triu" : "tril");
  if (op == FusionOp::kArgmax || op == FusionOp::kArgmin) return PlaceOf(op == FusionOp::kArgmax ? "argmax" : "argmin");
  if (op == FusionOp::kCumsum || op == FusionOp::kCumprod)
    return Running(op == FusionOp::kCumsum ? "cumsum" : "cumprod");
  if (op == FusionOp::kArgsort) return Argsort();
  if (op == FusionOp::kFlip) return Flip();
  if (op == FusionOp::kOneHot) return OneHot();
  HIR_CHECK(op == FusionOp::kSet || op == FusionOp::kSegmentSet);
  const Item x = PickAny();
  AddExact(Emit(op == FusionOp::kSet ? "set" : "segment_set", {x.value}), x.bound, x.error);
}

void Generator::Broadcast() {
  const Item x = Pick([&](const Item& i) { return AxesOf(i.value).size() < 5; }, RandomDType());
  const size_t rank = AxesOf(x.value).size();
  Ints flags(rank, 0);
  if (rank < 5) {
    const int64_t more = rng_.Between(1, 5 - static_cast<int64_t>(rank));
    for (int64_t i = 0; i < more; ++i) flags.insert(flags.begin() + rng_.Below(std::ssize(flags) + 1), 1);
  }
  AddExact(Emit("broadcast", {x.value}, {{"is_broadcast_dim", Copy(flags)}}), x.bound, x.error);
}

void Generator::BroadcastInDim() {
  const Item x = PickAny();
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  int64_t elements = std::max<int64_t>(ElementsOf(x.value), 1);
  Exprs shape;
  Ints dims;
  const auto widen = [&]() -> const ir::Expr* {
    const ir::Expr* extent = KnownExtent(options_.elements_max / elements);
    elements *= std::max<int64_t>(*fusion::ValueOf(extent, sizes_), 1);
    return extent;
  };
  for (const ir::Axis& axis : axes) {
    while (shape.size() + axes.size() - dims.size() < 5 && rng_.OneIn(3)) shape.push_back(widen());
    dims.push_back(std::ssize(shape));
    shape.push_back(axis.extent->IsConst(1) && Chance(70) ? widen() : axis.extent);
  }
  if (shape.size() < 5 && rng_.OneIn(3)) shape.push_back(widen());
  AddExact(Emit("broadcast_in_dim", {x.value}, {{"shape", Copy(shape)}, {"dims", Copy(dims)}}), x.bound, x.error);
}

void Generator::Expand() {
  const auto has_one = [&](const Item& i) {
    return std::ranges::any_of(AxesOf(i.value), [](const ir::Axis& a) { return a.extent->IsConst(1); });
  };
  const Item x = Pick(has_one, RandomDType());
  int64_t elements = std::max<int64_t>(ElementsOf(x.value), 1);
  Exprs shape;
  for (const ir::Axis& axis : AxesOf(x.value)) {
    const ir::Expr* extent = Chance(50) ? graph_->exprs().Const(-1) : axis.extent;
    if (axis.extent->IsConst(1) && Chance(80)) {
      extent = KnownExtent(options_.elements_max / elements);
      elements *= std::max<int64_t>(*fusion::ValueOf(extent, sizes_), 1);
    }
    shape.push_back(extent);
  }
  AddExact(Emit("expand", {x.value}, {{"shape", Copy(shape)}}), x.bound, x.error);
}

void Generator::Squeeze() {
  const auto has_one = [&](const Item& i) {
    return std::ranges::any_of(AxesOf(i.value), [](const ir::Axis& a) { return a.extent->IsConst(1); });
  };
  const Item x = Pick(has_one, RandomDType());
  Ints axes;
  const std::vector<ir::Axis> own = AxesOf(x.value);
  for (size_t i = 0; i < own.size(); ++i) {
    const bool negative = Chance(30);
    if (own[i].extent->IsConst(1) && Chance(80))
      axes.push_back(static_cast<int64_t>(i) - (negative ? std::ssize(own) : 0));
  }
  AddExact(Emit("squeeze", {x.value}, {{"axes", Copy(axes)}}), x.bound, x.error);
}

// Walks over the axes: keeps one, merges it with the next, splits it, or puts an axis of extent 1 before it.
void Generator::Reshape() {
  const Item x = PickAny();
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  Exprs shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t left = axes.size() - i;
    if (shape.size() + left < 5 && rng_.OneIn(6)) shape.push_back(graph_->exprs().Const(1));
    if (axes[i].extent->IsConst(1) && rng_.OneIn(3)) continue;
    if (left > 1 && rng_.OneIn(3)) {
      shape.push_back(graph_->exprs().Mul(axes[i].extent, axes[i + 1].extent));
      ++i;
      continue;
    }
    Ints divisors;
    for (int64_t d = 2; axes[i].extent->IsConst() && d < sizes[i]; ++d) {
      if (sizes[i] % d == 0) divisors.push_back(d);
    }
    if (!divisors.empty() && shape.size() + left < 5 && Chance(60)) {
      const int64_t d = OneOf(divisors);
      shape.push_back(graph_->exprs().Const(d));
      shape.push_back(graph_->exprs().Const(sizes[i] / d));
      continue;
    }
    shape.push_back(axes[i].extent);
  }
  // All of it in other words: two axes, which cannot be matched with the old ones; a guard when there are symbols.
  if (rng_.OneIn(8)) {
    const int64_t count = ElementsOf(x.value);
    const int64_t d = count % 3 == 0 ? 3 : count % 2 == 0 ? 2 : 1;
    shape = {graph_->exprs().Const(count / d), graph_->exprs().Const(d)};
  }
  // With no element at all, or another extent 0 beside it, -1 could be anything.
  if (!shape.empty() && ElementsOf(x.value) > 0 && rng_.OneIn(3)) {
    shape[static_cast<size_t>(rng_.Below(std::ssize(shape)))] = graph_->exprs().Const(-1);
  }
  AddExact(Emit("reshape", {x.value}, {{"shape", Copy(shape)}}), x.bound, x.error);
}

void Generator::Permute() {
  const Item x = Pick([&](const Item& i) { return AxesOf(i.value).size() > 1; }, RandomDType());
  Ints dims(AxesOf(x.value).size());
  std::iota(dims.begin(), dims.end(), 0);
  for (size_t i = dims.size(); i > 1; --i)
    std::swap(dims[i - 1], dims[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
  if (!dims.empty() && rng_.OneIn(3)) dims[0] -= std::ssize(dims);
  AddExact(Emit("permute", {x.value}, {{"dims", Copy(dims)}}), x.bound, x.error);
}

void Generator::Slice() {
  const Item x = PickAny();
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  Exprs start, end;
  Ints strides;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t from = Chance(40) ? 0 : rng_.Between(0, sizes[i]);
    const int64_t to = Chance(40) ? sizes[i] : rng_.Between(from, sizes[i]);
    ir::ExprPool& pool = graph_->exprs();
    start.push_back(pool.Const(from));
    // The end as a number, from the end, beyond it, or as the extent itself.
    const int64_t way = rng_.Below(4);
    const bool whole = to == sizes[i];
    end.push_back(whole && way == 0   ? axes[i].extent
                  : whole && way == 1 ? pool.Const(INT64_MAX)
                  : !whole && way < 2 ? pool.Const(to - sizes[i])
                                      : pool.Const(to));
    strides.push_back(rng_.OneIn(3) ? rng_.Between(1, 3) : 1);
  }
  if (rng_.OneIn(3)) strides.clear();
  AddExact(Emit("slice", {x.value}, {{"start", Copy(start)}, {"end", Copy(end)}, {"strides", Copy(strides)}}), x.bound,
           x.error);
}

void Generator::Pad() {
  const Item x = Pick([&](const Item& i) { return ElementsOf(i.value) <= options_.elements_max / 4; }, RandomDType());
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  Ints widths;
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= std::max<int64_t>(size, 1);
  for (size_t i = sizes.size(); i-- > 0 && Chance(80);) {
    const int64_t low = sizes[i] >= 2 && rng_.OneIn(5) ? -1 : 0;
    const bool room = elements * (sizes[i] + 4) / std::max<int64_t>(sizes[i], 1) <= options_.elements_max;
    for (int k = 0; k < 2; ++k) widths.push_back(room ? rng_.Between(low, 2) : 0);
    if (room) elements = elements * (sizes[i] + 4) / std::max<int64_t>(sizes[i], 1);
  }
  const double value = x.dtype() == DType::kBool ? 1 : OneOf<double>({0, 0, 1, -2});
  ir::Value* padded = Emit("pad", {x.value}, {{"widths", Copy(widths)}, {"value", value}});
  AddExact(padded, std::max(x.bound, 2.0), x.error);
}

void Generator::Cat() {
  const auto fits = [&](const Item& i) {
    return !AxesOf(i.value).empty() && ElementsOf(i.value) <= options_.elements_max / 3;
  };
  Item x = Pick(fits, RandomDType());
  if (!fits(x)) x = NewParam(RandomDType(), {{ir::AxisKind::kIteration, ExtentOfSize(3)}});
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const auto axis = static_cast<size_t>(rng_.Below(std::ssize(axes)));
  std::vector<ir::Value*> pieces = {x.value};
  double bound = x.bound, error = x.error;
  for (int64_t more = rng_.Between(0, 2); more > 0; --more) {
    Item y = x;
    if (Chance(70)) {
      std::vector<ir::Axis> other = axes;
      for (ir::Axis& a : other) {
        if (a.kind == ir::AxisKind::kBroadcast && Chance(50)) a.kind = ir::AxisKind::kIteration;
      }
      other[axis] = {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(options_.zero_extents ? 0 : 1, 3))};
      const DType dtype = Chance(70) ? x.dtype() : RandomDType();
      const bool promotes = std::ranges::all_of(
          pieces, [&](const ir::Value* piece) { return fusion::PromoteTensors(piece->type->dtype, dtype).ok(); });
      y = NewParam(promotes ? dtype : x.dtype(), other);
    }
    pieces.insert(pieces.begin() + rng_.Below(std::ssize(pieces) + 1), y.value);
    bound = std::max(bound, y.bound);
    error = std::max(error, y.error);
  }
  const int64_t number = static_cast<int64_t>(axis) - (Chance(30) ? std::ssize(axes) : 0);
  ir::Value* value = Emit("cat", pieces, {{"axis", number}});
  error == 0 ? AddExact(value, bound, 0) : Add(value, bound, error);
}

// Indices come from the program or from an input; some lie outside of x.
void Generator::TakeAlongAxis() {
  const auto fits = [&](const Item& i) {
    const std::vector<int64_t> sizes = ShapeOf(i.value);
    return !sizes.empty() && ElementsOf(i.value) > 0 && ElementsOf(i.value) <= options_.elements_max / 4;
  };
  Item x = Pick(fits, RandomDType());
  if (!fits(x)) x = NewParam(RandomDType(), {{ir::AxisKind::kIteration, ExtentOfSize(3)}});
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  const auto axis = static_cast<size_t>(rng_.Below(std::ssize(axes)));
  const int64_t rows = ElementsOf(x.value) / ShapeOf(x.value)[axis];
  const auto indexes = [&](const Item& i) {
    const std::vector<ir::Axis> own = AxesOf(i.value);
    if (i.dtype() != DType::kInt32 && i.dtype() != DType::kInt64) return false;
    if (!i.exact() || own.size() != axes.size()) return false;
    for (size_t k = 0; k < own.size(); ++k) {
      const bool same = ir::Equal(own[k].extent, axes[k].extent);
      if (k != axis && !own[k].extent->IsConst(1) && !same) return false;
    }
    return rows * ShapeOf(i.value)[axis] <= options_.elements_max;
  };
  const DType dtype = Chance(50) ? DType::kInt32 : DType::kInt64;
  Item y = Pick(indexes, dtype);
  if (!indexes(y)) {
    std::vector<ir::Axis> own = axes;
    for (ir::Axis& a : own) {
      if (Chance(25)) a = {ir::AxisKind::kIteration, graph_->exprs().Const(1)};
    }
    own[axis] = {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(options_.zero_extents ? 0 : 1, 4))};
    y = NewParam(dtype, own);
  }
  const int64_t number = static_cast<int64_t>(axis) - (Chance(30) ? std::ssize(axes) : 0);
  AddExact(Emit("take_along_axis", {x.value, y.value}, {{"axis", number}}), x.bound, x.error);
}

void Generator::Reduce(std::string_view name) {
  const bool number = name == "sum" || name == "prod";
  Item x = PickAny();
  const std::vector<int64_t> sizes = ShapeOf(x.value);
  Ints axes;
  int64_t count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool fits = number ? name == "sum" || count * std::max<int64_t>(sizes[i], 1) <= 64 : sizes[i] > 0;
    if (!fits || Chance(40)) continue;
    count *= sizes[i];
    axes.push_back(static_cast<int64_t>(i) - (Chance(30) ? std::ssize(sizes) : 0));
  }
  // No axes mean all axes.
  if (axes.empty()) {
    if (!sizes.empty() && (!number || name == "prod")) return Move(FusionOp::kSet);
    for (const int64_t size : sizes) count *= size;
  }
  const double n = static_cast<double>(std::max<int64_t>(count, 1));
  if (name == "prod" || (name == "sum" && x.bound * n > 2000)) x = Tame(x, name == "prod" ? 1 : std::min(x.bound, 1.0));
  std::string_view dtype = "null";
  if (rng_.OneIn(4)) {
    const DType wanted = x.exact() && Chance(50) ? DType::kInt64 : RandomFloat();
    if (x.bound * n <= 256) dtype = DTypeName(wanted);
  }
  ir::Value* value = Emit(name, {x.value}, {{"axes", Copy(axes)}, {"keepdim", Chance(30)}, {"dtype", dtype}});
  if (!number) {
    x.exact() && dtype == "null" ? AddExact(value, x.bound, 0) : Add(value, x.bound, x.error);
  } else if (!IsFloat(value->type->dtype)) {
    AddExact(value, name == "prod" ? 1 : x.bound * n, 0);
  } else {
    const double from =
        x.error + Epsilon(value->type->dtype) * x.bound;  // The operand may be rounded to the type given.
    const double bound = name == "prod" ? 1 : x.bound * n;
    Add(value, bound, n * from + n * Epsilon(DType::kFloat32) * (value->type->dtype == DType::kFloat64 ? 0 : bound));
  }
}

Item Generator::ViewedParam(DType dtype, const std::vector<ir::Axis>& axes) {
  if (axes.size() < 2 || Chance(50)) return NewParam(dtype, axes);
  Ints dims(axes.size());
  std::iota(dims.begin(), dims.end(), 0);
  for (size_t i = dims.size(); i > 1 && Chance(80); --i)
    std::swap(dims[i - 1], dims[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
  std::vector<ir::Axis> stored(axes.size());
  for (size_t i = 0; i < dims.size(); ++i) stored[static_cast<size_t>(dims[i])] = axes[i];
  Exprs start, end;
  bool sliced = false;
  for (ir::Axis& axis : stored) {
    const int64_t before = Chance(30) ? rng_.Between(1, 2) : 0;
    start.push_back(graph_->exprs().Const(axis.extent->IsConst() ? before : 0));
    end.push_back(axis.extent);
    if (before == 0 || !axis.extent->IsConst()) continue;
    end.back() = graph_->exprs().Const(axis.extent->value + before);
    axis = {ir::AxisKind::kIteration, graph_->exprs().Const(axis.extent->value + 2 * before)};
    sliced = true;
  }
  Item x = NewParam(dtype, stored);
  if (sliced)
    x = AddExact(Emit("slice", {x.value}, {{"start", Copy(start)}, {"end", Copy(end)}, {"strides", Copy(Ints())}}),
                 x.bound, x.error);
  return AddExact(Emit("permute", {x.value}, {{"dims", Copy(dims)}}), x.bound, x.error);
}

Item Generator::Reordered(const Item& x) {
  if (AxesOf(x.value).size() < 2 || Chance(70)) return x;
  Ints dims(AxesOf(x.value).size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[dims.size() - 1 - static_cast<size_t>(rng_.Below(2))], dims[0]);
  return Add(Emit("permute", {x.value}, {{"dims", Copy(dims)}}), x.bound, x.error);
}

Item Generator::Contract(std::string_view name, std::vector<Item> operands, int64_t length) {
  std::vector<ir::Value*> values;
  for (const Item& item : operands) values.push_back(item.value);
  ir::Value* value = Emit(name, values);
  const Item& x = operands[0];
  const Item& y = operands[1];
  const auto n = static_cast<double>(std::max<int64_t>(length, 1));
  const double product = x.bound * y.bound * n + (operands.size() > 2 ? operands[2].bound : 0);
  if (!IsFloat(value->type->dtype)) return AddExact(value, product, 0);
  return Add(value, product,
             n * (x.error * y.bound + y.error * x.bound) + n * Epsilon(ComputeDType(value->type->dtype)) * product);
}

void Generator::Matmul() {
  const auto fits = [&](const Item& i) {
    return !AxesOf(i.value).empty() && i.dtype() != DType::kBool && ElementsOf(i.value) <= 512 &&
           AxesOf(i.value).size() < 5;
  };
  Item x = Pick(fits, RandomFloat());
  if (!fits(x)) {
    x = NewParam(RandomFloat(), {{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 5))},
                                 {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 8))}});
  }
  x = Reordered(Tame(x, 4));
  const std::vector<ir::Axis> axes = AxesOf(x.value);
  std::vector<ir::Axis> other;
  // Leading axes of the right operand: those of the left, some as extent 1, some missing.
  if (axes.size() > 2 && Chance(60)) {
    other.assign(axes.begin() + rng_.Between(0, std::ssize(axes) - 2), axes.end() - 2);
    for (ir::Axis& axis : other) axis = {ir::AxisKind::kIteration, Chance(30) ? graph_->exprs().Const(1) : axis.extent};
  }
  const bool column = other.empty() && rng_.OneIn(5);
  other.push_back({rng_.OneIn(8) ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, axes.back().extent});
  const int64_t length = ShapeOf(x.value).back();
  if (length == 0) other.back().kind = ir::AxisKind::kIteration;
  if (!column) other.push_back({ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 6))});
  const Item y = ViewedParam(x.dtype(), other);
  Reordered(Contract("matmul", {x, y}, length));
}

void Generator::Linear() {
  const auto fits = [&](const Item& i) {
    return !AxesOf(i.value).empty() && i.dtype() != DType::kBool && ElementsOf(i.value) <= 512;
  };
  Item x = Pick(fits, RandomFloat());
  if (!fits(x)) x = NewParam(RandomFloat(), {{ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 8))}});
  x = Reordered(Tame(x, 4));
  const ir::Axis out = {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 6))};
  std::vector<Item> operands = {
      x, ViewedParam(x.dtype(), {out, {ir::AxisKind::kIteration, AxesOf(x.value).back().extent}})};
  if (Chance(50)) operands.push_back(NewParam(x.dtype(), {out}));
  Reordered(Contract("linear", operands, ShapeOf(x.value).back()));
}

}  // namespace hir::testing
