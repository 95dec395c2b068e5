// Values, guards, loads.
#include "csrc/codegen/gpu/values.h"

#include <algorithm>
#include <optional>

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;
using fusion::Element;
using fusion::Prim;

namespace {

// Whether `element`, float32, holds a value of the 16-bit type `dtype`: a widened one, its negative, one of two.
bool IsExact(const Element* element, DType dtype) {
  if (element->dtype != DType::kFloat32 || (dtype != DType::kFloat16 && dtype != DType::kBFloat16)) return false;
  if (element->kind == Element::Kind::kConvert) return element->args[0]->dtype == dtype;
  if (element->kind == Element::Kind::kFloat) return RoundTo(dtype, element->number) == element->number;
  if (element->kind != Element::Kind::kPrim) return false;
  const auto exact = [&](const Element* arg) { return arg->dtype == DType::kBool || IsExact(arg, dtype); };
  const Prim prim = element->prim;
  return (prim == Prim::kNeg || prim == Prim::kAbs || prim == Prim::kSelect || prim == Prim::kMin ||
          prim == Prim::kMax) &&
         std::ranges::all_of(element->args, exact);
}

// Small powers as products; empty for others.
std::string PowerText(const Element* element, const std::string& base) {
  const Element* exponent = element->args[1];
  if (element->prim != Prim::kPow || exponent->kind != Element::Kind::kFloat) return {};
  if (exponent->number == 1) return base;
  if (exponent->number == 2) return Cat("(", base, " * ", base, ")");
  if (exponent->number == 3) return Cat("(", base, " * ", base, " * ", base, ")");
  return {};
}

}  // namespace

// --- values ----------------------------------------------------------------------------------------------------

std::string Values::Text(const Element* element, int guard) {
  switch (element->kind) {
    case Element::Kind::kFloat: return FloatText(element->dtype, element->number);
    case Element::Kind::kInt: return IntText(element->dtype, element->integer);
    case Element::Kind::kScalar: return arguments_.ScalarOf(element->value);
    case Element::Kind::kExtent:
    case Element::Kind::kIndex:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kPrim:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: break;
  }
  if (element->kind == Element::Kind::kLoad) {
    if (const std::string* result = dependences_.ResultOf(element->value)) return *result;
  }
  if (const std::string* scalar = loaded_.ScalarOf(element)) return *scalar;
  if (const ir::Expr* expr = math_.ToExpr(element))
    return Cat("((i64)", indices_.Text(expr, dependences_.IsLane(dependences_.VarsOf(expr))), ")");
  if (math_.IsIndexCondition(element)) return indices_.ConditionText(element);
  if (!element->has_load) guard = 0;
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    if (const std::optional<bool> decided = math_.Decide(element->args[0]))
      return Text(element->args[*decided ? 1 : 2], guard);
    if (const std::optional<bool> known = guards_.Known(guard, element->args[0]))
      return Text(element->args[*known ? 1 : 2], guard);
  }
  const uint64_t vars = dependences_.VarsOf(element) | guards_.VarsOf(guard);
  // A guard that all lanes share does not make a value one of each lane: the address of a pack may need it.
  const bool is_lane = dependences_.IsLane(dependences_.VarsOf(element)) || !guards_.IsUniformGuard(guard);
  const size_t level = dependences_.LevelOf(vars, is_lane);
  const Key key = {element, guard, is_lane};
  if (const std::string* known = code_.Find(level, key)) return *known;
  if (is_lane && LeavesRows(element, guard, vars)) return InFrontOfRows(element, dependences_.LevelOf(vars, false));
  const std::string_view type = TypeText(element->dtype);
  if (element->kind == Element::Kind::kLoad) return code_.Named(key, level, type, LoadValue(element, guard));
  if (element->kind == Element::Kind::kConvert) {
    const Element* from = element->args[0];
    if (IsExact(from, element->dtype)) {
      std::string exact = Text(from, guard);
      code_.Remember(key, level, exact);
      return exact;
    }
    return code_.Named(key, level, type, ConvertText(from->dtype, element->dtype, Text(from, guard)));
  }
  HIR_CHECK(element->kind == Element::Kind::kPrim);
  return PrimValue(element, key, level);
}

std::vector<std::string> Values::ArgumentsOf(const Element* element, int guard) {
  std::vector<std::string> args;
  if (element->prim == Prim::kSelect) {
    // Conditions on indices say which loads are allowed; of most conditions on data both sides are elements that exist.
    const Element* condition = element->args[0];
    const bool guards = math_.GuardsSides(element);
    const bool on_indices = math_.IsIndexCondition(condition);
    if (on_indices) PairLoads(element, guard);
    args.push_back(on_indices ? indices_.ConditionText(condition) : Text(condition, guard));
    for (const bool holds : {true, false}) {
      const Element* side = element->args[holds ? 1 : 2];
      args.push_back(Text(side, guards && side->has_load ? guards_.Add(guard, condition, holds) : guard));
    }
  } else {
    for (const Element* arg : element->args) args.push_back(Text(arg, guard));
  }
  return args;
}

namespace {

// 1 + exp(x), by which sigmoid and silu divide: two units of error are no more than the exponential has.
bool IsAtLeastOne(const Element* e) {
  const auto is_prim = [](const Element* of, Prim prim) {
    return of->kind == Element::Kind::kPrim && of->prim == prim;
  };
  if (!is_prim(e, Prim::kAdd)) return false;
  const auto is_one = [](const Element* of) { return of->kind == Element::Kind::kFloat && of->number == 1; };
  return (is_one(e->args[0]) && is_prim(e->args[1], Prim::kExp)) ||
         (is_one(e->args[1]) && is_prim(e->args[0], Prim::kExp));
}

}  // namespace

std::string Values::PrimValue(const Element* element, const Key& key, size_t level) {
  const int guard = key.guard;
  const std::string_view type = TypeText(element->dtype);
  const std::vector<std::string> args = ArgumentsOf(element, guard);
  const DType dtype = element->args.back()->dtype;
  if (element->prim == Prim::kPow) {
    if (const std::string text = PowerText(element, args[0]); !text.empty()) return code_.Named(key, level, type, text);
  }
  if (is_fast_ && element->prim == Prim::kDiv && dtype == DType::kFloat32) {
    // By what varies less: one reciprocal for many elements.
    const Element* divisor = element->args[1];
    const uint64_t own = dependences_.VarsOf(divisor) | guards_.VarsOf(divisor->has_load ? guard : 0);
    const bool is_lane = dependences_.IsLane(own);
    const size_t outer = dependences_.LevelOf(own, is_lane);
    if (outer < level) {
      const Key reciprocal = {divisor, -3 - guard, is_lane};
      const std::string* made = code_.Find(outer, reciprocal);
      const std::string name =
          made != nullptr ? *made : code_.Named(reciprocal, outer, "float", Cat("1.0f / ", args[1]));
      return code_.Named(key, level, type, Cat(args[0], " * ", name));
    }
  }
  if (!is_fast_ && element->prim == Prim::kDiv && dtype == DType::kFloat32 && IsAtLeastOne(element->args[1]))
    return code_.Named(key, level, type, Cat("full_div(", args[0], ", ", args[1], ")"));
  return code_.Named(key, level, type, PrimText(element->prim, dtype, args, is_fast_));
}

std::string Values::GuardText(int guard) {
  const Guard at = guards_.at(guard);
  const bool is_lane = !guards_.IsUniformGuard(guard);
  const size_t level = dependences_.LevelOf(guards_.VarsOf(guard), is_lane);
  const Key key = {&guards_, guard, is_lane};
  if (const std::string* known = code_.Find(level, key)) return *known;
  std::string text =
      Cat(at.holds ? "" : "!",
          math_.IsIndexCondition(at.condition) ? indices_.ConditionText(at.condition) : Text(at.condition, at.parent));
  if (at.parent != 0) text = Cat(GuardText(at.parent), " && ", text);
  return code_.Named(key, level, "bool", text);
}

// Arithmetic on what stays the same from row to row; loads stay packed, which takes fewer registers.
bool Values::LeavesRows(const Element* element, int guard, uint64_t vars) const {
  constexpr uint64_t kResults = Dependences::kRowBit | Dependences::kLaneBit;
  if (inner_rows_ < 0 || guard != 0 || code_.lane_level() == 0 || (vars & kResults) != 0) return false;
  const std::optional<size_t> row = code_.LevelOf(inner_rows_);
  if (!row || *row >= code_.lane_level()) return false;
  if (dependences_.Has(vars, inner_rows_) || dependences_.LevelOf(vars, false) >= *row) return false;
  const Element* inner = element;
  while (inner->kind == Element::Kind::kConvert) inner = inner->args[0];
  return inner->kind == Element::Kind::kPrim;
}

std::string Values::InFrontOfRows(const Element* element, size_t level) {
  const Key key = {element, -4, true};
  if (const std::string* known = code_.Find(level, key)) return *known;
  const int rows = inner_rows_;
  inner_rows_ = -1;
  const std::string array = code_.NewName("h");
  code_.At(level, [&] {
    code_.Line(TypeText(element->dtype), " ", array, "[", vector_.lanes(), "];");
    code_.Lanes(vector_.lanes(), [&] {
      const std::string value = Text(element);
      code_.Line(array, "[e] = ", value, ";");
    });
  });
  inner_rows_ = rows;
  std::string text = Cat(array, "[e]");
  code_.Remember(key, level, text);
  return text;
}

// --- loads -----------------------------------------------------------------------------------------------------

std::string Values::OffsetText(const Places::Offset& offset, bool is_lane) {
  std::string text = indices_.Text(offset.affine, is_lane);
  for (const auto& [index, stride] : offset.data)
    Append(text, " + (ix)", Text(index, offset.guard), " * ", indices_.Text(stride));
  return text;
}

std::string Values::LoadAddress(const Access& access) {
  const int tensor = arguments_.TensorOf(access.load->value);
  return Cat(arguments_.AddressOf(tensor), " + (", OffsetText(places_.OffsetOf(access), false), ")");
}

std::string Values::LoadText(const Access& access, Reading reading) {
  const std::string bytes = Cat("<", places_.BytesOf(access), ">(");
  const std::string load = Cat(reading == Reading::kLast     ? "lds"
                               : reading == Reading::kFirst  ? "ldk"
                               : reading == Reading::kAcross ? "ldu"
                                                             : "ldv",
                               bytes, LoadAddress(access), ")");
  return access.guard == 0 ? load : Cat(GuardText(access.guard), " ? ", load, " : none", bytes, ")");
}

std::string Values::ScalarText(const Access& access) {
  return Cat("ld_", Suffix(access.load->dtype), "(", LoadAddress(access), ")");
}

size_t Values::LevelOf(const Access& access) {
  return dependences_.LevelOf(dependences_.VarsOf(access.load) | guards_.VarsOf(access.guard), false);
}

std::string Values::PackText(const Access& access) {
  if (const std::string* loaded = loaded_.PackOf(access)) return *loaded;
  const size_t level = LevelOf(access);
  const Key key = {access.load, access.guard, false};
  if (const std::string* known = code_.Find(level, key)) return *known;
  const Reading reading = places_.IsVectorLoad(access) ? Reading::kPlain : Reading::kAcross;
  return code_.Named(key, level, Cat("Pk<", places_.BytesOf(access), ">"), LoadText(access, reading));
}

std::string Values::LoadValue(const Element* element, int guard) {
  const int tensor = arguments_.TensorOf(element->value);
  if (tensor < 0) {
    code_.Fail(Internal("a kernel reads an accumulator before it is complete"));
    return "0";
  }
  const std::string_view suffix = Suffix(arguments_.tensor(tensor).dtype);
  const Access access = {element, guard};
  if (places_.IsVectorLoad(access) || places_.IsAcrossVectors(access))
    return Cat("get_", suffix, "(", PackText(access), ", e)");
  const Places::Offset offset = places_.OffsetOf(access);
  const std::string text = OffsetText(offset, places_.IsLane(offset));
  const std::string load = Cat("ld_", suffix, "(", arguments_.AddressOf(tensor), " + (", text, "))");
  if (guard == 0) return load;
  return Cat("(", GuardText(guard), " ? ", load, " : 0)");
}

void Values::PairLoads(const Element* select, int guard) {
  const Element* condition = select->args[0];
  if (vector_.lanes() <= 1 || !guards_.IsUniform(condition)) return;
  std::vector<Access> sides[2];
  for (const int side : {0, 1}) {
    const int own = guards_.Add(guard, condition, side == 0);
    for (const Access& access : loads_.Vectors({select->args[static_cast<size_t>(side + 1)]}, own)) {
      if (access.guard == own && loaded_.PackOf(access) == nullptr) sides[side].push_back(access);
    }
  }
  for (size_t k = 0; k < std::min(sides[0].size(), sides[1].size()); ++k) {
    const Access& yes = sides[0][k];
    const Access& no = sides[1][k];
    const size_t level = LevelOf(yes);
    const Key key = {yes.load, yes.guard, false}, other = {no.load, no.guard, false};
    if (yes.load->dtype != no.load->dtype || level != LevelOf(no) || code_.Find(level, key) != nullptr ||
        code_.Find(level, other) != nullptr)
      continue;
    const std::string bytes = Cat("<", places_.BytesOf(yes), ">(");
    const std::string load =
        Cat("ldv", bytes, indices_.ConditionText(condition), " ? ", LoadAddress(yes), " : ", LoadAddress(no), ")");
    const std::string text = guard == 0 ? load : Cat(GuardText(guard), " ? ", load, " : none", bytes, ")");
    code_.Remember(other, level, code_.Named(key, level, Cat("Pk<", places_.BytesOf(yes), ">"), text));
  }
}

}  // namespace hir::codegen::gpu
