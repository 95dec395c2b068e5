#include "csrc/codegen/cpu/transposed.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/prefetch.h"

namespace hir::codegen::cpu {
namespace {

using base::Append;
using base::Cat;

// A line of float32 each way.
constexpr int kBlockSideMax = 16;
// Along the tensor's stride: what is asked for while a block is transposed.
constexpr int kBlocksAhead = 2;
// All tiles of a kernel, those of several regions too: a thread's stack has eight times as much.
constexpr int64_t kTileBytesMax = int64_t{1} << 20;

// LLVM combines no shuffles across it.
void Fence(Writer& writer, std::string& code, V& vector) {
  const V plain = vector;
  const int words = plain.lanes * BytesOf(plain.type) / BytesOf(Ty::kF32);
  const auto cast = [&](const V& from, Ty type, int lanes) {
    return writer.Let(code, type, lanes, Cat("bitcast ", Typed(from), " to ", TypeText(type, lanes)));
  };
  const V fenced = writer.Intrinsic(code, "arithmetic.fence", {cast(plain, Ty::kF32, words)});
  vector = cast(fenced, plain.type, plain.lanes);
}

// Rows to columns: as many vectors as each has elements, a power of two. Every shuffle is one instruction: elements,
// pairs, fours of two vectors in turn, within each 16 bytes; then every other 16 bytes of both.
void Transpose(Writer& writer, std::string& code, std::vector<V>& vectors) {
  constexpr int kLaneBytes = 16;
  const int side = static_cast<int>(vectors.size());
  const int in_lane = std::min(kLaneBytes / BytesOf(vectors[0].type), side);
  for (int distance = 1, stage = 0; distance < side; distance *= 2, ++stage) {
    const bool within = distance < in_lane;
    const auto low = [&](int k) {
      const int lane = k / in_lane, at = k % in_lane;
      if (!within) return 2 * lane * in_lane + at;
      const int group = at / distance;
      return lane * in_lane + group / 2 * distance + at % distance + group % 2 * side;
    };
    const auto high = [&](int k) { return low(k) + (within ? in_lane / 2 : in_lane); };
    for (int i = 0; i < side; ++i) {
      if ((i & distance) != 0) continue;
      V& a = vectors[static_cast<size_t>(i)];
      V& b = vectors[static_cast<size_t>(i + distance)];
      const V first = writer.Shuffle(code, a, b, side, low);
      b = writer.Shuffle(code, a, b, side, high);
      a = first;
    }
    // Looking for better ones through four stages takes 4 ms, through two hardly any time.
    if (stage % 2 == 1 && 2 * distance < side) {
      for (V& vector : vectors) Fence(writer, code, vector);
    }
  }
  // A column's number within 16 bytes is now its vector's, its bits in reverse.
  for (int i = 0; i < side; ++i) {
    int column = i / in_lane * in_lane;
    for (int bit = 1; bit < in_lane; bit *= 2) {
      if ((i & bit) != 0) column += in_lane / (2 * bit);
    }
    if (column > i) std::swap(vectors[static_cast<size_t>(i)], vectors[static_cast<size_t>(column)]);
  }
}

}  // namespace

void TransposedTiles::Choose(const Region& region) {
  transposed_.clear();
  transposed_order_.clear();
  if (region.tile_rows_max == 0) return;
  const int row = region.serial.back().variable, column = region.columns->variable;
  const int64_t size = region.tile_rows_max * region.columns_max;
  std::unordered_set<const Element*> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.insert(e).second) return;
    const int slot = elements_.SlotOf(e);
    if (slot < 0) {
      // Under a condition on indices a load may be of an element that does not exist.
      const bool guards =
          e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect && elements_.math().GuardsSides(e);
      for (const Element* arg : guards ? e->args.first(1) : e->args) self(self, arg);
      return;
    }
    const Tensor& tensor = elements_.TensorAt(slot);
    const ir::Expr* offset = elements_.PlainOffsetOf(e, tensor);
    if (offset == nullptr) return;
    const auto along = elements_.math().Split(offset, row);
    if (!along || !along->stride->IsConst(1)) return;
    const auto across = elements_.math().Split(along->base, column);
    if (!across || across->stride->IsConst(0) || across->stride->IsConst(1)) return;
    const Ty type = MemoryTypeOf(tensor.dtype);
    if (transposed_bytes_ + size * BytesOf(type) > kTileBytesMax) return;
    transposed_bytes_ += size * BytesOf(type);
    transposed_[e] = {across->base, across->stride, writer_.Alloca(type, size)};
    transposed_order_.push_back(e);
  };
  for (const Phase& phase : region.phases) {
    for (const Store& store : phase.stores) visit(visit, store.value);
  }
}

std::optional<KeptElements::Place> TransposedTiles::Find(const Element* load) {
  const auto transposed = transposed_.find(load);
  if (transposed == transposed_.end()) return std::nullopt;
  ir::ExprPool& pool = elements_.pool();
  const Region& region = elements_.region();
  const auto within = [&](const Loop& loop) {
    return pool.Sub(pool.Symbol(VariableSymbol(loop.variable)), pool.Import(loop.begin));
  };
  const ir::Expr* row = pool.Mul(within(region.serial.back()), pool.Const(region.columns_max));
  return KeptElements::Place{load->dtype, transposed->second.array, pool.Add(row, within(*region.columns))};
}

void TransposedTiles::Emit() {
  for (const Element* load : transposed_order_) EmitTile(transposed_.at(load), elements_.SlotOf(load));
}

std::string TransposedTiles::Functions() const {
  std::string all;
  for (const auto& [name, text] : functions_) all += text;
  return all;
}

// The function that transposes a square block: its vectors lie `%from_stride` elements apart, from `%from` on, and
// `%to_stride` from `%to` on. One for all tensors of a type, since its shuffles take LLVM 2 ms.
std::string TransposedTiles::TransposeOf(Ty type, int side) {
  const std::string name = Cat("@transpose.", TypeText(type, 1));
  const auto [function, is_new] = functions_.try_emplace(name);
  if (!is_new) return name;
  std::string code;
  const std::string vector = TypeText(type, side), align = Cat(", align ", BytesOf(type));
  const V from_stride = {"%from_stride", Ty::kI64, 1}, to_stride = {"%to_stride", Ty::kI64, 1};
  const V to_wanted = writer_.Binary(code, "mul", from_stride, IntConstant(Ty::kI64, kBlocksAhead * side));
  std::vector<V> vectors;
  V at = {"%from", Ty::kPtr, 1};
  for (int i = 0; i < side; ++i) {
    if (i > 0) at = writer_.Address(code, at.name, type, from_stride);
    vectors.push_back(writer_.Let(code, type, side, Cat("load ", vector, ", ptr ", at.name, align)));
    EmitPrefetch(writer_, code, writer_.Address(code, at.name, type, to_wanted), kSecondLevel);
  }
  Transpose(writer_, code, vectors);
  at = {"%to", Ty::kPtr, 1};
  for (int i = 0; i < side; ++i) {
    if (i > 0) at = writer_.Address(code, at.name, type, to_stride);
    Append(code, "  store ", Typed(vectors[static_cast<size_t>(i)]), ", ptr ", at.name, align, "\n");
  }
  function->second =
      Cat("define internal void ", name, "(ptr %from, i64 %from_stride, ptr %to, i64 %to_stride) noinline #0 {\n", code,
          "  ret void\n}\n\n");
  return name;
}

void TransposedTiles::EmitTile(const Transposed& transposed, int slot) {
  const Ty type = MemoryTypeOf(elements_.TensorAt(slot).dtype);
  const int side = std::min(kBlockSideMax, elements_.target().vector_bytes / BytesOf(type));
  const std::string transpose = TransposeOf(type, side);
  const auto constant = [](int64_t value) { return IntConstant(Ty::kI64, value); };
  const auto binary = [&](const char* op, const V& a, const V& b) { return writer_.Binary(scopes_.Here(), op, a, b); };
  const Region& region = elements_.region();
  const Loop& rows = region.serial.back();
  const Loop& columns = *region.columns;
  ir::ExprPool& pool = elements_.pool();
  const auto trips = [&](const Loop& loop) {
    return binary("sub", elements_.EmitExpr(pool.Import(loop.end)), elements_.EmitExpr(pool.Import(loop.begin)));
  };
  const V num_rows = trips(rows), num_columns = trips(columns);
  const V stride = elements_.EmitExpr(transposed.stride);
  const ir::Expr* to_column = pool.Mul(pool.Import(columns.begin), transposed.stride);
  const V first = elements_.EmitExpr(pool.Add(transposed.base, pool.Add(pool.Import(rows.begin), to_column)));
  const std::string scope = ScopeOf(Cat("%t", slot));
  const auto source = [&](const V& row, const V& column) {
    const V offset = binary("add", binary("mul", column, stride), row);
    return writer_.Address(scopes_.Here(), Cat("%t", slot), type, binary("add", first, offset));
  };
  const auto target = [&](const V& row, const V& column) {
    const V offset = binary("mul", row, constant(region.columns_max));
    return writer_.Address(scopes_.Here(), transposed.array, type, binary("add", offset, column));
  };
  // The last blocks end where the tile ends: over those before. A tile that holds no block is copied by elements.
  const V step = constant(side);
  const V fewer = writer_.Intrinsic(scopes_.Here(), "smin", {num_rows, num_columns});
  const V is_small = writer_.Compare(scopes_.Here(), "slt", fewer, step);
  const V in_blocks = writer_.Select(scopes_.Here(), is_small, constant(0), num_columns);
  const V copied = writer_.Select(scopes_.Here(), is_small, num_columns, constant(0));
  const V last_row = binary("sub", num_rows, step);
  const V last_column = binary("sub", num_columns, step);
  scopes_.EmitLoop(constant(0), in_blocks, step, [&](const V& next_column) {
    const V column = writer_.Intrinsic(scopes_.Here(), "smin", {next_column, last_column});
    scopes_.EmitLoop(constant(0), num_rows, step, [&](const V& next_row) {
      const V row = writer_.Intrinsic(scopes_.Here(), "smin", {next_row, last_row});
      const V from = source(row, column), to = target(row, column);
      Append(scopes_.Here(), "  call void ", transpose, "(ptr ", from.name, ", i64 ", stride.name, ", ptr ", to.name,
             ", i64 ", region.columns_max, ")\n");
    });
  });
  const std::string align = Cat(", align ", BytesOf(type));
  scopes_.EmitLoop(constant(0), copied, constant(1), [&](const V& column) {
    scopes_.EmitLoop(constant(0), num_rows, constant(1), [&](const V& row) {
      const V from = source(row, column), to = target(row, column);
      const V value =
          writer_.Let(scopes_.Here(), type, 1, Cat("load ", TypeText(type, 1), ", ptr ", from.name, align, scope));
      Append(scopes_.Here(), "  store ", Typed(value), ", ptr ", to.name, align, "\n");
    });
  });
}

}  // namespace hir::codegen::cpu
