// Vectors of bfloat16 without shuffles. A register of memory is lanes of 32 bits that hold two elements each: one shift
// widens the even elements, one mask the odd ones, and a vector of float32 is the even ones and then the odd ones.
// All vectors of a loop are in that order, so arithmetic does not see it; what is not bfloat16 is shuffled when it is
// loaded or stored, and sums that are carried from row to row when they are complete. (Widened and narrowed in memory's
// order, 32 elements cost ten instructions of one port; so they cost four.)
#include <bit>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

using base::Cat;

namespace {

constexpr int64_t kUpper = 0xffff0000;
constexpr int64_t kFirstOrBoth = 0xf8;  // a | (b & c), of vpternlog.

int EvenFirst(int lane, int lanes) { return lane < lanes / 2 ? 2 * lane : 2 * (lane - lanes / 2) + 1; }

}  // namespace

// Where bfloat16 is most of what is read and written, and no condition masks it.
bool Emitter::IsPaired(const Phase& phase, const Loop& inner) {
  const int lanes = LanesFor(inner);
  const bool known = inner.begin->IsConst(0) && inner.end->IsConst();
  if (std::endian::native != std::endian::little || lanes * 4 != target_.vector_bytes || lanes < 8 ||
      (known && inner.end->value < 2 * lanes) || (region_->columns && !phase.accumulators.empty())) {
    return false;
  }
  const uint64_t lane = BitOf(inner.variable);
  int narrow = 0, wide = 0;
  bool is_guarded = false;
  const auto count = [&](const Tensor& tensor) { ++(tensor.dtype == DType::kBFloat16 ? narrow : wide); };
  std::unordered_map<const Element*, bool> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect)
      is_guarded = is_guarded || math_.GuardsSides(e);
    const auto slot = slots_.find(e->value);
    if (e->kind != Element::Kind::kLoad || (VariablesOf(e) & lane) == 0) return;
    if (slot == slots_.end()) {
      ++wide;
    } else {
      count(nest_.tensors[static_cast<size_t>(slot->second)]);
    }
  };
  for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
  for (const Carried& carried : phase.carried) {
    visit(visit, carried.accumulator.body);
    ++wide;
  }
  for (const Store& store : phase.stores) {
    visit(visit, store.value);
    count(nest_.tensors[static_cast<size_t>(store.tensor)]);
  }
  return !is_guarded && narrow > wide;
}

V Emitter::EmitPairedIota() const {
  std::string text = "<";
  for (int i = 0; i < lanes_.count; ++i) base::Append(text, i > 0 ? ", " : "", "i64 ", EvenFirst(i, lanes_.count));
  return {text + ">", Ty::kI64, lanes_.count};
}

V Emitter::EmitInPairs(const V& value) {
  const int lanes = value.lanes;
  return writer_.Shuffle(Here(), value, lanes, [&](int i) { return EvenFirst(i, lanes); });
}

V Emitter::EmitInMemoryOrder(const V& value) {
  const int lanes = value.lanes;
  return writer_.Shuffle(Here(), value, lanes, [&](int i) { return i % 2 == 0 ? i / 2 : lanes / 2 + i / 2; });
}

// float32 of a load of neighbours; nothing where it is something else.
std::optional<V> Emitter::EmitWidenedPairs(const Element* convert, int guard) {
  const Element* load = convert->args[0];
  if (!lanes_.paired || convert->dtype != DType::kFloat32 || load->dtype != DType::kBFloat16 ||
      load->kind != Element::Kind::kLoad || !slots_.contains(load->value) || guard != 0 || IsSaved(load) ||
      !Varies(VariablesOf(load))) {
    return std::nullopt;
  }
  const Place place = PlaceOf(load, guard);
  const auto affine = SplitLanes(place.offset);
  if (!affine || !affine->stride->IsConst(1)) return std::nullopt;
  std::string& code = Here();
  const int lanes = lanes_.count / 2;
  const V address = AddressOf(place.base, Ty::kI16, EmitExpr(place.offset), code);
  const V both =
      writer_.Let(code, Ty::kI32, lanes,
                  Cat("load ", TypeText(Ty::kI32, lanes), ", ptr ", address.name, ", align 2", ScopeOf(place.base)));
  const V even = writer_.Binary(code, "shl", both, IntConstant(Ty::kI32, 16, lanes));
  const V odd = writer_.Binary(code, "and", both, IntConstant(Ty::kI32, kUpper, lanes));
  const V all = writer_.Shuffle(code, even, odd, 2 * lanes, [](int i) { return i; });
  return writer_.CastTo(code, "bitcast", all, Ty::kF32);
}

// The store of bfloat16 made of float32, at neighbours.
std::function<void()> Emitter::PrepareStoreOfPairs(const Store& store) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
  const Element* value = store.value;
  if (!lanes_.paired || tensor.dtype != DType::kBFloat16 || value->kind != Element::Kind::kConvert ||
      value->args[0]->dtype != DType::kFloat32) {
    return {};
  }
  const ir::Expr* offset = OffsetOf(store.index, tensor, 0);
  const auto affine = SplitLanes(offset);
  if (!affine || !affine->stride->IsConst(1)) return {};
  std::string& code = Here();
  const int lanes = lanes_.count / 2;
  const V x = writer_.Splat(code, EmitElement(value->args[0], 0), 2 * lanes);
  const V bits = IsWidened(value->args[0], DType::kBFloat16)
                     ? writer_.CastTo(code, "bitcast", x, Ty::kI32)
                     : EmitBFloat16Bits(writer_, code, x, HasShortPayload(value->args[0]));
  const auto half = [&](int first) { return writer_.Shuffle(code, bits, lanes, [&](int i) { return first + i; }); };
  const V even = writer_.Binary(code, "lshr", half(0), IntConstant(Ty::kI32, 16, lanes));
  const V upper = IntConstant(Ty::kI32, kUpper, lanes);
  V both;
  // One instruction, which LLVM leaves alone; of the others it makes a shuffle of words, which is three.
  if (target_.vector_bytes == 64 && lanes == 16) {
    both = writer_.Call(code, "llvm.x86.avx512.pternlog.d.512", Ty::kI32, lanes,
                        {even, half(lanes), upper, IntConstant(Ty::kI32, kFirstOrBoth)});
  } else {
    both = writer_.Binary(code, "or", even, writer_.Binary(code, "and", half(lanes), upper));
  }
  const V address = AddressOf(Cat("%t", store.tensor), Ty::kI16, EmitExpr(offset), code);
  return [this, &tensor, both, address] { EmitStream(tensor, both, address); };
}

}  // namespace hir::codegen::cpu
