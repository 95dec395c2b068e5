// Steps of the generator that compute element by element.
#include <algorithm>
#include <cmath>
#include <map>

#include "csrc/fusion/promote.h"
#include "tests/property/generator.h"

namespace hir::testing {

using fusion::FusionOp;
using fusion::TypeRule;

namespace {

// How an op of one operand is used so that it is well conditioned.
struct UnaryUse {
  enum Domain {
    kAny,
    kSmall /* |x| <= 2 */,
    kUnit /* |x| <= 1/2 */,
    kPositive /* 1 + |x| */,
    kAboveOne /* 2 + |x| */,
    kNearOne /* 1 + |x| <= 3/2 */,
    kExact
  };
  Domain domain = kAny;
  double slope = 1;      // The steepest there.
  double bound_add = 2;  // The result is at most bound * bound_times + bound_add.
  double bound_times = 0;
  bool moves = false;  // No rounding.
};

const std::map<std::string_view, UnaryUse>& UnaryUses() {
  using U = UnaryUse;
  static const std::map<std::string_view, UnaryUse> uses = {
      {"abs", {U::kAny, 1, 0, 1, true}},
      {"neg", {U::kAny, 1, 0, 1, true}},
      {"relu", {U::kAny, 1, 0, 1, true}},
      {"sin", {U::kAny, 1, 1}},
      {"cos", {U::kAny, 1, 1}},
      {"tanh", {U::kAny, 1, 1}},
      {"atan", {U::kAny, 1, 2}},
      {"erf", {U::kAny, 1.2, 1}},
      {"erfc", {U::kAny, 1.2, 2}},
      {"sigmoid", {U::kAny, 1, 1}},
      {"asinh", {U::kAny, 1, 0, 1}},
      {"silu", {U::kAny, 1.2, 0, 1}},
      {"gelu", {U::kAny, 1.2, 0, 1}},
      {"tanh_gelu", {U::kAny, 1.2, 0, 1}},
      {"exp", {U::kSmall, 8, 8}},
      {"exp2", {U::kSmall, 4, 4}},
      {"expm1", {U::kSmall, 8, 8}},
      {"sinh", {U::kSmall, 4, 4}},
      {"cosh", {U::kSmall, 4, 4}},
      {"log", {U::kPositive, 1, 1, 1}},
      {"log2", {U::kPositive, 1.5, 1, 1}},
      {"log10", {U::kPositive, 1, 1, 1}},
      {"log1p", {U::kPositive, 1, 1, 1}},
      {"sqrt", {U::kPositive, 1, 1, 1}},
      {"rsqrt", {U::kPositive, 1, 1}},
      {"reciprocal", {U::kPositive, 1, 1}},
      {"acosh", {U::kAboveOne, 1, 1, 1}},
      {"acos", {U::kUnit, 1.5, 3.2}},
      {"asin", {U::kUnit, 1.5, 2}},
      {"atanh", {U::kUnit, 1.5, 1}},
      {"tan", {U::kUnit, 1.5, 1}},
      {"erfinv", {U::kUnit, 1.2, 1}},
      {"erfcinv", {U::kNearOne, 1.2, 1}},
      {"lgamma", {U::kNearOne, 1, 1}},
      {"frac", {U::kExact, 0, 1, 0, true}},
      {"floor", {U::kExact, 0, 1, 1, true}},
      {"ceil", {U::kExact, 0, 1, 1, true}},
      {"round", {U::kExact, 0, 1, 1, true}},
      {"trunc", {U::kExact, 0, 1, 1, true}},
      {"sign", {U::kExact, 0, 1, 0, true}},
  };
  return uses;
}

TypeRule RuleOf(FusionOp op) {
  constexpr TypeRule kRules[] = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) TypeRule::rule,
#define OP(...) TypeRule::kAny,
#define COMPOSITE(...) TypeRule::kAny,
#define COMM(...) TypeRule::kAny,
#include "csrc/fusion/fusion_ops.def"
  };
  return kRules[static_cast<size_t>(op)];
}

bool IsNumber(const Item& x) { return x.dtype() != DType::kBool; }

}  // namespace

void Generator::Pointwise(FusionOp op) {
  const ir::OpInfo& info = fusion::kFusionOps.ops[static_cast<size_t>(op)];
  const std::string_view name = info.name;
  const TypeRule rule = RuleOf(op);
  if (op == FusionOp::kWhere) return Where();
  if (op == FusionOp::kClamp) return Clamp();
  if (op == FusionOp::kLerp) return Lerp();
  if (op == FusionOp::kPow) return Power();
  if (op == FusionOp::kNextAfter) return NextAfter();
  if (op == FusionOp::kThreshold) return Threshold();
  if (op == FusionOp::kAddcmul) return Addcmul();
  if (rule == TypeRule::kInts) return Integers(name);
  if (op == FusionOp::kMod || op == FusionOp::kFmod || op == FusionOp::kRemainder) return Remainder(name);
  const bool jumps =
      rule == TypeRule::kCompare || rule == TypeRule::kLogic || rule == TypeRule::kTest || rule == TypeRule::kBits;
  if (jumps) return Compare(name, info.num_operands);
  if (info.num_operands == 1) return Unary(name);
  Binary(name);
}

Item Generator::AsNumber(Item x) {
  if (IsNumber(x)) return x;
  return AddExact(Emit("cast", {x.value}, {{"dtype", DTypeName(RandomFloat())}}), 1, 0);
}

Item Generator::Tame(Item x, double limit) {
  x = AsNumber(x);
  if (x.bound <= limit) return x;
  const Item small = Add(Emit("tanh", {x.value}), 1, x.error);
  if (limit >= 1) return small;
  return Add(Emit("mul", {small.value, NewConstant(DType::kFloat64, limit).value}), limit, small.error * limit);
}

Item Generator::Positive(Item x) {
  x = AsNumber(x);
  const Item magnitude = AddExact(Emit("abs", {x.value}), x.bound, x.error);
  return Add(Emit("add", {magnitude.value, NewConstant(DType::kFloat64, 1).value}), x.bound + 1, x.error);
}

void Generator::Unary(std::string_view name) {
  const auto found = UnaryUses().find(name);
  // An op that this table does not know yet is used near 0, with room for steepness.
  const UnaryUse use = found != UnaryUses().end() ? found->second : UnaryUse{UnaryUse::kUnit, 16, 16};
  Item x = use.domain == UnaryUse::kExact ? Pick([](const Item& i) { return i.exact() && IsNumber(i); }, RandomFloat())
                                          : AsNumber(PickNumber());
  if (use.domain == UnaryUse::kSmall) x = Tame(x, 2);
  if (use.domain == UnaryUse::kUnit) x = Tame(x, 0.5);
  if (use.domain == UnaryUse::kNearOne) x = Positive(Tame(x, 0.5));
  if (use.domain == UnaryUse::kPositive || use.domain == UnaryUse::kAboveOne) x = Positive(x);
  if (use.domain == UnaryUse::kAboveOne) {
    x = Add(Emit("add", {x.value, NewConstant(DType::kFloat64, 1).value}), x.bound + 1, x.error);
  }
  ir::Value* value = Emit(name, {x.value});
  const double bound = x.bound * use.bound_times + use.bound_add;
  if (use.moves && x.exact()) {
    AddExact(value, bound, 0);
  } else {
    Add(value, bound, use.slope * x.error);
  }
}

bool Generator::Broadcasts(const ir::Value* a, const ir::Value* b) const {
  const std::vector<ir::Axis> x = AxesOf(a), y = AxesOf(b);
  const std::vector<int64_t> xs = ShapeOf(a), ys = ShapeOf(b);
  int64_t elements = 1;
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const bool in_x = i < x.size(), in_y = i < y.size();
    const bool one_x = !in_x || x[x.size() - 1 - i].extent->IsConst(1);
    const bool one_y = !in_y || y[y.size() - 1 - i].extent->IsConst(1);
    const int64_t ex = in_x ? xs[x.size() - 1 - i] : 1;
    const int64_t ey = in_y ? ys[y.size() - 1 - i] : 1;
    if (!one_x && !one_y && ex != ey) return false;
    elements *= one_x ? ey : ex;
  }
  return elements <= options_.elements_max;
}

Item Generator::Companion(const Item& x, const Accept& accept, DType dtype, Draw draw, bool scalars) {
  if (!fusion::PromoteTensors(x.dtype(), dtype).ok()) dtype = x.dtype();
  if (scalars && rng_.OneIn(5)) {
    const bool is_float = IsFloat(dtype);
    const double given = is_float ? OneOf<double>({-1.5, -0.5, 0.5, 1, 2}) : OneOf<double>({-2, 1, 3});
    const double value = x.dtype() == DType::kUInt8 ? std::fabs(given) : given;  // A constant below 0 is refused.
    const DType type = is_float ? DType::kFloat64 : dtype == DType::kBool ? DType::kBool : DType::kInt64;
    return NewScalar(type, dtype == DType::kBool ? 1 : value);
  }
  if (Chance(50) && draw == Draw::kSigned) {
    std::vector<Item> fit;
    for (const Item& item : pool_) {
      const bool usable = item.bound <= 4096 && item.error <= 0.1 * std::max(item.bound, 1.0);
      if (usable && accept(item) && fusion::PromoteTensors(x.dtype(), item.dtype()).ok() &&
          Broadcasts(x.value, item.value))
        fit.push_back(item);
    }
    if (!fit.empty()) return OneOf(fit);
  }
  std::vector<ir::Axis> axes = AxesOf(x.value);
  if (!axes.empty() && rng_.OneIn(3)) axes.erase(axes.begin(), axes.begin() + rng_.Between(1, std::ssize(axes)));
  for (ir::Axis& axis : axes) {
    if (Chance(25)) axis = {Chance(50) ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, graph_->exprs().Const(1)};
    axis.kind = rng_.OneIn(8) && *fusion::ValueOf(axis.extent, sizes_) > 0 ? ir::AxisKind::kBroadcast
                : axis.extent->IsConst(1)                                  ? axis.kind
                                                                           : ir::AxisKind::kIteration;
  }
  const bool all = axes.size() == AxesOf(x.value).size();
  if (all && axes.size() < 5 && rng_.OneIn(6) && ElementsOf(x.value) * 2 <= options_.elements_max) {
    axes.insert(axes.begin(), {ir::AxisKind::kIteration, ExtentOfSize(2)});
  }
  return NewParam(dtype, axes, draw);
}

void Generator::Binary(std::string_view name) {
  const bool any = RuleOf(static_cast<FusionOp>(fusion::kFusionOps.Find(name)->code)) == TypeRule::kAny;
  const Accept accept = [any](const Item& i) { return any || IsNumber(i); };
  Item x = any ? PickAny() : PickNumber();
  if (!accept(x)) x = AsNumber(x);
  DType dtype = Chance(60) ? x.dtype() : RandomDType();
  if (!any && dtype == DType::kBool) dtype = RandomFloat();
  if (name == "div" || name == "truediv") {
    x = Tame(x, 64);
    Item y = Companion(x, accept, dtype, Chance(40) ? Draw::kNonzero : Draw::kSigned, false);
    const bool ints = name == "div" && !IsFloat(x.dtype()) && !IsFloat(y.dtype());
    if (!ints) y = Positive(y);
    ir::Value* value = Emit(name, {x.value, y.value});
    ints ? AddExact(value, x.bound, 0) : Add(value, x.bound, x.error + y.error * x.bound);
    return;
  }
  if (name == "atan2") {
    const Item y = Positive(Companion(x, accept, dtype, Draw::kSigned, false));
    Add(Emit(name, {x.value, y.value}), 1.6, x.error + y.error);
    return;
  }
  if (name == "mul") x = Tame(x, 64);
  Item y = Companion(x, accept, dtype);
  if (name == "mul" && y.bound > 64) y = Tame(y, 64);
  if (Chance(30)) std::swap(x, y);
  ir::Value* value = Emit(name, {x.value, y.value});
  const double sum = x.bound + y.bound, most = std::max(x.bound, y.bound);
  if (!IsFloat(value->type->dtype)) {
    AddExact(value, name == "mul" ? x.bound * y.bound : sum, 0);
  } else if (name == "maximum" || name == "minimum") {
    x.exact() && y.exact() ? AddExact(value, most, 0) : Add(value, most, std::max(x.error, y.error));
  } else if (name == "mul") {
    Add(value, x.bound * y.bound, x.error * y.bound + y.error * x.bound + x.error * y.error);
  } else {
    Add(value, sum, x.error + y.error);
  }
}

// Comparisons, logic, bits and tests: of exact values only.
void Generator::Compare(std::string_view name, int operands) {
  const TypeRule rule = RuleOf(static_cast<FusionOp>(fusion::kFusionOps.Find(name)->code));
  const bool bits = rule == TypeRule::kBits;
  const Accept accept = [bits](const Item& i) { return i.exact() && !(bits && IsFloat(i.dtype())); };
  const auto type = [&] { return bits ? OneOf<DType>({DType::kBool, DType::kInt32, DType::kInt64}) : RandomDType(); };
  Item x = Pick(accept, type());
  std::vector<ir::Value*> values = {x.value};
  double bound = x.bound;
  if (operands == 2) {
    const Item y = Companion(x, accept, Chance(50) ? x.dtype() : type());
    values.push_back(y.value);
    bound += y.bound;
  }
  AddExact(Emit(name, values), bound * 2 + 1, 0);
}

void Generator::Remainder(std::string_view name) {
  const Accept accept = [](const Item& i) { return i.exact() && IsNumber(i) && i.bound <= 64; };
  const Item x = Pick(accept, IsFloat(forced_) ? forced_ : DType::kInt32);
  const Item number = IsNumber(x) ? x : AsNumber(x);
  const DType dtype = Chance(60) ? number.dtype() : RandomFloat();
  const Item y = Companion(number, accept, dtype, Draw::kNonzero, false);
  AddExact(Emit(name, {number.value, y.value}), std::max(number.bound, y.bound), 0);
}

void Generator::Power() {
  if (Chance(30)) {
    const Item x = NewParam(Chance(50) ? DType::kInt32 : DType::kInt64, RandomAxes());
    const Draw draw = Chance(60) ? Draw::kExponent : Draw::kSigned;  // 5 to the 5th; powers below 0.
    const Item y = Companion(
        x, [](const Item&) { return false; }, x.dtype(), draw, false);
    AddExact(Emit("pow", {x.value, y.value}), draw == Draw::kExponent ? 125 : 3125, 0);
    return;
  }
  const Item x = Positive(Tame(PickNumber(), 2));
  if (Chance(60)) {
    const double exponent = OneOf<double>({-2, -1, 0, 0.5, 1, 2, 3});
    const Item y = NewScalar(DType::kFloat64, exponent);
    Add(Emit("pow", {x.value, y.value}), 27, 27 * x.error);
    return;
  }
  const Item y = Companion(
      x, [](const Item&) { return false; }, x.dtype(), Draw::kSigned, false);
  Add(Emit("pow", {x.value, y.value}), 9, 9 * x.error);
}

void Generator::Where() {
  const Item x = PickAny();
  const Item y = Companion(
      x, [](const Item&) { return true; }, Chance(60) ? x.dtype() : RandomDType());
  // The condition broadcasts against both: against what they make together.
  ir::Value* both = y.value->type->kind == ir::TypeKind::kScalar ? x.value
                    : ElementsOf(x.value) >= ElementsOf(y.value) ? x.value
                                                                 : y.value;
  const Item shaped = {both, 0, 0};
  Item c = Companion(
      shaped, [](const Item& i) { return i.dtype() == DType::kBool; }, DType::kBool, Draw::kSigned, false);
  const bool fits =
      Broadcasts(c.value, x.value) && (y.value->type->kind == ir::TypeKind::kScalar || Broadcasts(c.value, y.value));
  if (!fits) c = NewParam(DType::kBool, {});
  ir::Value* value = Emit("where", {c.value, x.value, y.value});
  const double bound = std::max(x.bound, y.bound), error = std::max(x.error, y.error);
  error == 0 ? AddExact(value, bound, 0) : Add(value, bound, error);
}

void Generator::Clamp() {
  const Item x = PickNumber();
  const Item number = AsNumber(x);
  const bool ints = !IsFloat(number.dtype());
  const Item low = NewScalar(ints ? DType::kInt64 : DType::kFloat64, number.dtype() == DType::kUInt8 ? 0 : -1);
  const Item high = NewScalar(ints ? DType::kInt64 : DType::kFloat64, ints ? 2 : 0.75);
  ir::Value* value = Emit("clamp", {number.value, low.value, high.value});
  number.exact() ? AddExact(value, 2, 0) : Add(value, 2, number.error);
}

void Generator::Lerp() {
  const Accept any = [](const Item&) { return true; };
  const Item x = Tame(PickNumber(), 64);
  Item y = Companion(x, any, RandomFloat());
  if (y.value->type->kind == ir::TypeKind::kTensor) y = Tame(y, 64);
  const Item z = NewScalar(DType::kFloat64, OneOf<double>({0, 0.25, 0.5, 1}));
  Add(Emit("lerp", {x.value, y.value, z.value}), x.bound + y.bound, x.error + y.error);
}

void Generator::Threshold() {
  const Accept accept = [](const Item& i) { return i.exact() && IsNumber(i); };
  const Item x = AsNumber(Pick(accept, RandomFloat()));
  const DType dtype = IsFloat(x.dtype()) ? DType::kFloat64 : DType::kInt64;
  const double limit = OneOf<double>({-1, 0, 1});
  const Item y = NewScalar(dtype, x.dtype() == DType::kUInt8 ? std::fabs(limit) : limit);
  const Item z = Companion(x, accept, x.dtype(), Draw::kSigned);
  AddExact(Emit("threshold", {x.value, y.value, z.value}), std::max(x.bound, z.bound), 0);
}

void Generator::Addcmul() {
  const Item x = Tame(PickNumber(), 64);
  const Item y = NewParam(x.dtype(), AxesOf(x.value));
  const Item z = Companion(
      y, [](const Item&) { return false; }, RandomFloat());
  const Item w = NewScalar(DType::kFloat64, OneOf<double>({-2, 0.5, 1}));
  ir::Value* value = Emit("addcmul", {x.value, y.value, z.value, w.value});
  const double product = y.bound * z.bound * 2;
  IsFloat(value->type->dtype) ? Add(value, x.bound + product, x.error) : AddExact(value, x.bound + product, 0);
}

// Shifts and gcd. A shift may be by less than 0, and may make numbers of any size.
void Generator::Integers(std::string_view name) {
  const Accept accept = [](const Item& i) { return i.exact() && IsInt(i.dtype()); };
  Item x = Pick(accept, Chance(50) ? DType::kInt32 : DType::kInt64);
  if (!accept(x)) x = NewParam(DType::kInt32, AxesOf(x.value));
  const DType dtype = Chance(60) ? x.dtype() : DType::kInt64;
  const Item y = Companion(
      x, name == "gcd" ? accept : [](const Item&) { return false; }, dtype, Draw::kSigned, false);
  const double bound = name == "gcd"                   ? x.bound + y.bound
                       : name == "bitwise_left_shift"  ? x.bound * 32
                       : name == "bitwise_right_shift" ? x.bound + 1
                                                       : 0x1p64;
  AddExact(Emit(name, {x.value, y.value}), bound, 0);
}

void Generator::NextAfter() {
  const Accept accept = [](const Item& i) {
    return i.exact() && (i.dtype() == DType::kFloat32 || i.dtype() == DType::kFloat64);
  };
  Item x = Pick(accept, Chance(50) ? DType::kFloat32 : DType::kFloat64);
  if (!accept(x)) x = NewParam(DType::kFloat32, AxesOf(x.value));
  const Item y = Companion(x, accept, x.dtype(), Draw::kSigned);
  AddExact(Emit("nextafter", {x.value, y.value}), x.bound + 1, 0);
}

void Generator::Cast() {
  Item x = PickAny();
  DType dtype = RandomDType();
  if (!IsFloat(dtype) && !x.exact()) dtype = RandomFloat();
  if (x.bound > 256 && IsFloat(dtype)) x = Tame(x, 256);
  ir::Value* value = Emit("cast", {x.value}, {{"dtype", DTypeName(dtype)}});
  x.exact() && x.bound <= 32 ? AddExact(value, x.bound, 0) : Add(value, x.bound, x.error);
}

// Host scalars: constants and arithmetic of constants, into a tensor.
void Generator::Constants() {
  const Item a = NewScalar(DType::kFloat64, OneOf<double>({-1, 0.5, 2}));
  const Item b = NewScalar(OneOf<DType>({DType::kFloat64, DType::kInt64}), 2);
  ir::Value* sum = Emit("add", {a.value, b.value});
  ir::Value* quotient = Emit(Chance(50) ? "truediv" : "mul", {sum, b.value});
  const Item x = Tame(PickNumber(), 64);
  Add(Emit("mul", {quotient, x.value}), 8 * x.bound, 8 * x.error);
}

}  // namespace hir::testing
