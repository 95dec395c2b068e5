#include "csrc/codegen/gpu/emitter.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;
using fusion::Prim;
using ir::ExprKind;

namespace {

constexpr uint64_t kRowBit = uint64_t{1} << 63;  // Depends on the result of an accumulator.
constexpr uint64_t kLaneBit = uint64_t{1} << 62;
constexpr size_t kVariablesMax = 62;

}  // namespace

Emitter::Emitter(const LoopNest& nest, const Options& options)
    : nest_(nest), options_(options), math_(pool_) {
  levels_.resize(1);
  guards_.emplace_back();
  Line("typedef ", options.narrow ? "int" : "i64", " ix;");
  Line("typedef ", options.narrow ? "u32" : "u64", " ux;");
  Line("const int t = TID;");
  for (size_t i = 0; i < nest.tensors.size(); ++i) {
    if (nest.tensors[i].role != Tensor::Role::kOutput)
      slots_[nest.tensors[i].value] = static_cast<int>(i);
  }
  for (size_t i = 0; i < nest.symbols.size(); ++i) {
    symbols_[nest.symbols[i]] = Cat("s", i);
    Line("const ix s", i, " = (ix)a.s", i, ";");
  }
  for (size_t i = 0; i < nest.scalars.size(); ++i) {
    const DType dtype = nest.scalars[i]->type->dtype;
    scalars_[nest.scalars[i]] = Cat("x", i);
    const DType passed = IsFloat(dtype) ? DType::kFloat64 : DType::kInt64;
    Line("const ", TypeText(dtype), " x", i, " = ", ConvertText(passed, dtype, Cat("a.x", i)), ";");
  }
}

std::string Emitter::Close() {
  std::string code = std::move(levels_.back().code);
  levels_.pop_back();
  return code;
}

void Emitter::StartRegion(const Region& region) {
  region_variables_.clear();
  expr_vars_.clear();
  element_vars_.clear();
  results_.clear();
  scalar_loads_.clear();
  inner_rows_ = -1;
  accumulated_.clear();
  const auto add = [&](const Loop& loop) {
    if (std::ranges::find(region_variables_, loop.variable) != region_variables_.end()) return;
    region_variables_.push_back(loop.variable);
    math_.SetRange(loop.variable, Import(loop.begin), pool_.Sub(Import(loop.end), pool_.Const(1)));
  };
  for (const Loop& loop : region.grid) add(loop);
  for (const Loop& loop : region.serial) add(loop);
  for (const Phase& phase : region.phases) {
    for (const Loop& loop : phase.loops) add(loop);
    for (const Accumulator& accumulator : phase.accumulators)
      accumulated_.insert(accumulator.value);
  }
  if (region_variables_.size() > kVariablesMax) {
    error_ = Unimplemented(
        Cat("a kernel with ", region_variables_.size(), " loops; the limit is ", kVariablesMax));
    region_variables_.resize(kVariablesMax);
  }
}

void Emitter::Define(int variable, std::string text) {
  variable_level_[variable] = levels_.size() - 1;
  variable_text_[variable] = std::move(text);
}

void Emitter::SetVector(int variable, int lanes) {
  vector_ = variable;
  lanes_ = lanes;
}

void Emitter::SetResult(const ir::Value* value, std::string text, bool is_lane) {
  results_[value] = {std::move(text), is_lane};
  if (is_lane) element_vars_.clear();
}

// --- what depends on what --------------------------------------------------------------------------------------

uint64_t Emitter::BitOf(int variable) const {
  const auto at = std::ranges::find(region_variables_, variable);
  return at == region_variables_.end() ? 0 : uint64_t{1} << (at - region_variables_.begin());
}

uint64_t Emitter::VarsOf(const ir::Expr* expr) {
  const auto known = expr_vars_.find(expr);
  if (known != expr_vars_.end()) return known->second;
  uint64_t vars = 0;
  if (expr->kind == ExprKind::kSymbol && VariableOf(expr->symbol) >= 0)
    vars = BitOf(VariableOf(expr->symbol));
  for (const ir::Expr* arg : expr->args) vars |= VarsOf(arg);
  return expr_vars_[expr] = vars;
}

uint64_t Emitter::VarsOf(const Element* element) {
  const auto known = element_vars_.find(element);
  if (known != element_vars_.end()) return known->second;
  uint64_t vars = 0;
  if (element->kind == Element::Kind::kLoad && accumulated_.contains(element->value)) {
    const auto result = results_.find(element->value);
    vars = kRowBit | (result != results_.end() && result->second.is_lane ? kLaneBit : 0);
  } else if (const ir::Expr* expr = math_.ToExpr(element)) {
    vars = VarsOf(expr);
  } else {
    for (const Element* arg : element->args) vars |= VarsOf(arg);
  }
  return element_vars_[element] = vars;
}

uint64_t Emitter::VarsOf(int guard) {
  uint64_t vars = 0;
  for (; guard != 0; guard = guards_[static_cast<size_t>(guard)].parent)
    vars |= VarsOf(guards_[static_cast<size_t>(guard)].condition);
  return vars;
}

uint64_t Emitter::VarsOf(const Offset& offset) {
  uint64_t vars = VarsOf(offset.affine);
  for (const auto& [index, stride] : offset.data)
    vars |= VarsOf(index) | VarsOf(stride) | VarsOf(offset.guard);
  return vars;
}

size_t Emitter::LevelOf(uint64_t vars, bool is_lane) const {
  size_t level = (vars & kRowBit) != 0 ? row_level_ : 0;
  if (is_lane || (vars & kLaneBit) != 0) level = std::max(level, lane_level_);
  for (size_t i = 0; i < region_variables_.size(); ++i) {
    if ((vars >> i & 1) == 0) continue;
    const auto at = variable_level_.find(region_variables_[i]);
    HIR_CHECK(at != variable_level_.end() && at->second < levels_.size());
    level = std::max(level, at->second);
  }
  return level;
}

bool Emitter::HasLoad(const Element* element) {
  const auto known = has_load_.find(element);
  if (known != has_load_.end()) return known->second;
  bool has = element->kind == Element::Kind::kLoad;
  for (const Element* arg : element->args) has = has || HasLoad(arg);
  return has_load_[element] = has;
}

// --- expressions -----------------------------------------------------------------------------------------------

std::string Emitter::Named(const Key& key, size_t level, std::string_view type,
                           const std::string& text) {
  std::string name = NewName("e");
  Append(levels_[level].code, "const ", type, " ", name, " = ", text, ";\n");
  levels_[level].memo[key] = name;
  return name;
}

std::string Emitter::ExprText(const ir::Expr* expr, bool is_lane) {
  if (expr->IsConst()) {
    return options_.narrow ? IntText(DType::kInt32, expr->value)
                           : IntText(DType::kInt64, expr->value);
  }
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable < 0) return symbols_.at(expr->symbol);
    const std::string& text = variable_text_.at(variable);
    return is_lane && variable == vector_ ? Cat("(", text, " + e)") : text;
  }
  is_lane = is_lane && IsLane(VarsOf(expr));
  const size_t level = LevelOf(VarsOf(expr), is_lane);
  const Key key = {expr, -1, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::vector<std::string> args;
  for (const ir::Expr* arg : expr->args) args.push_back(ExprText(arg, is_lane));
  return Named(key, level, "ix", NodeText(*expr, args));
}

std::string Emitter::NodeText(const ir::Expr& expr, const std::vector<std::string>& args) {
  const auto constant = [&](int64_t value) { return ExprText(pool_.Const(value), false); };
  switch (expr.kind) {
    case ExprKind::kAdd:
      return Cat(base::Join(args, " + "), expr.value != 0 ? " + " : "",
                 expr.value != 0 ? constant(expr.value) : "");
    case ExprKind::kMul:
      return Cat(expr.value != 1 ? constant(expr.value) : "", expr.value != 1 ? " * " : "",
                 base::Join(args, " * "));
    case ExprKind::kMin: return Cat("mini(", args[0], ", ", args[1], ")");
    case ExprKind::kMax: return Cat("maxi(", args[0], ", ", args[1], ")");
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      const bool mod = expr.kind == ExprKind::kMod;
      if (expr.args[1]->IsConst() && expr.args[1]->value > 0 && math_.NonNegative(expr.args[0]))
        return Cat("(ix)((ux)", args[0], mod ? " % " : " / ", "(ux)", args[1], ")");
      return Cat(mod ? "floor_mod<ix>(" : "floor_div<ix>(", args[0], ", ", args[1], ")");
    }
    case ExprKind::kCeilDiv: return Cat("ceil_div<ix>(", args[0], ", ", args[1], ")");
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

std::string Emitter::SymbolText(const ir::Expr* expr) {
  if (expr->IsConst()) return IntText(DType::kInt64, expr->value);
  if (expr->kind == ExprKind::kSymbol) return Cat("a.", symbols_.at(expr->symbol));
  std::vector<std::string> args;
  for (const ir::Expr* arg : expr->args) args.push_back(SymbolText(arg));
  const auto call = [&](std::string_view name) {
    return Cat(name, "<i64>(", args[0], ", ", args[1], ")");
  };
  switch (expr->kind) {
    case ExprKind::kAdd:
      return Cat("(", base::Join(args, " + "), " + ", IntText(DType::kInt64, expr->value), ")");
    case ExprKind::kMul:
      return Cat("(", IntText(DType::kInt64, expr->value), " * ", base::Join(args, " * "), ")");
    case ExprKind::kMin: return call("mini");
    case ExprKind::kMax: return call("maxi");
    case ExprKind::kFloorDiv: return call("floor_div");
    case ExprKind::kMod: return call("floor_mod");
    case ExprKind::kCeilDiv: return call("ceil_div");
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

const ir::Expr* Emitter::TripsOf(std::span<const Loop> loops) {
  const ir::Expr* trips = pool_.Const(1);
  for (const Loop& loop : loops) {
    const ir::Expr* own = pool_.Sub(Import(loop.end), Import(loop.begin));
    if (!Import(loop.begin)->IsConst(0)) own = pool_.Max(own, pool_.Const(0));
    if (loop.variable == vector_ && lanes_ > 1) {
      if (!Divisible(own, lanes_))
        error_ = Internal("vectors along a loop that they do not divide");
      own = pool_.FloorDiv(own, pool_.Const(lanes_));
    }
    trips = pool_.Mul(trips, own);
  }
  return trips;
}

void Emitter::Decode(std::span<const Loop> loops, const std::string& k) {
  std::string rest = k;
  for (size_t i = loops.size(); i-- > 0;) {
    const Loop& loop = loops[i];
    std::string at = rest;
    if (i > 0) {
      const std::string trips = Expr(TripsOf(loops.subspan(i, 1)));
      const std::string quotient = NewName("q");
      at = NewName("r");
      Line("const ix ", quotient, " = (ix)((ux)", rest, " / (ux)", trips, ");");
      Line("const ix ", at, " = ", rest, " - ", quotient, " * ", trips, ";");
      rest = quotient;
    }
    const ir::Expr* begin = Import(loop.begin);
    std::string text = at;
    if (loop.variable == vector_ && lanes_ > 1) text = Cat(text, " * ", lanes_);
    if (!begin->IsConst(0)) text = Cat(Expr(begin), " + ", text);
    const std::string name = Cat("v", loop.variable, NewName("_"));
    Line("const ix ", name, " = ", text, ";");
    Define(loop.variable, name);
  }
}

// --- conditions ------------------------------------------------------------------------------------------------

bool Emitter::Divisible(const ir::Expr* expr, int64_t by) {
  if (by == 1) return true;
  if (expr->IsConst()) return expr->value % by == 0;
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable >= 0) return variable == vector_ && lanes_ % by == 0;
    if (!probing_) Require(Cat(SymbolText(expr), " % ", by, " == 0"));
    return true;
  }
  if (expr->kind == ExprKind::kMin || expr->kind == ExprKind::kMax || expr->kind == ExprKind::kMod)
    return Divisible(expr->args[0], by) && Divisible(expr->args[1], by);
  if (expr->kind == ExprKind::kAdd) {
    if (expr->value % by != 0) return false;
    return std::ranges::all_of(expr->args,
                               [&](const ir::Expr* term) { return Divisible(term, by); });
  }
  if (expr->kind == ExprKind::kMul) {
    if (expr->value % by == 0) return true;
    const ir::Expr* symbols = pool_.Const(expr->value);
    for (const ir::Expr* atom : expr->args) {
      if (VarsOf(atom) != 0 && atom->kind == ExprKind::kSymbol &&
          VariableOf(atom->symbol) == vector_ && lanes_ % by == 0)
        return true;
      if (VarsOf(atom) == 0) symbols = pool_.Mul(symbols, atom);
    }
    if (symbols->IsConst()) return false;
    if (!probing_) Require(Cat(SymbolText(symbols), " % ", by, " == 0"));
    return true;
  }
  if (VarsOf(expr) != 0) return false;
  if (!probing_) Require(Cat(SymbolText(expr), " % ", by, " == 0"));
  return true;
}

// Whether an index condition has one answer for all lanes of a vector: its two sides differ by +-1 times the vector
// variable and a multiple of the lanes, on the side of the comparison where the first lane decides.
bool Emitter::IsUniform(const Element* condition) {
  if (!IsLane(VarsOf(condition))) return true;
  if (condition->kind != Element::Kind::kPrim) return false;
  const Prim prim = condition->prim;
  if (prim == Prim::kAnd || prim == Prim::kOr || prim == Prim::kNot)
    return std::ranges::all_of(condition->args, [&](const Element* arg) { return IsUniform(arg); });
  if (prim == Prim::kEq || prim == Prim::kNe) return false;
  const ir::Expr* a = math_.ToExpr(condition->args[0]);
  const ir::Expr* b = math_.ToExpr(condition->args[1]);
  if (a == nullptr || b == nullptr) return false;
  const bool is_greater = prim == Prim::kGt || prim == Prim::kLe;  // Of b < a.
  const auto split = math_.Split(is_greater ? pool_.Sub(b, a) : pool_.Sub(a, b), vector_);
  return split && split->stride->IsConst(1) && Divisible(split->base, lanes_);
}

bool Emitter::IsUniformGuard(int guard) {
  for (; guard != 0; guard = guards_[static_cast<size_t>(guard)].parent) {
    if (!IsUniform(guards_[static_cast<size_t>(guard)].condition)) return false;
  }
  return true;
}

std::string Emitter::ConditionText(const Element* element) {
  if (element->kind == Element::Kind::kInt) return IntText(DType::kBool, element->integer);
  const bool is_lane = IsLane(VarsOf(element)) && !IsUniform(element);
  const size_t level = LevelOf(VarsOf(element), is_lane);
  const Key key = {element, -2, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::vector<std::string> args;
  const bool compares = element->prim >= Prim::kEq && element->prim <= Prim::kGe;
  for (const Element* arg : element->args) {
    args.push_back(compares ? ExprText(math_.ToExpr(arg), is_lane) : ConditionText(arg));
  }
  return Named(key, level, "bool",
               PrimText(element->prim, compares ? DType::kInt64 : DType::kBool, args, false));
}

int Emitter::AddGuard(int parent, const Element* condition, bool holds) {
  const Guard guard = {parent, condition, holds};
  const auto at = std::find(guards_.begin() + 1, guards_.end(), guard);
  if (at != guards_.end()) return static_cast<int>(at - guards_.begin());
  guards_.push_back(guard);
  return static_cast<int>(guards_.size()) - 1;
}

std::string Emitter::GuardText(int guard) {
  const Guard at = guards_[static_cast<size_t>(guard)];
  const bool is_lane = !IsUniformGuard(guard);
  const size_t level = LevelOf(VarsOf(guard), is_lane);
  const Key key = {&guards_, guard, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::string text = Cat(at.holds ? "" : "!", ConditionText(at.condition));
  if (at.parent != 0) text = Cat(GuardText(at.parent), " && ", text);
  return Named(key, level, "bool", text);
}

// --- values ----------------------------------------------------------------------------------------------------

std::string Emitter::ValueText(const Element* element, int guard) {
  switch (element->kind) {
    case Element::Kind::kFloat: return FloatText(element->dtype, element->number);
    case Element::Kind::kInt: return IntText(element->dtype, element->integer);
    case Element::Kind::kScalar: return scalars_.at(element->value);
    case Element::Kind::kExtent:
    case Element::Kind::kIndex:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kPrim:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: break;
  }
  if (element->kind == Element::Kind::kLoad) {
    const auto result = results_.find(element->value);
    if (result != results_.end()) return result->second.text;
    const auto scalar = scalar_loads_.find(element);
    if (scalar != scalar_loads_.end()) return scalar->second;
  }
  if (const ir::Expr* expr = math_.ToExpr(element))
    return Cat("((i64)", ExprText(expr, IsLane(VarsOf(expr))), ")");
  if (math_.IsIndexCondition(element)) return ConditionText(element);
  if (!HasLoad(element)) guard = 0;
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    if (const std::optional<bool> decided = math_.Decide(element->args[0]))
      return ValueText(element->args[*decided ? 1 : 2], guard);
  }
  const uint64_t vars = VarsOf(element) | VarsOf(guard);
  const bool is_lane = IsLane(vars);
  const size_t level = LevelOf(vars, is_lane);
  const Key key = {element, guard, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  if (is_lane && LeavesRows(element, guard, vars))
    return InFrontOfRows(element, LevelOf(vars, false));
  const std::string_view type = TypeText(element->dtype);
  if (element->kind == Element::Kind::kLoad)
    return Named(key, level, type, LoadValue(element, guard));
  if (element->kind == Element::Kind::kConvert) {
    if (IsExact(element->args[0], element->dtype)) {
      const std::string exact = ValueText(element->args[0], guard);
      levels_[level].memo[key] = exact;
      return exact;
    }
    return Named(
        key, level, type,
        ConvertText(element->args[0]->dtype, element->dtype, ValueText(element->args[0], guard)));
  }
  HIR_CHECK(element->kind == Element::Kind::kPrim);
  std::vector<std::string> args;
  if (element->prim == Prim::kSelect) {
    // A condition on indices says which loads are allowed; one on data does not: both sides are elements that exist.
    const Element* condition = element->args[0];
    const bool guards = math_.IsIndexCondition(condition);
    if (guards) PairLoads(element, guard);
    args.push_back(guards ? ConditionText(condition) : ValueText(condition, guard));
    for (const bool holds : {true, false}) {
      const Element* side = element->args[holds ? 1 : 2];
      args.push_back(
          ValueText(side, guards && HasLoad(side) ? AddGuard(guard, condition, holds) : guard));
    }
  } else {
    for (const Element* arg : element->args) args.push_back(ValueText(arg, guard));
  }
  const DType dtype = element->args.back()->dtype;
  if (element->prim == Prim::kPow) {
    if (const std::string text = PowerText(element, args[0]); !text.empty())
      return Named(key, level, type, text);
  }
  if (options_.fast && element->prim == Prim::kDiv && dtype == DType::kFloat32) {
    // By what varies less: one reciprocal for many elements.
    const Element* divisor = element->args[1];
    const uint64_t own = VarsOf(divisor) | VarsOf(HasLoad(divisor) ? guard : 0);
    const size_t outer = LevelOf(own, IsLane(own));
    if (outer < level) {
      const Key reciprocal = {divisor, -3 - guard, IsLane(own)};
      const auto made = levels_[outer].memo.find(reciprocal);
      const std::string name = made != levels_[outer].memo.end()
                                   ? made->second
                                   : Named(reciprocal, outer, "float", Cat("1.0f / ", args[1]));
      return Named(key, level, type, Cat(args[0], " * ", name));
    }
  }
  return Named(key, level, type, PrimText(element->prim, dtype, args, options_.fast));
}

// Arithmetic on what stays the same from row to row; loads stay packed, which takes fewer registers.
bool Emitter::LeavesRows(const Element* element, int guard, uint64_t vars) const {
  if (inner_rows_ < 0 || guard != 0 || lane_level_ == 0 || (vars & (kRowBit | kLaneBit)) != 0)
    return false;
  const auto row = variable_level_.find(inner_rows_);
  if (row == variable_level_.end() || row->second >= levels_.size() || row->second >= lane_level_)
    return false;
  if ((vars & BitOf(inner_rows_)) != 0 || LevelOf(vars, false) >= row->second) return false;
  const Element* inner = element;
  while (inner->kind == Element::Kind::kConvert) inner = inner->args[0];
  return inner->kind == Element::Kind::kPrim;
}

std::string Emitter::InFrontOfRows(const Element* element, size_t level) {
  const Key key = {element, -4, true};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::vector<Level> inner(
      std::make_move_iterator(levels_.begin() + static_cast<std::ptrdiff_t>(level) + 1),
      std::make_move_iterator(levels_.end()));
  levels_.resize(level + 1);
  const size_t lane_level = lane_level_;
  const int rows = inner_rows_;
  inner_rows_ = -1;
  const std::string array = NewName("h");
  Line(TypeText(element->dtype), " ", array, "[", lanes_, "];");
  Lanes([&] {
    const std::string value = ValueText(element, 0);
    Line(array, "[e] = ", value, ";");
  });
  inner_rows_ = rows;
  lane_level_ = lane_level;
  std::move(inner.begin(), inner.end(), std::back_inserter(levels_));
  const std::string text = Cat(array, "[e]");
  levels_[level].memo[key] = text;
  return text;
}

// Whether `element`, float32, holds a value of the 16-bit type `dtype`: a widened one, its negative, one of two.
bool Emitter::IsExact(const Element* element, DType dtype) const {
  if (element->dtype != DType::kFloat32 || (dtype != DType::kFloat16 && dtype != DType::kBFloat16))
    return false;
  if (element->kind == Element::Kind::kConvert) return element->args[0]->dtype == dtype;
  if (element->kind == Element::Kind::kFloat)
    return RoundTo(dtype, element->number) == element->number;
  if (element->kind != Element::Kind::kPrim) return false;
  const auto exact = [&](const Element* arg) {
    return arg->dtype == DType::kBool || IsExact(arg, dtype);
  };
  const Prim prim = element->prim;
  return (prim == Prim::kNeg || prim == Prim::kAbs || prim == Prim::kSelect || prim == Prim::kMin ||
          prim == Prim::kMax) &&
         std::ranges::all_of(element->args, exact);
}

// Small powers as products; empty for others.
std::string Emitter::PowerText(const Element* element, const std::string& base) {
  const Element* exponent = element->args[1];
  if (element->prim != Prim::kPow || exponent->kind != Element::Kind::kFloat) return {};
  if (exponent->number == 1) return base;
  if (exponent->number == 2) return Cat("(", base, " * ", base, ")");
  if (exponent->number == 3) return Cat("(", base, " * ", base, " * ", base, ")");
  return {};
}

// Vectors of which a uniform condition allows one or the other: one load from the address that it chooses.
void Emitter::PairLoads(const Element* select, int guard) {
  const Element* condition = select->args[0];
  if (lanes_ <= 1 || !IsUniform(condition)) return;
  std::vector<Access> sides[2];
  int guards[2];
  for (const int side : {0, 1}) {
    guards[side] = AddGuard(guard, condition, side == 0);
    std::set<std::pair<const Element*, int>> seen;
    std::vector<Access> found;
    Visit(select->args[static_cast<size_t>(side + 1)], guards[side], seen, found, nullptr);
    for (const Access& access : found) {
      if (access.guard == guards[side] && !packs_.contains({access.load, access.guard}))
        sides[side].push_back(access);
    }
  }
  const auto level_of = [&](const Access& access) {
    return LevelOf(VarsOf(access.load) | VarsOf(access.guard), false);
  };
  for (size_t k = 0; k < std::min(sides[0].size(), sides[1].size()); ++k) {
    const Access& yes = sides[0][k];
    const Access& no = sides[1][k];
    const size_t level = level_of(yes);
    const Key key = {yes.load, yes.guard, false}, other = {no.load, no.guard, false};
    auto& memo = levels_[level].memo;
    if (yes.load->dtype != no.load->dtype || level != level_of(no) || memo.contains(key) ||
        memo.contains(other))
      continue;
    const std::string bytes = Cat("<", BytesOf(yes), ">(");
    const std::string load = Cat("ldv", bytes, ConditionText(condition), " ? ", LoadAddress(yes),
                                 " : ", LoadAddress(no), ")");
    memo[other] =
        Named(key, level, Cat("Pk<", BytesOf(yes), ">"),
              guard == 0 ? load : Cat(GuardText(guard), " ? ", load, " : none", bytes, ")"));
  }
}

void Emitter::VisitScalars(const Element* element, std::span<const Loop> rows,
                           std::span<const Loop> columns, std::set<const Element*>& seen,
                           std::vector<Access>& found) {
  if (!HasLoad(element) || !seen.insert(element).second) return;
  const auto depends = [&](std::span<const Loop> loops) {
    const uint64_t vars = VarsOf(element);
    return std::ranges::any_of(
        loops, [&](const Loop& loop) { return (vars & BitOf(loop.variable)) != 0; });
  };
  if (element->kind == Element::Kind::kLoad) {
    if (slots_.contains(element->value) && !accumulated_.contains(element->value) &&
        depends(rows) && !depends(columns) && math_.ToExpr(element) == nullptr &&
        std::ranges::none_of(element->args, [&](const Element* arg) { return HasLoad(arg); }))
      found.push_back({element, 0});
    return;
  }
  // What a condition on indices forbids is not looked at.
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect &&
      math_.IsIndexCondition(element->args[0]))
    return;
  for (const Element* arg : element->args) VisitScalars(arg, rows, columns, seen, found);
}

std::vector<Emitter::Access> Emitter::ScalarLoads(const std::vector<const Element*>& roots,
                                                  std::span<const Loop> rows,
                                                  std::span<const Loop> columns) {
  std::vector<Access> found;
  std::set<const Element*> seen;
  for (const Element* root : roots) VisitScalars(root, rows, columns, seen, found);
  return found;
}

// --- memory ----------------------------------------------------------------------------------------------------

Emitter::Offset Emitter::OffsetOf(std::span<const Element* const> index, const Tensor& tensor,
                                  int guard) {
  Offset offset = {pool_.Const(0), {}, guard};
  for (size_t i = 0; i < index.size(); ++i) {
    if (tensor.strides[i]->IsConst(0)) continue;
    const ir::Expr* stride = Import(tensor.strides[i]);
    if (const ir::Expr* at = math_.ToExpr(index[i])) {
      offset.affine = pool_.Add(offset.affine, pool_.Mul(at, stride));
    } else {
      offset.data.emplace_back(index[i], stride);
    }
  }
  return offset;
}

std::string Emitter::OffsetText(const Offset& offset, bool is_lane) {
  std::string text = ExprText(offset.affine, is_lane);
  for (const auto& [index, stride] : offset.data)
    Append(text, " + (ix)", ValueText(index, offset.guard), " * ", ExprText(stride, false));
  return text;
}

bool Emitter::IsVectorOffset(const Offset& offset, DType dtype, const std::string& pointer) {
  if (lanes_ <= 1 || vector_ < 0) return false;
  for (const auto& [index, stride] : offset.data) {
    if (IsLane(VarsOf(index)) || !Divisible(stride, lanes_)) return false;
  }
  const auto split = math_.Split(offset.affine, vector_);
  if (!split || !split->stride->IsConst(1) || !Divisible(split->base, lanes_)) return false;
  const int64_t bytes = std::min<int64_t>(16, lanes_ * DTypeBytes(dtype));
  if (!probing_) Require(Cat("((u64)", pointer, " & ", bytes - 1, "u) == 0"));
  return true;
}

bool Emitter::IsVectorLoad(const Element* element, int guard) {
  const auto slot = slots_.find(element->value);
  if (slot == slots_.end() || accumulated_.contains(element->value)) return false;
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot->second)];
  const Offset offset = OffsetOf(element->args, tensor, guard);
  if (!IsLane(VarsOf(offset)) || !IsUniformGuard(guard)) return false;
  return IsVectorOffset(offset, tensor.dtype, Cat("a.t", slot->second));
}

std::string Emitter::LoadText(const Access& access, bool stream) {
  const int slot = slots_.at(access.load->value);
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot)];
  const std::string bytes = Cat("<", BytesOf(access), ">(");
  const std::string address =
      Cat("a.t", slot, " + (", OffsetText(OffsetOf(access.load->args, tensor, access.guard), false),
          ")");
  const std::string load = Cat(stream ? "lds" : "ldv", bytes, address, ")");
  return access.guard == 0 ? load
                           : Cat(GuardText(access.guard), " ? ", load, " : none", bytes, ")");
}

const ir::Expr* Emitter::OffsetOfLoad(const Access& access) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slots_.at(access.load->value))];
  const Offset offset = OffsetOf(access.load->args, tensor, access.guard);
  return offset.data.empty() ? offset.affine : nullptr;
}

std::string Emitter::ScalarText(const Access& access) {
  return Cat("ld_", Suffix(access.load->dtype), "(", LoadAddress(access), ")");
}

std::string Emitter::LoadAddress(const Access& access) {
  const int slot = slots_.at(access.load->value);
  return Cat("a.t", slot, " + (",
             OffsetText(OffsetOf(access.load->args, nest_.tensors[static_cast<size_t>(slot)],
                                 access.guard),
                        false),
             ")");
}

int Emitter::BytesOf(const Access& access) const {
  return lanes_ * static_cast<int>(DTypeBytes(access.load->dtype));
}

bool Emitter::Varies(const Access& access, std::span<const Loop> loops) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slots_.at(access.load->value))];
  const uint64_t vars = VarsOf(OffsetOf(access.load->args, tensor, access.guard));
  return std::ranges::any_of(loops,
                             [&](const Loop& loop) { return (vars & BitOf(loop.variable)) != 0; });
}

std::string Emitter::LoadValue(const Element* element, int guard) {
  if (!slots_.contains(element->value)) {
    error_ = Internal("a kernel reads an accumulator before it is complete");
    return "0";
  }
  const int slot = slots_.at(element->value);
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot)];
  if (IsVectorLoad(element, guard)) {
    std::string pack;
    if (const auto made = packs_.find({element, guard}); made != packs_.end()) {
      pack = made->second;
    } else {
      const size_t level = LevelOf(VarsOf(element) | VarsOf(guard), false);
      const Key key = {element, guard, false};
      const auto known = levels_[level].memo.find(key);
      if (known != levels_[level].memo.end()) {
        pack = known->second;
      } else {
        pack = Named(key, level, Cat("Pk<", BytesOf({element, guard}), ">"),
                     LoadText({element, guard}, false));
      }
    }
    return Cat("get_", Suffix(tensor.dtype), "(", pack, ", e)");
  }
  const Offset offset = OffsetOf(element->args, tensor, guard);
  const std::string load = Cat("ld_", Suffix(tensor.dtype), "(a.t", slot, " + (",
                               OffsetText(offset, IsLane(VarsOf(offset))), "))");
  if (guard == 0) return load;
  return Cat("(", GuardText(guard), " ? ", load, " : 0)");
}

void Emitter::Visit(const Element* element, int guard,
                    std::set<std::pair<const Element*, int>>& seen, std::vector<Access>& found,
                    int* misfits) {
  if (!HasLoad(element)) return;
  if (!seen.insert({element, guard}).second) return;
  if (element->kind == Element::Kind::kLoad) {
    if (!slots_.contains(element->value) || accumulated_.contains(element->value)) return;
    for (const Element* arg : element->args) Visit(arg, guard, seen, found, misfits);
    if (IsVectorLoad(element, guard)) {
      found.push_back({element, guard});
    } else if (misfits != nullptr && IsLane(VarsOf(element) | VarsOf(guard))) {
      ++*misfits;
    }
    return;
  }
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    const Element* condition = element->args[0];
    if (const std::optional<bool> decided = math_.Decide(condition)) {
      Visit(element->args[*decided ? 1 : 2], guard, seen, found, misfits);
      return;
    }
    if (math_.IsIndexCondition(condition)) {
      for (const bool holds : {true, false}) {
        const Element* side = element->args[holds ? 1 : 2];
        if (HasLoad(side)) Visit(side, AddGuard(guard, condition, holds), seen, found, misfits);
      }
      return;
    }
  }
  for (const Element* arg : element->args) Visit(arg, guard, seen, found, misfits);
}

std::vector<Emitter::Access> Emitter::VectorLoads(const std::vector<const Element*>& roots) {
  std::vector<Access> found;
  std::set<std::pair<const Element*, int>> seen;
  for (const Element* root : roots) Visit(root, 0, seen, found, nullptr);
  return found;
}

int Emitter::Misfits(const Region& region) {
  probing_ = true;
  int misfits = 0;
  std::vector<Access> found;
  std::set<std::pair<const Element*, int>> seen;
  const auto loop = [&](const Loop& l) {
    if (l.variable != vector_) return;
    const ir::Expr* begin = Import(l.begin);
    if (!Divisible(begin, lanes_) || !Divisible(pool_.Sub(Import(l.end), begin), lanes_))
      misfits += 1000;
  };
  for (const Loop& l : region.grid) loop(l);
  for (const Loop& l : region.serial) loop(l);
  for (const Phase& phase : region.phases) {
    for (const Loop& l : phase.loops) loop(l);
    for (const Accumulator& accumulator : phase.accumulators)
      Visit(accumulator.body, 0, seen, found, &misfits);
    for (const Carried& carried : phase.carried)
      Visit(carried.accumulator.body, 0, seen, found, &misfits);
    for (const Store& store : phase.stores) {
      Visit(store.value, 0, seen, found, &misfits);
      const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
      const Offset offset = OffsetOf(store.index, tensor, 0);
      if (IsLane(VarsOf(offset)) && !IsVectorOffset(offset, tensor.dtype, {})) misfits += 2;
    }
  }
  probing_ = false;
  return misfits;
}

std::string Emitter::AddressOf(int tensor, std::span<const Element* const> index) {
  const Offset offset = OffsetOf(index, nest_.tensors[static_cast<size_t>(tensor)], 0);
  return Cat("a.t", tensor, " + (", OffsetText(offset, false), ")");
}

bool Emitter::IsVectorStore(const Store& store) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
  return IsVectorOffset(OffsetOf(store.index, tensor, 0), tensor.dtype, Cat("a.t", store.tensor));
}

// The value to store in registers: packing rounds to 16 bits.
std::string Emitter::StoredText(const Element* value, DType dtype) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (is_half && value->kind == Element::Kind::kConvert && value->args[0]->dtype == DType::kFloat32)
    return ValueText(value->args[0], 0);
  return ValueText(value, 0);
}

void Emitter::Lanes(const std::function<void()>& body) {
  if (lanes_ <= 1 || vector_ < 0) {
    body();
    return;
  }
  Open();
  lane_level_ = levels_.size() - 1;
  body();
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
}

bool Emitter::DependsOn(const Element* element, std::span<const Loop> loops) {
  const uint64_t vars = VarsOf(element);
  return (vars & kRowBit) != 0 || std::ranges::any_of(loops, [&](const Loop& loop) {
           return (vars & BitOf(loop.variable)) != 0;
         });
}

void Emitter::Body(std::span<const Accumulator> accumulators, std::span<const std::string> names,
                   std::span<const Store> stores, std::span<const Product> products) {
  struct Vector {
    const Store* store;
    std::string array;
  };
  std::vector<Vector> vectors;
  const bool has_lanes = lanes_ > 1 && vector_ >= 0;
  if (has_lanes) {
    for (const Store& store : stores) {
      if (!IsVectorStore(store)) continue;
      vectors.push_back({&store, NewName("o")});
      const DType dtype = nest_.tensors[static_cast<size_t>(store.tensor)].dtype;
      Line(TypeText(dtype), " ", vectors.back().array, "[", lanes_, "];");
    }
    Open();
    lane_level_ = levels_.size() - 1;
  }
  for (size_t k = 0; k < accumulators.size(); ++k) {
    const std::string value = ValueText(accumulators[k].body, 0);
    Line(names[k], " = ", ReduceName(accumulators[k].kind), "::of(", names[k], ", ", value, ");");
  }
  for (const Product& product : products) {
    std::vector<std::string> factors;
    for (const Element* factor : product.factors) factors.push_back(ValueText(factor, 0));
    Line(product.name, " += ", base::Join(factors, " * "), ";");
  }
  for (const Store& store : stores) {
    const DType dtype = nest_.tensors[static_cast<size_t>(store.tensor)].dtype;
    const auto vector = std::ranges::find(vectors, &store, &Vector::store);
    const std::string value = StoredText(store.value, dtype);
    if (vector != vectors.end()) {
      Line(vector->array, "[e] = ", value, ";");
      continue;
    }
    const Offset offset =
        OffsetOf(store.index, nest_.tensors[static_cast<size_t>(store.tensor)], 0);
    Line("st_", Suffix(dtype), "(a.t", store.tensor, " + (",
         OffsetText(offset, IsLane(VarsOf(offset))), "), ", value, ");");
  }
  if (!has_lanes) return;
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
  for (const Vector& vector : vectors) {
    const DType dtype = nest_.tensors[static_cast<size_t>(vector.store->tensor)].dtype;
    Line("stv(", AddressOf(vector.store->tensor, vector.store->index), ", put_", Suffix(dtype), "(",
         vector.array, "));");
  }
}

void Emitter::AddExponentials(const Element* x, const std::string& base, const std::string& sum) {
  const bool has_lanes = lanes_ > 1 && vector_ >= 0;
  if (has_lanes) {
    Open();
    lane_level_ = levels_.size() - 1;
  }
  const std::string value = ValueText(x, 0);
  Line(sum, " += fast_exp(", value, " - ", base, ");");
  if (!has_lanes) return;
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
}

void Emitter::KeepPacks(std::span<const std::pair<Access, std::string>> arrays, int count) {
  for (const auto& [access, name] : arrays)
    Line("#pragma unroll\nfor (int u = 0; u < ", count, "; ++u) keep(", name, "[u]);");
}

// a + b, a - b or a * b of bf16 vectors, rounded to bf16, two lanes at a time; empty for anything else.
std::string Emitter::PairsText(const Element* element) {
  if (lanes_ <= 1 || element->kind != Element::Kind::kConvert || element->dtype != DType::kBFloat16)
    return {};
  const Element* op = element->args[0];
  if (op->kind != Element::Kind::kPrim || op->dtype != DType::kFloat32) return {};
  const std::string_view name = op->prim == Prim::kAdd   ? "add_bf16"
                                : op->prim == Prim::kSub ? "sub_bf16"
                                : op->prim == Prim::kMul ? "mul_bf16"
                                                         : "";
  if (name.empty()) return {};
  std::vector<std::string> packs;
  for (const Element* arg : op->args) {
    if (arg->kind != Element::Kind::kConvert || arg->args[0]->dtype != DType::kBFloat16) return {};
    const auto known = packs_.find({arg->args[0], 0});
    if (known == packs_.end()) return {};
    packs.push_back(known->second);
  }
  return Cat(name, "(", packs[0], ", ", packs[1], ")");
}

std::string Emitter::PackOf(const Element* element, DType dtype) {
  if (const std::string pairs = PairsText(element); !pairs.empty()) return pairs;
  const std::string array = NewName("o");
  Line(TypeText(dtype), " ", array, "[", lanes_, "];");
  Open();
  lane_level_ = levels_.size() - 1;
  const std::string value = StoredText(element, dtype);
  Line(array, "[e] = ", value, ";");
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
  const std::string pack = NewName("p");
  Line("const auto ", pack, " = put_", Suffix(dtype), "(", array, ");");
  return pack;
}

}  // namespace hir::codegen::gpu
