// Scopes, what varies with what, and index expressions.
#include "csrc/codegen/gpu/emitter.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;
using ir::ExprKind;

Emitter::Emitter(const LoopNest& nest, const Options& options) : nest_(nest), options_(options), math_(pool_) {
  levels_.resize(1);
  guards_.emplace_back();
  Line("typedef ", options.narrow ? "int" : "i64", " ix;");
  Line("typedef ", options.narrow ? "u32" : "u64", " ux;");
  Line("const int t = TID;");
  for (size_t i = 0; i < nest.tensors.size(); ++i) {
    if (nest.tensors[i].role != Tensor::Role::kOutput) slots_[nest.tensors[i].value] = static_cast<int>(i);
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
    for (const Accumulator& accumulator : phase.accumulators) accumulated_.insert(accumulator.value);
  }
  if (region_variables_.size() > kVariablesMax) {
    error_ = Unimplemented(Cat("a kernel with ", region_variables_.size(), " loops; the limit is ", kVariablesMax));
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
  if (expr->kind == ExprKind::kSymbol && VariableOf(expr->symbol) >= 0) vars = BitOf(VariableOf(expr->symbol));
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
  for (const auto& [index, stride] : offset.data) vars |= VarsOf(index) | VarsOf(stride) | VarsOf(offset.guard);
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

// --- expressions -----------------------------------------------------------------------------------------------

std::string Emitter::Named(const Key& key, size_t level, std::string_view type, const std::string& text) {
  std::string name = NewName("e");
  Append(levels_[level].code, "const ", type, " ", name, " = ", text, ";\n");
  levels_[level].memo[key] = name;
  return name;
}

std::string Emitter::ExprText(const ir::Expr* expr, bool is_lane) {
  if (expr->IsConst()) {
    return options_.narrow ? IntText(DType::kInt32, expr->value) : IntText(DType::kInt64, expr->value);
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
      return Cat(base::Join(args, " + "), expr.value != 0 ? " + " : "", expr.value != 0 ? constant(expr.value) : "");
    case ExprKind::kMul:
      return Cat(expr.value != 1 ? constant(expr.value) : "", expr.value != 1 ? " * " : "", base::Join(args, " * "));
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
  const auto call = [&](std::string_view name) { return Cat(name, "<i64>(", args[0], ", ", args[1], ")"); };
  switch (expr->kind) {
    case ExprKind::kAdd: return Cat("(", base::Join(args, " + "), " + ", IntText(DType::kInt64, expr->value), ")");
    case ExprKind::kMul: return Cat("(", IntText(DType::kInt64, expr->value), " * ", base::Join(args, " * "), ")");
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
      if (!is_ragged_ && !Divisible(own, lanes_)) error_ = Internal("vectors along a loop that they do not divide");
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

}  // namespace hir::codegen::gpu
