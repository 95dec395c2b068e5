// Loads of elements: addresses, masks, contiguous vectors, gathers.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/element_emitter.h"
#include "csrc/codegen/cpu/pairs.h"

namespace hir::codegen::cpu {

using base::Cat;
using ir::Expr;

std::string ScopeOf(std::string_view base) {
  if (!base.starts_with("%t")) return {};  // Memory of the function's own.
  return AliasScopeOf(std::stoi(std::string(base.substr(2))));
}

const Expr* ElementEmitter::OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard) {
  const Expr* offset = pool_.Const(0);
  for (size_t i = 0; i < index.size(); ++i) {
    if (tensor.strides[i]->IsConst(0)) continue;
    const Expr* at = math_.ToExpr(index[i]);
    if (at == nullptr) at = dependences_.DataSymbol(index[i], index[i]->has_load ? guard : 0);
    offset = pool_.Add(offset, pool_.Mul(at, pool_.Import(tensor.strides[i])));
  }
  return offset;
}

const Expr* ElementEmitter::PlainOffsetOf(const Element* load, const Tensor& tensor) {
  const auto is_data = [&](const Element* at) { return math_.ToExpr(at) == nullptr; };
  return std::ranges::any_of(load->args, is_data) ? nullptr : OffsetOf(load->args, tensor);
}

V ElementEmitter::EmitLoad(const Element* load, int guard, size_t level) {
  const auto result = results_.find(load->value);
  if (result != results_.end()) {
    const AccumulatorResult& r = result->second;
    if (r.array.empty()) return r.scalar;
    const Expr* offset =
        pool_.Sub(pool_.Symbol(VariableSymbol(region_->columns->variable)), pool_.Import(region_->columns->begin));
    return LoadFrom(r.array, r.dtype, offset, 0, level);
  }
  if (const auto transposed = kept_.TransposedAt(load))
    return LoadFrom(transposed->array, transposed->dtype, transposed->offset, 0, level);
  const KeptElements::Place place = InMemory(load, guard);
  return LoadFrom(place.array, place.dtype, place.offset, guard, level);
}

// Where `load`, of a tensor, is read in memory.
KeptElements::Place ElementEmitter::InMemory(const Element* load, int guard) {
  const int slot = slots_.at(load->value);
  const Tensor& tensor = TensorAt(slot);
  return {tensor.dtype, Cat("%t", slot), OffsetOf(load->args, tensor, guard)};
}

V ElementEmitter::LoadFrom(const std::string& base, DType dtype, const Expr* offset, int guard, size_t level) {
  const Ty type = MemoryTypeOf(dtype);
  const int bytes = BytesOf(type);
  const std::string scope = ScopeOf(base);
  const auto finish = [&](const V& loaded) {
    if (dtype != DType::kBool) return loaded;
    return writer_.Compare(scopes_.CodeAt(level), "ne", loaded, IntConstant(Ty::kI8, 0, loaded.lanes));
  };
  if (!Varies(dependences_.Of(offset))) {
    const V at = EmitExpr(offset);
    std::string& code = scopes_.CodeAt(level);
    V address = writer_.Address(code, base, type, at);
    if (guard != 0) {
      V allowed = EmitGuard(guard);
      if (allowed.lanes > 1) {
        allowed = writer_.Let(code, Ty::kI1, 1,
                              Cat("call i1 @llvm.vector.reduce.or.v", allowed.lanes, "i1(", Typed(allowed), ")"));
        writer_.declarations.insert(
            Cat("declare i1 @llvm.vector.reduce.or.v", lanes_.count, "i1(<", lanes_.count, " x i1>)"));
      }
      address = writer_.Select(code, allowed, address, {zero_, Ty::kPtr, 1});
    }
    return finish(
        writer_.Let(code, type, 1, Cat("load ", TypeText(type, 1), ", ptr ", address.name, ", align ", bytes, scope)));
  }
  std::string& code = scopes_.Here();
  const int lanes = lanes_.count;
  const auto affine = SplitLanes(offset);
  const bool neighbours = affine && affine->stride->IsConst(1);
  const std::string mask = MaskFor(guard);
  const std::string vector = TypeText(type, lanes);
  if (neighbours) {
    const V address = writer_.Address(code, base, type, EmitExpr(offset));
    const V loaded = mask.empty() ? writer_.Let(code, type, lanes,
                                                Cat("load ", vector, ", ptr ", address.name, ", align ", bytes, scope))
                                  : EmitMaskedLoad(base, type, address, mask);
    return finish(lanes_.paired ? EmitInPairs(writer_, code, loaded) : loaded);
  }
  const V addresses = writer_.Address(code, base, type, EmitExprLanes(offset));
  return finish(EmitGather(base, type, addresses, mask));
}

// lanes_.count neighbours of `base` from `address` on, 0 where `mask` has none.
V ElementEmitter::EmitMaskedLoad(const std::string& base, Ty type, const V& address, const std::string& mask) {
  const int lanes = lanes_.count;
  const std::string vector = TypeText(type, lanes);
  const std::string name = Cat("llvm.masked.load.", Suffix(type, lanes), ".p0");
  writer_.declarations.insert(Cat("declare ", vector, " @", name, "(ptr, i32, <", lanes, " x i1>, ", vector, ")"));
  return writer_.Let(scopes_.Here(), type, lanes,
                     Cat("call ", vector, " @", name, "(ptr ", address.name, ", i32 ", BytesOf(type), ", ", mask, ", ",
                         vector, " zeroinitializer)", ScopeOf(base)));
}

V ElementEmitter::EmitGather(const std::string& base, Ty type, const V& addresses, const std::string& mask) {
  const int lanes = lanes_.count;
  const std::string vector = TypeText(type, lanes);
  const std::string name = Cat("llvm.masked.gather.", Suffix(type, lanes), ".v", lanes, "p0");
  writer_.declarations.insert(
      Cat("declare ", vector, " @", name, "(<", lanes, " x ptr>, i32, <", lanes, " x i1>, ", vector, ")"));
  const std::string all = mask.empty() ? Typed(IntConstant(Ty::kI1, 1, lanes)) : mask;
  return writer_.Let(scopes_.Here(), type, lanes,
                     Cat("call ", vector, " @", name, "(", Typed(addresses), ", i32 ", BytesOf(type), ", ", all, ", ",
                         vector, " zeroinitializer)", ScopeOf(base)));
}

std::string ElementEmitter::MaskFor(int guard) {
  if (guard == 0) return lanes_.masked ? Typed(lanes_.mask) : std::string();
  HIR_CHECK(!lanes_.paired);  // LoopWidths::IsPaired: no loop with guards is.
  V allowed = writer_.Splat(scopes_.Here(), EmitGuard(guard), lanes_.count);
  if (lanes_.masked) allowed = writer_.Binary(scopes_.Here(), "and", allowed, lanes_.mask);
  // Where the lanes of a whole register are known to be forbidden, and two loads have the mask, LLVM 19 makes the
  // second one's part of that register a load without a mask, beyond the tensor's end.
  if (!HasMasks(target_)) {
    const V never = writer_.Splat(scopes_.Here(), never_, lanes_.count);
    allowed = writer_.Binary(scopes_.Here(), "or", allowed, never);
  }
  return Typed(allowed);
}

// float32 of a load of neighbours; nothing where it is something else.
std::optional<V> ElementEmitter::EmitWidenedPairs(const Element* convert, int guard) {
  const Element* load = convert->args[0];
  if (!lanes_.paired || convert->dtype != DType::kFloat32 || load->dtype != DType::kBFloat16 || SlotOf(load) < 0 ||
      guard != 0 || IsSaved(load) || !Varies(dependences_.Of(load))) {
    return std::nullopt;
  }
  const auto transposed = kept_.TransposedAt(load);
  const KeptElements::Place place = transposed ? *transposed : InMemory(load, guard);
  const auto affine = SplitLanes(place.offset);
  if (!affine || !affine->stride->IsConst(1)) return std::nullopt;
  std::string& code = scopes_.Here();
  const int lanes = lanes_.count / 2;
  const V address = writer_.Address(code, place.array, Ty::kI16, EmitExpr(place.offset));
  const V both =
      writer_.Let(code, Ty::kI32, lanes,
                  Cat("load ", TypeText(Ty::kI32, lanes), ", ptr ", address.name, ", align 2", ScopeOf(place.array)));
  return EmitPairsWidened(writer_, code, both);
}

}  // namespace hir::codegen::cpu
