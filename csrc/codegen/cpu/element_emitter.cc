// Elements as instructions, each computed once, as far out as it can be, and the guards under which they are read.
#include "csrc/codegen/cpu/element_emitter.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/prims.h"

namespace hir::codegen::cpu {

using base::Append;
using base::Cat;
using ir::Expr;

namespace {

constexpr size_t kRegionVariablesMax = 62;  // Sets of them are bits of a word; one is taken.

}  // namespace

ElementEmitter::ElementEmitter(const LoopNest& nest, const Target& target, KeptElements& kept)
    : nest_(nest),
      target_(target),
      kept_(kept),
      math_(pool_),
      scopes_(writer_, nest.num_variables),
      dependences_(scopes_, math_) {
  writer_.fma = target.fma;
  writer_.half = target.half;
  writer_.avx512 = HasMasks(target);
}

std::string ElementEmitter::EmitArguments() {
  std::string arguments;
  int slot = 0;
  const auto load = [&](const std::string& name, std::string_view type) {
    Append(arguments, "  %p", slot, " = getelementptr i64, ptr %args, i64 ", slot, "\n  ", name, " = load ", type,
           ", ptr %p", slot, ", align 8\n");
    ++slot;
  };
  for (size_t i = 0; i < nest_.tensors.size(); ++i) {
    if (nest_.tensors[i].role == Tensor::Role::kInput) slots_[nest_.tensors[i].value] = static_cast<int>(i);
    if (nest_.tensors[i].role == Tensor::Role::kWorkspace) slots_[nest_.tensors[i].value] = static_cast<int>(i);
    load(Cat("%t", i), "ptr");
  }
  for (size_t i = 0; i < nest_.symbols.size(); ++i) {
    symbols_[nest_.symbols[i]] = {Cat("%s", i), Ty::kI64, 1};
    load(Cat("%s", i), "i64");
  }
  for (size_t i = 0; i < nest_.scalars.size(); ++i) {
    const DType dtype = nest_.scalars[i]->type->dtype;
    const bool real = IsFloat(dtype);
    load(Cat("%x", i), real ? "double" : "i64");
    scalars_[nest_.scalars[i]] = EmitConvert(writer_, scopes_.Here(), real ? DType::kFloat64 : DType::kInt64, dtype,
                                             {Cat("%x", i), real ? Ty::kF64 : Ty::kI64, 1});
  }
  zero_ = writer_.Alloca(Ty::kI64, 1);
  Append(scopes_.Here(), "  store i64 0, ptr ", zero_, ", align 8\n");
  if (!HasMasks(target_)) {
    const V bits = writer_.Let(scopes_.Here(), Ty::kI64, 1, Cat("load volatile i64, ptr ", zero_, ", align 8"));
    never_ = writer_.Let(scopes_.Here(), Ty::kI1, 1, Cat("icmp ne i64 ", bits.name, ", 0"));
  }
  return arguments;
}

Status ElementEmitter::StartRegion(const Region& region) {
  region_ = &region;
  results_.clear();
  scopes_.StartRegion();
  const auto add = [&](const Loop& loop) {
    const ir::Expr* last = pool_.Sub(pool_.Import(loop.end), pool_.Const(1));
    if (scopes_.AddVariable(loop.variable)) {
      math_.SetRange(loop.variable, pool_.Import(loop.begin), last);
    } else {  // Another phase's, too.
      math_.WidenRange(loop.variable, pool_.Import(loop.begin), last);
    }
  };
  std::ranges::for_each(region.grid, add);
  std::ranges::for_each(region.serial, add);
  if (region.columns) add(*region.columns);
  for (const Phase& phase : region.phases) std::ranges::for_each(phase.loops, add);
  std::ranges::for_each(region.ahead.loops, add);
  dependences_.StartRegion(region);
  payloads_.StartRegion(region);
  const size_t variables = scopes_.NumVariables();
  if (variables <= kRegionVariablesMax) return Status();
  return Unimplemented(Cat("a kernel with ", variables, " loops; the limit is ", kRegionVariablesMax));
}

int ElementEmitter::SlotOf(const Element* element) const {
  if (element->kind != Element::Kind::kLoad) return -1;
  const auto slot = slots_.find(element->value);
  return slot == slots_.end() ? -1 : slot->second;
}

void ElementEmitter::SetResult(const ir::Value* value, AccumulatorResult result) {
  results_[value] = std::move(result);
  dependences_.AddResult(value);
}

V ElementEmitter::EmitGuard(int guard) {
  const Guard at = dependences_.guards().at(guard);
  const uint64_t variables = dependences_.OfGuard(guard);
  const bool varies = Varies(variables);
  const size_t level = varies ? scopes_.Innermost() : scopes_.LevelOf(variables);
  const Scopes::Key key = {&nest_, guard, dependences_.epoch()};
  if (const V* known = scopes_.Find(key, level)) return *known;
  V condition = EmitElement(at.condition, at.condition->has_load ? at.parent : 0);
  std::string& code = scopes_.CodeAt(level);
  if (varies) condition = writer_.Splat(code, condition, lanes_.count);
  if (!at.holds) condition = writer_.Binary(code, "xor", condition, IntConstant(Ty::kI1, 1, condition.lanes));
  if (at.parent != 0) {
    V parent = EmitGuard(at.parent);
    if (varies) parent = writer_.Splat(code, parent, lanes_.count);
    condition = writer_.Binary(code, "and", condition, parent);
  }
  return scopes_.Remember(key, level, condition);
}

V ElementEmitter::EmitElement(const Element* element, int guard) {
  switch (element->kind) {
    case Element::Kind::kFloat: {
      const double value = element->dtype == DType::kFloat32 ? static_cast<float>(element->number) : element->number;
      return FloatConstant(TypeOf(element->dtype), value);
    }
    case Element::Kind::kInt: return IntConstant(TypeOf(element->dtype), element->integer);
    case Element::Kind::kScalar: return scalars_.at(element->value);
    case Element::Kind::kExtent:
    case Element::Kind::kIndex:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kPrim:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: break;
  }
  if (const Expr* expr = math_.ToExpr(element))
    return Varies(dependences_.Of(expr)) ? EmitExprLanes(expr) : EmitExpr(expr);
  if (!element->has_load) guard = 0;
  const uint64_t variables = dependences_.Of(element) | dependences_.OfGuard(guard);
  const size_t level = scopes_.LevelOf(variables);
  const Scopes::Key key = {element, guard, dependences_.epoch()};
  if (const V* known = scopes_.Find(key, level)) return *known;
  const V value = EmitUncached(element, guard, level);
  return scopes_.Remember(key, level, value);
}

V ElementEmitter::EmitUncached(const Element* element, int guard, size_t level) {
  if (const auto saved = kept_.SavedAt(element)) return LoadFrom(saved->array, saved->dtype, saved->offset, 0, level);
  if (element->kind == Element::Kind::kLoad) return EmitLoad(element, guard, level);
  if (element->kind == Element::Kind::kConvert) return EmitConverted(element, guard, level);
  HIR_CHECK(element->kind == Element::Kind::kPrim);
  if (element->prim == fusion::Prim::kSelect) {
    return EmitSelect(element, guard, level, [this](const Element* e, int g) { return EmitElement(e, g); });
  }
  std::vector<V> args;
  int lanes = 1;
  for (const Element* arg : element->args) {
    args.push_back(EmitElement(arg, guard));
    lanes = std::max(lanes, args.back().lanes);
  }
  std::string& code = scopes_.CodeAt(level);
  for (V& arg : args) arg = writer_.Splat(code, arg, lanes);
  return EmitPrim(writer_, code, element->prim, element->args[0]->dtype, args);
}

V ElementEmitter::EmitConverted(const Element* element, int guard, size_t level) {
  if (const std::optional<V> widened = EmitWidenedPairs(element, guard)) return *widened;
  if (const std::optional<V> rounded = EmitRounded(element, guard, level)) return *rounded;
  const bool to_16_bits = element->dtype == DType::kFloat16 || element->dtype == DType::kBFloat16;
  if (to_16_bits && element->args[0]->dtype == DType::kFloat32 && IsWidened(element->args[0], element->dtype)) {
    return EmitNarrow(element->args[0], element->dtype, guard);
  }
  const V x = EmitElement(element->args[0], guard);
  const bool plain = element->dtype == DType::kBFloat16 && element->args[0]->dtype == DType::kFloat32 &&
                     payloads_.IsShort(element->args[0]);
  if (plain) return EmitRoundToBFloat16(writer_, scopes_.CodeAt(level), x);
  return EmitConvert(writer_, scopes_.CodeAt(level), element->args[0]->dtype, element->dtype, x);
}

// float32 of bfloat16 of float32, which stays in its 32 bits; nothing where `element` is something else.
std::optional<V> ElementEmitter::EmitRounded(const Element* element, int guard, size_t level) {
  const Element* narrow = element->args[0];
  if (element->dtype != DType::kFloat32 || narrow->kind != Element::Kind::kConvert ||
      narrow->dtype != DType::kBFloat16 || narrow->args[0]->dtype != DType::kFloat32 || IsSaved(narrow)) {
    return std::nullopt;
  }
  const Element* wide = narrow->args[0];
  const V x = EmitElement(wide, guard);
  if (IsWidened(wide, DType::kBFloat16)) return x;
  std::string& code = scopes_.CodeAt(level);
  const V bits = EmitBFloat16Bits(writer_, code, x, payloads_.IsShort(wide));
  const V upper = writer_.Binary(code, "and", bits, IntConstant(Ty::kI32, 0xffff0000, x.lanes));
  return writer_.CastTo(code, "bitcast", upper, Ty::kF32);
}

V ElementEmitter::EmitSelect(const Element* element, int guard, size_t level,
                             const std::function<V(const Element*, int)>& side) {
  const Element* condition = element->args[0];
  if (const std::optional<bool> decided = math_.Decide(condition)) return side(element->args[*decided ? 1 : 2], guard);
  // Conditions on indices say which loads are allowed; of most conditions on data both sides are elements that exist.
  const bool guards = math_.GuardsSides(element);
  const V chosen = EmitElement(condition, condition->has_load ? guard : 0);
  const V yes = side(element->args[1],
                     guards && element->args[1]->has_load ? dependences_.guards().Add(guard, condition, true) : guard);
  const V no = side(element->args[2],
                    guards && element->args[2]->has_load ? dependences_.guards().Add(guard, condition, false) : guard);
  const int lanes = std::max({chosen.lanes, yes.lanes, no.lanes});
  std::string& code = scopes_.CodeAt(level);
  const V all = writer_.Splat(code, chosen, lanes), a = writer_.Splat(code, yes, lanes);
  return writer_.Select(code, all, a, writer_.Splat(code, no, lanes));
}

// Such an element in its 16 bits, without rounding.
V ElementEmitter::EmitNarrow(const Element* element, DType dtype, int guard) {
  if (element->kind == Element::Kind::kConvert) return EmitElement(element->args[0], guard);
  if (element->kind == Element::Kind::kFloat) {
    const auto value = static_cast<float>(element->number);
    return IntConstant(Ty::kI16, dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value));
  }
  const size_t level = scopes_.LevelOf(dependences_.Of(element) | dependences_.OfGuard(guard));
  return EmitSelect(element, guard, level, [&](const Element* e, int g) { return EmitNarrow(e, dtype, g); });
}

}  // namespace hir::codegen::cpu
