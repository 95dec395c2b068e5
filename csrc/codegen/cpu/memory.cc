// Loads and stores of elements: addresses, masks, contiguous vectors, gathers and scatters.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

using base::Cat;
using ir::Expr;

namespace {
constexpr int64_t kStreamedRun = 256;  // Bytes of one run of a loop: some lines, most of them whole.
constexpr int64_t kLineBytes = 64;
}  // namespace

const Expr* Emitter::OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard) {
  const Expr* offset = pool_.Const(0);
  for (size_t i = 0; i < index.size(); ++i) {
    if (tensor.strides[i]->IsConst(0)) continue;
    const Expr* at = math_.ToExpr(index[i]);
    if (at == nullptr) at = DataSymbol(index[i], index[i]->has_load ? guard : 0);
    offset = pool_.Add(offset, pool_.Mul(at, pool_.Import(tensor.strides[i])));
  }
  return offset;
}

V Emitter::EmitLoad(const Element* element, int guard, size_t level) {
  const auto result = results_.find(element->value);
  if (result != results_.end()) {
    const Result_& r = result->second;
    if (r.array.empty()) return r.scalar;
    const Expr* offset =
        pool_.Sub(pool_.Symbol(VariableSymbol(region_->columns->variable)), pool_.Import(region_->columns->begin));
    const Tensor array = {.dtype = r.accumulator->dtype, .strides = {}};
    return LoadFrom(array, r.array, offset, 0, level);
  }
  const Place place = PlaceOf(element, guard);
  return LoadFrom(place.tensor, place.base, place.offset, turned_.contains(element) ? 0 : guard, level);
}

V Emitter::AddressOf(const std::string& base, Ty type, const V& offset, std::string& code) {
  return writer_.Let(code, Ty::kPtr, offset.lanes,
                     Cat("getelementptr ", TypeText(type, 1), ", ptr ", base, ", ", Typed(offset)));
}

V Emitter::LoadFrom(const Tensor& tensor, const std::string& base, const Expr* offset, int guard, size_t level) {
  const Ty type = MemoryTypeOf(tensor.dtype);
  const int bytes = BytesOf(type);
  const std::string scope = ScopeOf(base);
  const auto finish = [&](const V& loaded) {
    if (tensor.dtype != DType::kBool) return loaded;
    return writer_.Compare(CodeAt(level), "ne", loaded, IntConstant(Ty::kI8, 0, loaded.lanes));
  };
  if (!Varies(VariablesOf(offset))) {
    const V at = EmitExpr(offset);
    std::string& code = CodeAt(level);
    V address = AddressOf(base, type, at, code);
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
  std::string& code = Here();
  const int lanes = lanes_.count;
  const auto affine = SplitLanes(offset);
  const bool neighbours = affine && affine->stride->IsConst(1);
  const std::string mask = MaskFor(guard);
  const std::string vector = TypeText(type, lanes);
  if (neighbours) {
    const V address = AddressOf(base, type, EmitExpr(offset), code);
    const V loaded = mask.empty() ? writer_.Let(code, type, lanes,
                                                Cat("load ", vector, ", ptr ", address.name, ", align ", bytes, scope))
                                  : EmitMaskedLoad(base, type, address, mask);
    return finish(lanes_.paired ? EmitInPairs(loaded) : loaded);
  }
  const V addresses = AddressOf(base, type, EmitExprLanes(offset), code);
  const std::string name = Cat("llvm.masked.gather.", Suffix(type, lanes), ".v", lanes, "p0");
  writer_.declarations.insert(
      Cat("declare ", vector, " @", name, "(<", lanes, " x ptr>, i32, <", lanes, " x i1>, ", vector, ")"));
  const std::string all = mask.empty() ? Typed(IntConstant(Ty::kI1, 1, lanes)) : mask;
  return finish(writer_.Let(code, type, lanes,
                            Cat("call ", vector, " @", name, "(", Typed(addresses), ", i32 ", bytes, ", ", all, ", ",
                                vector, " zeroinitializer)", scope)));
}

// lanes_.count neighbours of `base` from `address` on, 0 where `mask` has none.
V Emitter::EmitMaskedLoad(const std::string& base, Ty type, const V& address, const std::string& mask) {
  const int lanes = lanes_.count;
  const std::string vector = TypeText(type, lanes);
  const std::string name = Cat("llvm.masked.load.", Suffix(type, lanes), ".p0");
  writer_.declarations.insert(Cat("declare ", vector, " @", name, "(ptr, i32, <", lanes, " x i1>, ", vector, ")"));
  return writer_.Let(Here(), type, lanes,
                     Cat("call ", vector, " @", name, "(ptr ", address.name, ", i32 ", BytesOf(type), ", ", mask, ", ",
                         vector, " zeroinitializer)", ScopeOf(base)));
}

std::string Emitter::ScopeOf(std::string_view base) const {
  if (!base.starts_with("%t")) return {};  // Memory of the function's own.
  return AliasScopeOf(std::stoi(std::string(base.substr(2))));
}

// "<16 x i1> %m": the lanes that exist and that `guard` allows; empty for all.
std::string Emitter::MaskFor(int guard) {
  if (guard == 0) return lanes_.masked ? Typed(lanes_.mask) : std::string();
  HIR_CHECK(!lanes_.paired);  // IsPaired: no loop with guards is.
  V allowed = writer_.Splat(Here(), EmitGuard(guard), lanes_.count);
  if (lanes_.masked) allowed = writer_.Binary(Here(), "and", allowed, lanes_.mask);
  return Typed(allowed);
}

V Emitter::StreamBits(const Tensor& tensor, int64_t bytes) {
  // Lines are written whole only by loops that go on for a while.
  const bool short_block =
      region_->columns && region_->columns_max * BytesOf(MemoryTypeOf(tensor.dtype)) < kStreamedRun;
  if (tensor.role != Tensor::Role::kOutput || bytes < 16 || short_block) return {{}, Ty::kI64, 0};
  const Expr* size = pool_.Const(BytesOf(MemoryTypeOf(tensor.dtype)));
  for (const ir::Axis& axis : ir::ValueAxes(*tensor.value->type)) {
    if (axis.kind != ir::AxisKind::kBroadcast) size = pool_.Mul(size, pool_.Import(axis.extent));
  }
  if (size->IsConst() && size->value < kStreamedBytesMin) return {{}, Ty::kI64, 0};
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(size, symbols);
  for (const std::string_view symbol : symbols) {
    if (!symbols_.contains(symbol)) return {{}, Ty::kI64, 0};
  }
  const Key key = {&tensor, 0, static_cast<int>(-bytes)};
  if (const V* known = Find(key, 0)) return *known;
  const V total = EmitExpr(size);
  std::string& code = CodeAt(0);
  writer_.declarations.insert("@hir_streamed_bytes = external global i64");
  const V least = writer_.Let(code, Ty::kI64, 1, "load i64, ptr @hir_streamed_bytes, align 8");
  const V large = writer_.Compare(code, "sge", total, least);
  return MemoAt(0)[key] = writer_.Select(code, large, IntConstant(Ty::kI64, bytes - 1), IntConstant(Ty::kI64, -1));
}

void Emitter::EmitStream(const Tensor& tensor, const V& value, const V& address) {
  const int64_t bytes = std::min<int64_t>(int64_t{BytesOf(value.type)} * value.lanes, kLineBytes);
  const int element = BytesOf(MemoryTypeOf(tensor.dtype));
  const V bits = StreamBits(tensor, bytes);
  std::string& code = Here();
  const std::string plain = Cat("  store ", Typed(value), ", ptr ", address.name, ", align ");
  const std::string scope = ScopeOf(Cat("%t", &tensor - nest_.tensors.data()));
  if (lanes_.masked) return EmitMaskedStore(tensor, value, address);
  const auto store = [&] { base::Append(code, plain, element, scope, "\n"); };
  if (bits.lanes == 0) return store();
  streams_ = true;
  const std::string past = writer_.NewLabel(), cached = writer_.NewLabel(), done = writer_.NewLabel();
  const V low = writer_.Binary(code, "and", writer_.CastTo(code, "ptrtoint", address, Ty::kI64), bits);
  const V streams = writer_.Compare(code, "eq", low, IntConstant(Ty::kI64, 0));
  base::Append(code, "  br i1 ", streams.name, ", label %", past, ", label %", cached, "\n", past, ":\n", plain, bytes,
               ", !nontemporal !0", scope, "\n  br label %", done, "\n", cached, ":\n");
  store();
  base::Append(code, "  br label %", done, "\n", done, ":\n");
}

void Emitter::EmitMaskedStore(const Tensor& tensor, const V& value, const V& address) {
  const Ty type = MemoryTypeOf(tensor.dtype);
  const std::string vector = TypeText(type, lanes_.count);
  const std::string name = Cat("llvm.masked.store.", Suffix(type, lanes_.count), ".p0");
  writer_.declarations.insert(
      Cat("declare void @", name, "(", vector, ", ptr, i32, ", TypeText(Ty::kI1, lanes_.count), ")"));
  base::Append(Here(), "  call void @", name, "(", Typed(value), ", ptr ", address.name, ", i32 ", BytesOf(type), ", ",
               MaskFor(0), ")", ScopeOf(Cat("%t", &tensor - nest_.tensors.data())), "\n");
}

std::function<void()> Emitter::PrepareStore(const Store& store) {
  if (std::function<void()> of_pairs = PrepareStoreOfPairs(store)) return of_pairs;
  const V value = EmitElement(store.value, 0);
  return [this, &store, value] { EmitStoreOf(store.tensor, store.index, value); };
}

void Emitter::EmitStores(std::span<const Store> stores) {
  if (!in_place_) {
    for (const Store& store : stores) PrepareStore(store)();
    return;
  }
  // All that is read comes first: one may be stored where another's value is read.
  std::vector<std::function<void()>> prepared;
  for (const Store& store : stores) prepared.push_back(PrepareStore(store));
  for (const auto& write : prepared) write();
}

void Emitter::EmitStoreOf(int slot, std::span<const Element* const> index, V value) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot)];
  const Ty type = MemoryTypeOf(tensor.dtype);
  const std::string base = Cat("%t", slot), scope = ScopeOf(base);
  const Expr* offset = OffsetOf(index, tensor, 0);
  std::string& code = Here();
  const auto memory = [&](V v) { return tensor.dtype == DType::kBool ? writer_.CastTo(code, "zext", v, Ty::kI8) : v; };
  if (lanes_.variable < 0 || lanes_.count == 1) {
    const V address = AddressOf(base, type, EmitExpr(offset), code);
    base::Append(code, "  store ", Typed(memory(value)), ", ptr ", address.name, ", align ", BytesOf(type), scope,
                 "\n");
    return;
  }
  value = memory(writer_.Splat(code, value, lanes_.count));
  const auto affine = SplitLanes(offset);
  if (affine && affine->stride->IsConst(1)) {
    const V address = AddressOf(base, type, EmitExpr(offset), code);
    EmitStream(tensor, lanes_.paired ? EmitInMemoryOrder(value) : value, address);
    return;
  }
  const std::string mask = MaskFor(0);
  const int bytes = BytesOf(type);
  const std::string vector = TypeText(type, lanes_.count);
  const std::string mask_type = TypeText(Ty::kI1, lanes_.count);
  const V addresses = AddressOf(base, type, EmitExprLanes(offset), code);
  const std::string all = mask.empty() ? Typed(IntConstant(Ty::kI1, 1, lanes_.count)) : mask;
  const std::string name = Cat("llvm.masked.scatter.", Suffix(type, lanes_.count), ".v", lanes_.count, "p0");
  writer_.declarations.insert(
      Cat("declare void @", name, "(", vector, ", <", lanes_.count, " x ptr>, i32, ", mask_type, ")"));
  base::Append(code, "  call void @", name, "(", Typed(value), ", ", Typed(addresses), ", i32 ", bytes, ", ", all, ")",
               scope, "\n");
}

}  // namespace hir::codegen::cpu
