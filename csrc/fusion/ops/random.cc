// uniform, normal: random numbers that depend on seed, offset and place alone, so that they are the same on every
// backend, however they are split. One set of formulas makes elements (S of formula.h) and ops (V).
#include <numbers>

#include "csrc/base/text.h"
#include "csrc/fusion/formula.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/ops/philox.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

// A value of a graph, a host scalar or a tensor, under the operators of formula.h.
struct V {
  ir::Builder* builder = nullptr;
  ir::Value* value = nullptr;
};
V Made(std::string_view op, const V& x) { return {x.builder, x.builder->Make(op, {x.value})}; }
V Made(std::string_view op, const V& x, const V& y) { return {x.builder, x.builder->Make(op, {x.value, y.value})}; }
V Number(const V& like, double value) {
  const std::string_view dtype = DTypeName(like.value->type->dtype);
  return {like.builder, like.builder->Make("constant", {}, {{"value", value}, {"dtype", dtype}})};
}
V operator+(const V& x, const V& y) { return Made("add", x, y); }
V operator*(const V& x, const V& y) { return Made("mul", x, y); }
V operator&(const V& x, const V& y) { return Made("bitwise_and", x, y); }
V operator|(const V& x, const V& y) { return Made("bitwise_or", x, y); }
V operator^(const V& x, const V& y) { return Made("bitwise_xor", x, y); }
V operator<<(const V& x, const V& y) { return Made("bitwise_left_shift", x, y); }
V operator>>(const V& x, const V& y) { return Made("bitwise_right_shift", x, y); }
V Log(const V& x) { return Made("log", x); }
V Sqrt(const V& x) { return Made("sqrt", x); }
V Cos(const V& x) { return Made("cos", x); }

S Converted(const S& x, DType dtype) { return {x.builder, x.builder->Convert(dtype, x.e)}; }
V Converted(const V& x, DType dtype) {
  if (x.value->type->dtype == dtype) return x;
  return {x.builder, x.builder->Make("cast", {x.value}, {{"dtype", DTypeName(dtype)}})};
}

// --- formulas ---

template <typename Word>
std::array<Word, 4> Words(const Word& place, const Word& seed, const Word& offset) {
  return Philox<Word>({Low32(place), High32(place), Low32(offset), High32(offset)}, {Low32(seed), High32(seed)});
}

// The significant bits of a number below 1.
int Precision(DType dtype) {
  if (dtype == DType::kBFloat16) return 8;
  if (dtype == DType::kFloat16) return 11;
  return dtype == DType::kFloat32 ? 24 : 53;
}

// A multiple of 2^-precision below 1: as many bits as the type has, so that nothing is rounded, to 1 at worst.
template <typename Word>
Word UniformOf(const std::array<Word, 4>& words, size_t first, DType dtype) {
  const int bits = Precision(dtype);
  const Word number = Converted(HighestBits(words, first, bits), ComputeDType(dtype));
  return number * Number(number, std::ldexp(1.0, -bits));
}

// Box and Muller's: of two uniform numbers, the first in (0, 1], so that its logarithm is finite.
template <typename Word>
Word NormalOf(const std::array<Word, 4>& words, DType carried) {
  const Word below = UniformOf(words, 0, carried);
  const Word first = below + Number(below, std::ldexp(1.0, -Precision(carried)));
  const Word second = UniformOf(words, carried == DType::kFloat64 ? 2 : 1, carried);
  const Word radius = Sqrt(Number(first, -2) * Log(first));
  return radius * Cos(Number(second, 2 * std::numbers::pi) * second);
}

template <typename Word>
Word UniformFrom(const Word& place, const Word& seed, const Word& offset, DType dtype) {
  return Converted(UniformOf(Words(place, seed, offset), 0, dtype), dtype);
}
template <typename Word>
Word NormalFrom(const Word& place, const Word& seed, const Word& offset, DType dtype) {
  return Converted(NormalOf(Words(place, seed, offset), ComputeDType(dtype)), dtype);
}

// --- the ops ---

Status InferRandom(ir::Graph& graph, ir::Op& op) {
  for (const ir::Value* operand : op.operands) {
    if (operand->type->kind == ir::TypeKind::kTensor || !IsIndex(operand->type->dtype)) {
      return InvalidArgument(Cat("%", operand->name, " is ", ir::ToString(*operand->type),
                                 "; seed and offset are host scalars of i32 or i64"));
    }
  }
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  if (!IsFloat(dtype))
    return InvalidArgument(Cat("dtype=", DTypeName(dtype), ": random numbers are floats; cast them"));
  HIR_TRY(RequireExtents(graph, op, op.Exprs("shape")));
  std::vector<ir::Axis> axes;
  for (const ir::Expr* extent : op.Exprs("shape")) axes.push_back({ir::AxisKind::kIteration, extent});
  return SetTensor(graph, op, dtype, axes);
}

// How many elements there are for one step along each axis.
std::vector<const ir::Expr*> Strides(ir::ExprPool& pool, const ir::Op& op) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.results[0]->type);
  std::vector<const ir::Expr*> strides(axes.size(), pool.Const(1));
  for (size_t k = axes.size(); k-- > 1;) strides[k - 1] = pool.Mul(strides[k], axes[k].extent);
  return strides;
}

// The number of an element of the whole tensor, in row-major order: the sum of a sequence along each axis, so that a
// rank makes its own part whatever is split.
V Place(ir::Builder& builder, const ir::Op& op) {
  const std::string name(op.results[0]->name);
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.results[0]->type);
  const std::vector<const ir::Expr*> strides = Strides(builder.graph().exprs(), op);
  V place;
  for (size_t k = 0; k < axes.size(); ++k) {
    V along = {&builder, SequenceAlong(builder, axes[k].extent, k, axes.size(), Cat(name, ".along"))};
    if (!strides[k]->IsConst(1))
      along = along * V{&builder, builder.Make("extent", {}, {{"value", strides[k]}}, Cat(name, ".stride"))};
    place = k == 0 ? along : place + along;
  }
  if (!axes.empty()) return place;
  return {&builder,
          builder.Make(
              "full", {},
              {{"shape", std::span<const ir::Expr* const>()}, {"value", 0.0}, {"dtype", std::string_view("i64")}})};
}

using OfElements = S (*)(const S&, const S&, const S&, DType);
const Element* DefineRandom(ElementBuilder& builder, const ir::Op& op, Index index, OfElements of) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.results[0]->type);
  const Element* place = builder.Int(DType::kInt64, 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    const Element* before = builder.Apply(Prim::kMul, {place, builder.Extent(axes[k].extent)});
    place = builder.Apply(Prim::kAdd, {before, index[k]});
  }
  const auto scalar = [&](int i) {
    const Element* value = builder.Scalar(op.operands[static_cast<size_t>(i)]);
    return S{&builder, builder.Convert(DType::kInt64, value)};
  };
  return of({&builder, place}, scalar(0), scalar(1), op.results[0]->type->dtype).e;
}

using OfValues = V (*)(const V&, const V&, const V&, DType);
ir::Value* DecomposeRandom(ir::Builder& builder, const ir::Op& op, OfValues of) {
  const V seed = Converted(V{&builder, op.operands[0]}, DType::kInt64);
  const V offset = Converted(V{&builder, op.operands[1]}, DType::kInt64);
  return of(Place(builder, op), seed, offset, op.results[0]->type->dtype).value;
}

}  // namespace

#define RANDOM(Name)                                                                    \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {  \
    return InferRandom(graph, op);                                                      \
  }                                                                                     \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index) { \
    return DefineRandom(builder, op, index, Name##From<S>);                             \
  }                                                                                     \
  ir::Value* Decompose##Name(ir::Builder& builder, const ir::Op& op) {                  \
    return DecomposeRandom(builder, op, Name##From<V>);                                 \
  }
RANDOM(Uniform)
RANDOM(Normal)
#undef RANDOM

}  // namespace hir::fusion
