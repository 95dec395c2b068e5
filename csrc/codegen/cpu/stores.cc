#include "csrc/codegen/cpu/stores.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/pairs.h"
#include "csrc/codegen/cpu/prims.h"

namespace hir::codegen::cpu {

using base::Append;
using base::Cat;
using ir::Expr;

namespace {

constexpr int64_t kStreamedRun = 256;  // Bytes of one run of a loop: some lines, most of them whole.

}  // namespace

V Stores::StreamBits(const Tensor& tensor, int64_t bytes) {
  // Lines are written whole only by loops that go on for a while.
  const Region& region = elements_.region();
  const bool short_block = region.columns && region.columns_max * BytesOf(MemoryTypeOf(tensor.dtype)) < kStreamedRun;
  if (tensor.role != Tensor::Role::kOutput || bytes < 16 || short_block) return {{}, Ty::kI64, 0};
  ir::ExprPool& pool = elements_.pool();
  const Expr* size = pool.Const(BytesOf(MemoryTypeOf(tensor.dtype)));
  for (const ir::Axis& axis : ir::ValueAxes(*tensor.value->type)) {
    if (axis.kind != ir::AxisKind::kBroadcast) size = pool.Mul(size, pool.Import(axis.extent));
  }
  if (size->IsConst() && size->value < kStreamedBytesMin) return {{}, Ty::kI64, 0};
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(size, symbols);
  for (const std::string_view symbol : symbols) {
    if (std::ranges::find(elements_.nest().symbols, symbol) == elements_.nest().symbols.end()) return {{}, Ty::kI64, 0};
  }
  const Scopes::Key key = {&tensor, 0, static_cast<int>(-bytes)};
  if (const V* known = scopes_.Find(key, 0)) return *known;
  const V total = elements_.EmitExpr(size);
  std::string& code = scopes_.CodeAt(0);
  writer_.declarations.insert("@hir_streamed_bytes = external global i64");
  const V least = writer_.Let(code, Ty::kI64, 1, "load i64, ptr @hir_streamed_bytes, align 8");
  const V large = writer_.Compare(code, "sge", total, least);
  return scopes_.Remember(key, 0,
                          writer_.Select(code, large, IntConstant(Ty::kI64, bytes - 1), IntConstant(Ty::kI64, -1)));
}

void Stores::EmitStream(const Tensor& tensor, const V& value, const V& address) {
  const int64_t bytes = std::min<int64_t>(int64_t{BytesOf(value.type)} * value.lanes, kLineBytes);
  const int element = BytesOf(MemoryTypeOf(tensor.dtype));
  const V bits = StreamBits(tensor, bytes);
  std::string& code = scopes_.Here();
  const std::string plain = Cat("  store ", Typed(value), ", ptr ", address.name, ", align ");
  const std::string scope = ScopeOf(BaseOf(tensor));
  if (elements_.lanes().masked) return EmitMasked(tensor, value, address);
  const auto store = [&] { Append(code, plain, element, scope, "\n"); };
  if (bits.lanes == 0) return store();
  streams_ = true;
  const std::string past = writer_.NewLabel(), cached = writer_.NewLabel(), done = writer_.NewLabel();
  const V low = writer_.Binary(code, "and", writer_.CastTo(code, "ptrtoint", address, Ty::kI64), bits);
  const V streams = writer_.Compare(code, "eq", low, IntConstant(Ty::kI64, 0));
  Append(code, "  br i1 ", streams.name, ", label %", past, ", label %", cached, "\n", past, ":\n", plain, bytes,
         ", !nontemporal !0", scope, "\n  br label %", done, "\n", cached, ":\n");
  store();
  Append(code, "  br label %", done, "\n", done, ":\n");
}

void Stores::EmitMasked(const Tensor& tensor, const V& value, const V& address) {
  const Ty type = MemoryTypeOf(tensor.dtype);
  const Lanes& lanes = elements_.lanes();
  const std::string vector = TypeText(type, lanes.count);
  const std::string name = Cat("llvm.masked.store.", Suffix(type, lanes.count), ".p0");
  writer_.declarations.insert(
      Cat("declare void @", name, "(", vector, ", ptr, i32, ", TypeText(Ty::kI1, lanes.count), ")"));
  Append(scopes_.Here(), "  call void @", name, "(", Typed(value), ", ptr ", address.name, ", i32 ", BytesOf(type),
         ", ", elements_.MaskFor(), ")", ScopeOf(BaseOf(tensor)), "\n");
}

// The store of bfloat16 made of float32, at neighbours.
std::function<void()> Stores::PrepareInPairs(const Store& store) {
  const Tensor& tensor = elements_.TensorAt(store.tensor);
  const Element* value = store.value;
  if (!elements_.lanes().paired || tensor.dtype != DType::kBFloat16 || value->kind != Element::Kind::kConvert ||
      value->args[0]->dtype != DType::kFloat32) {
    return {};
  }
  const ir::Expr* offset = elements_.OffsetOf(store.index, tensor);
  const auto affine = elements_.SplitLanes(offset);
  if (!affine || !affine->stride->IsConst(1)) return {};
  std::string& code = scopes_.Here();
  const V x = writer_.Splat(code, elements_.EmitElement(value->args[0]), elements_.lanes().count);
  const V bits = IsWidened(value->args[0], DType::kBFloat16)
                     ? writer_.CastTo(code, "bitcast", x, Ty::kI32)
                     : EmitBFloat16Bits(writer_, code, x, elements_.HasShortPayload(value->args[0]));
  const V both = EmitPairsNarrowed(writer_, code, bits);
  const V address = writer_.Address(code, BaseOf(tensor), Ty::kI16, elements_.EmitExpr(offset));
  return [this, &tensor, both, address] { EmitStream(tensor, both, address); };
}

std::function<void()> Stores::Prepare(const Store& store) {
  if (std::function<void()> of_pairs = PrepareInPairs(store)) return of_pairs;
  const V value = elements_.EmitElement(store.value);
  return [this, &store, value] { EmitAt(store.tensor, store.index, value); };
}

void Stores::Emit(std::span<const Store> stores) {
  if (!in_place_) {
    for (const Store& store : stores) Prepare(store)();
    return;
  }
  // All that is read comes first: one may be stored where another's value is read.
  std::vector<std::function<void()>> prepared;
  for (const Store& store : stores) prepared.push_back(Prepare(store));
  for (const auto& write : prepared) write();
}

void Stores::EmitAt(int slot, std::span<const Element* const> index, V value) {
  const Tensor& tensor = elements_.TensorAt(slot);
  const Lanes& lanes = elements_.lanes();
  const Ty type = MemoryTypeOf(tensor.dtype);
  const std::string base = BaseOf(tensor);
  const Expr* offset = elements_.OffsetOf(index, tensor);
  std::string& code = scopes_.Here();
  const auto memory = [&](V v) { return tensor.dtype == DType::kBool ? writer_.CastTo(code, "zext", v, Ty::kI8) : v; };
  if (lanes.variable < 0 || lanes.count == 1) {
    const V address = writer_.Address(code, base, type, elements_.EmitExpr(offset));
    Append(code, "  store ", Typed(memory(value)), ", ptr ", address.name, ", align ", BytesOf(type), ScopeOf(base),
           "\n");
    return;
  }
  value = memory(writer_.Splat(code, value, lanes.count));
  const auto affine = elements_.SplitLanes(offset);
  if (affine && affine->stride->IsConst(1)) {
    const V address = writer_.Address(code, base, type, elements_.EmitExpr(offset));
    EmitStream(tensor, lanes.paired ? EmitInMemoryOrder(writer_, code, value) : value, address);
    return;
  }
  EmitScatter(tensor, value, writer_.Address(code, base, type, elements_.EmitExprLanes(offset)));
}

void Stores::EmitScatter(const Tensor& tensor, const V& value, const V& addresses) {
  const int lanes = elements_.lanes().count;
  const Ty type = MemoryTypeOf(tensor.dtype);
  const std::string mask = elements_.MaskFor();
  const std::string vector = TypeText(type, lanes);
  const std::string mask_type = TypeText(Ty::kI1, lanes);
  const std::string all = mask.empty() ? Typed(IntConstant(Ty::kI1, 1, lanes)) : mask;
  const std::string name = Cat("llvm.masked.scatter.", Suffix(type, lanes), ".v", lanes, "p0");
  writer_.declarations.insert(Cat("declare void @", name, "(", vector, ", <", lanes, " x ptr>, i32, ", mask_type, ")"));
  Append(scopes_.Here(), "  call void @", name, "(", Typed(value), ", ", Typed(addresses), ", i32 ", BytesOf(type),
         ", ", all, ")", ScopeOf(BaseOf(tensor)), "\n");
}

std::string Stores::BaseOf(const Tensor& tensor) const { return Cat("%t", &tensor - elements_.nest().tensors.data()); }

}  // namespace hir::codegen::cpu
