// Tiles of a transposition. A tensor that is contiguous along a tile's rows is read first: square blocks go through
// registers, turned by shuffles, into a tile on the stack that is contiguous along the columns, from where the tile's
// rows are computed. (A gather reads an element a cycle at best, and a line of memory for each.)
#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {
namespace {

using base::Append;
using base::Cat;

// A line of float32 each way.
constexpr int kBlockSideMax = 16;
// Along the tensor's stride: what is asked for while a block is turned.
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
void Turn(Writer& writer, std::string& code, std::vector<V>& vectors) {
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

void Emitter::ChooseTurned(const Region& region) {
  turned_.clear();
  turned_order_.clear();
  if (region.tile_rows_max == 0) return;
  const int row = region.serial.back().variable, column = region.columns->variable;
  const int64_t size = region.tile_rows_max * region.columns_max;
  std::unordered_map<const Element*, bool> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    const auto slot = slots_.find(e->value);
    if (e->kind != Element::Kind::kLoad || slot == slots_.end()) {
      // Under a condition on indices a load may be of an element that does not exist.
      const bool guards = e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect && math_.GuardsSides(e);
      for (const Element* arg : guards ? e->args.first(1) : e->args) self(self, arg);
      return;
    }
    const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot->second)];
    const ir::Expr* offset = PlainOffsetOf(e, tensor);
    if (offset == nullptr) return;
    const auto along = math_.Split(offset, row);
    if (!along || !along->stride->IsConst(1)) return;
    const auto across = math_.Split(along->base, column);
    if (!across || across->stride->IsConst(0) || across->stride->IsConst(1)) return;
    const Ty type = MemoryTypeOf(tensor.dtype);
    if (turned_bytes_ + size * BytesOf(type) > kTileBytesMax) return;
    turned_bytes_ += size * BytesOf(type);
    turned_[e] = {across->base, across->stride, writer_.Alloca(type, size)};
    turned_order_.push_back(e);
  };
  for (const Phase& phase : region.phases) {
    for (const Store& store : phase.stores) visit(visit, store.value);
  }
}

Emitter::Place Emitter::PlaceOf(const Element* load, int guard) {
  const int slot = slots_.at(load->value);
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot)];
  const auto turned = turned_.find(load);
  if (turned == turned_.end()) return {tensor, Cat("%t", slot), OffsetOf(load->args, tensor, guard)};
  const auto within = [&](const Loop& loop) {
    return pool_.Sub(pool_.Symbol(VariableSymbol(loop.variable)), pool_.Import(loop.begin));
  };
  const ir::Expr* row = pool_.Mul(within(region_->serial.back()), pool_.Const(region_->columns_max));
  return {{.dtype = tensor.dtype, .strides = {}}, turned->second.array, pool_.Add(row, within(*region_->columns))};
}

void Emitter::EmitTurned() {
  for (const Element* load : turned_order_) EmitTurnedTile(turned_.at(load), slots_.at(load->value));
}

// The function that turns a square block: its vectors lie `%from_stride` elements apart, from `%from` on, and
// `%to_stride` from `%to` on. One for all tensors of a type, since its shuffles take LLVM 2 ms.
std::string Emitter::TurnOf(Ty type, int side) {
  const std::string name = Cat("@turn.", TypeText(type, 1));
  const auto [function, is_new] = functions_.try_emplace(name);
  if (!is_new) return name;
  levels_.emplace_back();
  std::string& code = Here();
  const std::string vector = TypeText(type, side), align = Cat(", align ", BytesOf(type));
  const V from_stride = {"%from_stride", Ty::kI64, 1}, to_stride = {"%to_stride", Ty::kI64, 1};
  const V to_wanted = writer_.Binary(code, "mul", from_stride, IntConstant(Ty::kI64, kBlocksAhead * side));
  std::vector<V> vectors;
  V at = {"%from", Ty::kPtr, 1};
  for (int i = 0; i < side; ++i) {
    if (i > 0) at = AddressOf(at.name, type, from_stride, code);
    vectors.push_back(writer_.Let(code, type, side, Cat("load ", vector, ", ptr ", at.name, align)));
    EmitPrefetch(AddressOf(at.name, type, to_wanted, code), kSecondLevel);
  }
  Turn(writer_, code, vectors);
  at = {"%to", Ty::kPtr, 1};
  for (int i = 0; i < side; ++i) {
    if (i > 0) at = AddressOf(at.name, type, to_stride, code);
    Append(code, "  store ", Typed(vectors[static_cast<size_t>(i)]), ", ptr ", at.name, align, "\n");
  }
  function->second =
      Cat("define internal void ", name, "(ptr %from, i64 %from_stride, ptr %to, i64 %to_stride) noinline #0 {\n", code,
          "  ret void\n}\n\n");
  levels_.pop_back();
  return name;
}

void Emitter::EmitTurnedTile(const Turned& turned, int slot) {
  const Ty type = MemoryTypeOf(nest_.tensors[static_cast<size_t>(slot)].dtype);
  const int side = std::min(kBlockSideMax, target_.vector_bytes / BytesOf(type));
  const std::string turn = TurnOf(type, side);
  const auto constant = [](int64_t value) { return IntConstant(Ty::kI64, value); };
  const auto binary = [&](const char* op, const V& a, const V& b) { return writer_.Binary(Here(), op, a, b); };
  const Loop& rows = region_->serial.back();
  const Loop& columns = *region_->columns;
  const auto trips = [&](const Loop& loop) {
    return binary("sub", EmitExpr(pool_.Import(loop.end)), EmitExpr(pool_.Import(loop.begin)));
  };
  const V num_rows = trips(rows), num_columns = trips(columns);
  const V stride = EmitExpr(turned.stride);
  const ir::Expr* to_column = pool_.Mul(pool_.Import(columns.begin), turned.stride);
  const V first = EmitExpr(pool_.Add(turned.base, pool_.Add(pool_.Import(rows.begin), to_column)));
  const std::string scope = ScopeOf(Cat("%t", slot));
  const auto source = [&](const V& row, const V& column) {
    const V offset = binary("add", binary("mul", column, stride), row);
    return AddressOf(Cat("%t", slot), type, binary("add", first, offset), Here());
  };
  const auto target = [&](const V& row, const V& column) {
    const V offset = binary("mul", row, constant(region_->columns_max));
    return AddressOf(turned.array, type, binary("add", offset, column), Here());
  };
  // The last blocks end where the tile ends: over those before. A tile that holds no block is copied by elements.
  const V step = constant(side);
  const V fewer = writer_.Intrinsic(Here(), "smin", {num_rows, num_columns});
  const V is_small = writer_.Compare(Here(), "slt", fewer, step);
  const V in_blocks = writer_.Select(Here(), is_small, constant(0), num_columns);
  const V copied = writer_.Select(Here(), is_small, num_columns, constant(0));
  const V last_row = binary("sub", num_rows, step);
  const V last_column = binary("sub", num_columns, step);
  EmitLoop(constant(0), in_blocks, step, [&](const V& next_column) {
    const V column = writer_.Intrinsic(Here(), "smin", {next_column, last_column});
    EmitLoop(constant(0), num_rows, step, [&](const V& next_row) {
      const V row = writer_.Intrinsic(Here(), "smin", {next_row, last_row});
      const V from = source(row, column), to = target(row, column);
      Append(Here(), "  call void ", turn, "(ptr ", from.name, ", i64 ", stride.name, ", ptr ", to.name, ", i64 ",
             region_->columns_max, ")\n");
    });
  });
  const std::string align = Cat(", align ", BytesOf(type));
  EmitLoop(constant(0), copied, constant(1), [&](const V& column) {
    EmitLoop(constant(0), num_rows, constant(1), [&](const V& row) {
      const V from = source(row, column), to = target(row, column);
      const V value = writer_.Let(Here(), type, 1, Cat("load ", TypeText(type, 1), ", ptr ", from.name, align, scope));
      Append(Here(), "  store ", Typed(value), ", ptr ", to.name, align, "\n");
    });
  });
}

}  // namespace hir::codegen::cpu
