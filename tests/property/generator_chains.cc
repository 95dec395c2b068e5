// Steps of the generator that make several readers of what is cheap to make again, on both sides of a boundary between
// segments; and outputs that take over an input's memory.
#include <algorithm>
#include <numeric>
#include <span>

#include "csrc/fusion/passes/placement.h"
#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;

// One op that costs nothing.
Item Generator::Cheap(Item x) {
  x = AsNumber(x);
  switch (rng_.Below(x.bound <= 1024 ? 4 : 3)) {
    case 0: return AddExact(Emit("neg", {x.value}), x.bound, x.error);
    case 1: return AddExact(Emit("abs", {x.value}), x.bound, x.error);
    case 2: {
      const Item y = AddExact(Emit("neg", {x.value}), x.bound, x.error);
      return AddExact(Emit("maximum", {x.value, y.value}), x.bound, x.error);
    }
    default: break;
  }
  ir::Value* sum = Emit("add", {x.value, x.value});
  return IsFloat(x.dtype()) ? Add(sum, 2 * x.bound, 2 * x.error) : AddExact(sum, 2 * x.bound, 0);
}

// A sequence, cast and changed element by element.
Item Generator::IotaChain() {
  Iota();
  Item x = pool_.back();
  if (Chance(60)) {
    const DType dtype = OneOf<DType>({DType::kFloat32, DType::kFloat64, DType::kInt64});
    if (IsFloat(dtype) || !IsFloat(x.dtype()))
      x = AddExact(Emit("cast", {x.value}, {{"dtype", DTypeName(dtype)}}), x.bound, x.error);
  }
  for (int64_t more = rng_.Between(0, 2); more > 0; --more) x = Cheap(x);
  return x;
}

// An input seen otherwise.
Item Generator::ViewOfInput() {
  const Item x = NewParam(RandomDType(), RandomAxes());
  const size_t rank = AxesOf(x.value).size();
  if (rank >= 2 && Chance(60)) {
    Ints dims(rank);
    std::iota(dims.begin(), dims.end(), 0);
    std::rotate(dims.begin(), dims.begin() + rng_.Between(1, static_cast<int64_t>(rank) - 1), dims.end());
    return AddExact(Emit("permute", {x.value}, {{"dims", Copy(dims)}}), x.bound, 0);
  }
  if (rank < 5) {
    Ints flags(rank, 0);
    flags.insert(flags.begin() + rng_.Between(0, static_cast<int64_t>(rank)), 1);
    return AddExact(Emit("broadcast", {x.value}, {{"is_broadcast_dim", Copy(flags)}}), x.bound, 0);
  }
  return AddExact(Emit("set", {x.value}), x.bound, 0);
}

// Something cheap is read in front of a boundary and behind it: it crosses, or is made again.
//
//   c = -x   b = segment_set(max(c, -c))   d = max(b, c)
void Generator::AcrossABoundary() {
  const int64_t way = rng_.Below(5);
  Item x = way == 0 ? IotaChain() : way == 1 ? ViewOfInput() : PickAny();
  Item c = Cheap(x);
  for (int64_t more = rng_.Between(0, 2); more > 0; --more) c = Cheap(c);
  const Item front = Chance(50) ? Cheap(c) : c;
  const Item b = AddExact(Emit("segment_set", {front.value}), front.bound, front.error);
  if (rng_.OneIn(4)) Reduce("sum");  // Of anything: so that the two lie further apart.
  const double bound = std::max(b.bound, c.bound), error = std::max(b.error, c.error);
  AddExact(Emit(Chance(50) ? "maximum" : "minimum", {b.value, c.value}), bound, error);
}

// A normalization in groups: what a reduction along some axes makes is joined along others, and computed with.
//
//   s = max(x) along some axes   y = minimum(x, s)   j = reshape(y), two axes or more joined   z = maximum(j, param)
void Generator::JoinedGroups() {
  const int64_t rank = rng_.Between(3, 5);
  std::vector<ir::Axis> axes;
  for (int64_t i = 0; i < rank; ++i)
    axes.push_back(
        {ir::AxisKind::kIteration, rng_.OneIn(8) ? graph_->exprs().Const(1) : ExtentOfSize(rng_.Between(1, 5))});
  const Item x = Cheap(NewParam(RandomDType(), axes));
  Ints reduced;
  for (int64_t i = 0; i < rank; ++i) {
    if (Chance(50)) reduced.push_back(i);
  }
  if (reduced.empty()) reduced.push_back(rank - 1);
  ir::Value* const top = Emit("max", {x.value}, {{"axes", Copy(reduced)}, {"keepdim", true}, {"dtype", "null"}});
  const Item s = x.exact() ? AddExact(top, x.bound, 0) : Add(top, x.bound, x.error);
  Item y = AddExact(Emit(Chance(50) ? "minimum" : "maximum", {x.value, s.value}), x.bound, x.error);
  if (Chance(30)) y = Cheap(y);
  const std::vector<ir::Axis> own = AxesOf(y.value);
  const int64_t from = rng_.Between(0, rank - 2), to = rng_.Between(from + 1, rank - 1);
  Exprs shape;
  for (int64_t i = 0; i < rank; ++i) {
    const ir::Expr* const extent = own[static_cast<size_t>(i)].extent;
    if (i <= from || i > to) {
      shape.push_back(extent);
    } else {
      shape.back() = graph_->exprs().Mul(shape.back(), extent);
    }
  }
  Item joined = AddExact(Emit("reshape", {y.value}, {{"shape", Copy(shape)}}), y.bound, y.error);
  for (int64_t more = rng_.Between(0, 3); more > 0; --more) {
    if (Chance(40)) {
      joined = Cheap(joined);
      continue;
    }
    std::vector<ir::Axis> other = AxesOf(joined.value);
    for (ir::Axis& axis : other) {
      if (Chance(40)) axis = {ir::AxisKind::kBroadcast, graph_->exprs().Const(1)};
    }
    const Item z = rng_.OneIn(4) ? joined : NewParam(joined.dtype(), other);
    joined = AddExact(Emit(Chance(50) ? "minimum" : "maximum", {joined.value, z.value}),
                      std::max(joined.bound, z.bound), std::max(joined.error, z.error));
  }
}

// A product around which axes change places, and values that are written under several shapes. Rows, or columns, are
// several axes that were joined, or come apart again.
//
//   b = permute(x), reshape(b): [lead, rows, columns]   c = b y   d = reshape(c): [lead, rows..., n]   e = permute(d)
void Generator::ProductOfTurnedAxes() {
  const int64_t rank = rng_.Between(2, 4);
  std::vector<ir::Axis> axes;
  for (int64_t i = 0; i < rank; ++i)
    axes.push_back({rng_.OneIn(12) ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration,
                    rng_.OneIn(8) ? graph_->exprs().Const(1) : ExtentOfSize(rng_.Between(1, 5))});
  const DType dtype = rng_.OneIn(8) ? DType::kInt32 : RandomFloat();
  Item x = Tame(NewParam(dtype, axes), 4);
  if (Chance(60)) x = Cheap(x);
  x = Tame(x, 4);
  const auto turned = [&](const Item& item, int64_t from) {  // Axes before `from` stay, mostly.
    const auto count = std::ssize(AxesOf(item.value));
    Ints dims(static_cast<size_t>(count));
    std::iota(dims.begin(), dims.end(), 0);
    if (Chance(70)) {
      std::rotate(dims.begin() + from, dims.begin() + rng_.Between(from, count - 1), dims.end());
    } else {
      for (size_t i = dims.size(); i > 1; --i)
        std::swap(dims[i - 1], dims[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
    }
    return AddExact(Emit("permute", {item.value}, {{"dims", Copy(dims)}}), item.bound, item.error);
  };
  const auto reshaped = [&](const Item& item, const Exprs& shape) {
    return AddExact(Emit("reshape", {item.value}, {{"shape", Copy(shape)}}), item.bound, item.error);
  };
  const auto joined = [&](std::span<const ir::Axis> some) {
    const ir::Expr* elements = graph_->exprs().Const(1);
    for (const ir::Axis& axis : some) elements = graph_->exprs().Mul(elements, axis.extent);
    return elements;
  };
  const int64_t rows_at = rng_.Between(0, rank - 2), columns_at = rng_.Between(rows_at + 1, rank - 1);
  const Item b = Chance(80) ? turned(x, rows_at) : x;
  const std::vector<ir::Axis> own = AxesOf(b.value);
  const std::span<const ir::Axis> all = own;
  const auto rows = static_cast<size_t>(rows_at), columns = static_cast<size_t>(columns_at);
  Exprs shape;
  if (rows > 0) shape.push_back(joined(all.first(rows)));
  shape.push_back(joined(all.subspan(rows, columns - rows)));
  shape.push_back(joined(all.subspan(columns)));
  const Item matrix = reshaped(b, shape);
  const ir::Axis inner = {ir::AxisKind::kIteration, shape.back()};
  const ir::Axis outer = {ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, 5))};
  const int64_t length = ShapeOf(matrix.value).back();
  Item c;
  if (Chance(60)) {
    c = Contract("matmul", {matrix, NewParam(matrix.dtype(), {inner, outer})}, length);
  } else if (Chance(50)) {
    c = Contract("linear", {matrix, NewParam(matrix.dtype(), {outer, inner})}, length);
  } else {  // Its own transpose, or what is written a second time.
    Exprs flat = {shape.front(), shape.back()};
    if (rows > 0) flat[0] = graph_->exprs().Mul(shape[0], shape[1]);
    const Item again = reshaped(b, flat);
    c = Contract("linear", {again, again}, length);
  }
  if (Chance(30)) return;
  if (AxesOf(c.value).size() == shape.size() && Chance(60)) {  // Rows come apart.
    const std::vector<ir::Axis> of_product = AxesOf(c.value);
    Exprs apart;
    const bool fits = ir::Equal(of_product[of_product.size() - 2].extent, shape[shape.size() - 2]);
    if (rows > 0) apart.push_back(of_product[0].extent);
    for (size_t i = rows; fits && i < columns; ++i) apart.push_back(own[i].extent);
    if (!fits) apart.push_back(of_product[of_product.size() - 2].extent);
    apart.push_back(of_product.back().extent);
    c = reshaped(c, apart);
  }
  c = turned(c, rows > 0 ? 1 : 0);
  if (Chance(60)) return;
  c = Tame(c, 4);
  Contract("matmul", {c, NewParam(c.dtype(), {AxesOf(c.value).back(), outer})}, ShapeOf(c.value).back());
}

// Sums over ranks that are added up, and then perhaps along what is left: one communication does for all of them.
//
//   a = sum(x, split axis)   b = sum(y, that axis)   c = a + b   d = sum(c, another axis)
void Generator::SumsOverRanks() {
  constexpr int64_t kMost = 12;  // Of elements that are added up.
  std::vector<ir::Axis> axes;
  for (int64_t i = rng_.Between(2, 3); i > 0; --i)
    axes.push_back({ir::AxisKind::kIteration, ExtentOfSize(rng_.Between(1, kMost))});
  const int64_t split = rng_.Below(std::ssize(axes));
  const DType dtype = Chance(70) ? DType::kFloat32 : RandomDType();
  const bool keepdim = Chance(30);
  const auto sum = [&](const Item& x, int64_t axis, bool keeps) {
    const Ints along = {axis};
    ir::Value* const value =
        Emit("sum", {x.value}, {{"axes", Copy(along)}, {"keepdim", keeps}, {"dtype", std::string_view("null")}});
    if (!IsFloat(value->type->dtype)) return AddExact(value, x.bound * kMost, 0);
    const double bound = x.bound * kMost;
    return Add(value, bound, x.error * kMost + bound * kMost * Epsilon(x.dtype()));
  };
  const auto splits_at = [&](const Item& x, size_t axis) {
    const int64_t extent = ShapeOf(x.value)[axis];
    const bool divides = extent > 0 && extent % mesh_->mesh.Size(mesh::ParallelType::kMeshX) == 0;
    std::vector<fusion::Types> splits(AxesOf(x.value).size());
    if (options_.uneven || divides) splits[axis].push_back(mesh::ParallelType::kMeshX);
    x.value->layout = fusion::LayoutFor(*graph_, *x.value->type, fusion::FromValueTypes(*x.value->type, mesh_, splits));
  };
  std::vector<Item> sums;
  const int64_t count = rng_.Between(1, 4);
  const bool scattered = Chance(50);  // Each rank wants a part, of another axis.
  const auto wanted = static_cast<size_t>(split == 0 && keepdim ? 1 : 0);
  for (int64_t i = 0; i < count; ++i) {
    const Item x = NewParam(dtype, axes);
    splits_at(x, static_cast<size_t>(split));
    sums.push_back(sum(x, split, keepdim));
    if (scattered) splits_at(sums.back(), wanted);
  }
  while (sums.size() > 1) {  // In any order; some are read again.
    const Item a = sums[0], b = sums[1];
    sums.erase(sums.begin(), sums.begin() + 2);
    ir::Value* const added = Emit("add", {a.value, b.value});
    const double bound = a.bound + b.bound, error = a.error + b.error;
    sums.insert(sums.begin() + rng_.Below(std::ssize(sums) + 1),
                IsFloat(a.dtype()) ? Add(added, bound, error) : AddExact(added, bound, 0));
  }
  const size_t left = AxesOf(sums[0].value).size();
  if (left > 0 && Chance(60)) sum(sums[0], rng_.Below(static_cast<int64_t>(left)), Chance(30));
}

// An input whose memory the output `value` may take over: one of the program's own, or a new one; null: none fits.
ir::Value* Generator::InputForOutput(const ir::Value* value) {
  const std::vector<ir::Axis> axes = AxesOf(value);
  const auto taken = [&](const ir::Value* param) {
    return std::ranges::any_of(
        graph_->outputs, [&](const ir::Output& output) { return output.alias == param || output.value == param; });
  };
  const auto is_like = [&](const ir::Value* param) {
    if (param->type->kind != ir::TypeKind::kTensor || param->type->dtype != value->type->dtype) return false;
    const bool one_layout = param->layout == nullptr || value->layout == nullptr;
    return one_layout && std::ranges::equal(AxesOf(param), axes, [](const auto& a, const auto& b) {
             return a.kind == ir::AxisKind::kIteration && b.kind == ir::AxisKind::kIteration &&
                    ir::Equal(a.extent, b.extent);
           });
  };
  for (ir::Value* param : graph_->params) {
    if (is_like(param) && !taken(param) && Chance(70)) return param;
  }
  const bool plain = std::ranges::all_of(axes, [](const ir::Axis& axis) {
    return axis.kind == ir::AxisKind::kIteration &&
           (axis.extent->kind == ir::ExprKind::kConst || axis.extent->kind == ir::ExprKind::kSymbol);
  });
  if (!plain) return nullptr;
  ir::Value* param = NewParam(value->type->dtype, axes).value;
  return is_like(param) ? param : nullptr;
}

namespace {

bool IsViewOp(FusionOp op) {
  return op == FusionOp::kPermute || op == FusionOp::kReshape || op == FusionOp::kSlice || op == FusionOp::kBroadcast ||
         op == FusionOp::kSqueeze || op == FusionOp::kExpand;
}

}  // namespace

std::map<std::string, int64_t> FeaturesOf(const ir::Graph& graph) {
  std::map<std::string, int64_t> features;
  const std::vector<std::vector<ir::Op*>> uses = ir::UsesOf(graph);
  const auto readers = [&](const ir::Value* value) -> const std::vector<ir::Op*>& {
    return uses[static_cast<size_t>(value->id)];
  };
  int64_t ops = 0;
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    ++ops;
    const FusionOp code = fusion::CodeOf(*op);
    const ir::Value* result = op->results[0];
    if (code == FusionOp::kSegmentSet) ++features["segment_set"];
    const bool of_input = !op->operands.empty() && op->operands[0]->def == nullptr;
    if (IsViewOp(code) && of_input && readers(result).size() > 1) ++features["view of an input, read twice"];
    if (code != FusionOp::kIota) return;
    const bool chain = std::ranges::any_of(readers(result), [&](const ir::Op* reader) {
      return fusion::IsPointwise(fusion::CodeOf(*reader)) || fusion::CodeOf(*reader) == FusionOp::kCast;
    });
    if (chain) ++features["iota chain"];
  });
  int64_t read_outputs = 0;
  for (const ir::Output& output : graph.outputs) {
    if (output.alias != nullptr) ++features["output that takes over an input"];
    read_outputs += output.value->def != nullptr && !readers(output.value).empty() ? 1 : 0;
  }
  if (read_outputs > 1) ++features["several outputs that are also read"];
  ++features[ops <= 10 ? "3 to 10 ops" : ops <= 50 ? "11 to 50 ops" : "51 and more ops"];
  return features;
}

}  // namespace hir::testing
