// Tiles of a transposition. A tensor that is contiguous along a tile's rows is read first: square blocks go through
// registers, turned by shuffles, into a tile on the stack that is contiguous along the columns, from where the tile's
// rows are computed. (A gather reads an element a cycle at best, and a line of memory for each.)
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {
namespace {

using base::Append;
using base::Cat;

// Of a block that registers hold: a line of float32 each way. (Of 8 columns: 10 to 20 % slower, but compiled in two
// thirds of the time.)
constexpr int kBlockSideMax = 16;
// Of all tiles of a kernel, those of several regions too: a thread's stack has eight times as much.
constexpr int64_t kTileBytesMax = int64_t{1} << 20;

// A square block: a vector of neighbouring rows for each of so many neighbouring columns.
struct Block {
  Ty type = Ty::kF32;
  int side = 1;  // A power of two.
};

// Its rows become its columns: for each bit of an index, what is on the wrong side of the diagonal of blocks of that
// size changes places.
void EmitTurn(Writer& writer, std::string& code, const Block& block, std::vector<V>& vectors) {
  for (int bit = 1; bit < block.side; bit *= 2) {
    std::string low = Cat("<", block.side, " x i32> <"), high = low;
    for (int i = 0; i < block.side; ++i) {
      const char* const comma = i > 0 ? ", i32 " : "i32 ";
      Append(low, comma, (i & bit) == 0 ? i : block.side + i - bit);
      Append(high, comma, (i & bit) == 0 ? i + bit : block.side + i);
    }
    for (int i = 0; i < block.side; ++i) {
      if ((i & bit) != 0) continue;
      V& a = vectors[static_cast<size_t>(i)];
      V& b = vectors[static_cast<size_t>(i + bit)];
      const std::string both = Cat("shufflevector ", Typed(a), ", ", Typed(b), ", ");
      a = writer.Let(code, a.type, block.side, Cat(both, low, ">"));
      b = writer.Let(code, b.type, block.side, Cat(both, high, ">"));
    }
  }
}

V At(Writer& writer, std::string& code, Ty type, const V& base, const V& offset) {
  return writer.Let(
      code, Ty::kPtr, 1,
      Cat("getelementptr ", TypeText(type, 1), ", ptr ", base.name, ", ", Typed(offset)));
}

// Reads a block, in `scope`, whose columns are `stride` apart, and writes it with its rows `to_stride` apart.
void EmitBlock(Writer& writer, std::string& code, const Block& block, V from, const V& stride,
               const V& to, int64_t to_stride, std::string_view scope) {
  const std::string align = Cat(", align ", BytesOf(block.type));
  std::vector<V> vectors;
  for (int i = 0; i < block.side; ++i) {
    if (i > 0) from = At(writer, code, block.type, from, stride);
    vectors.push_back(writer.Let(
        code, block.type, block.side,
        Cat("load ", TypeText(block.type, block.side), ", ptr ", from.name, align, scope)));
  }
  EmitTurn(writer, code, block, vectors);
  for (int row = 0; row < block.side; ++row) {
    const V at = At(writer, code, block.type, to, IntConstant(Ty::kI64, row * to_stride));
    Append(code, "  store ", Typed(vectors[static_cast<size_t>(row)]), ", ptr ", at.name, align,
           "\n");
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
      const bool guards = e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect &&
                          math_.GuardsSides(e);
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
  if (turned == turned_.end())
    return {tensor, Cat("%t", slot), OffsetOf(load->args, tensor, guard)};
  const auto within = [&](const Loop& loop) {
    return pool_.Sub(pool_.Symbol(VariableSymbol(loop.variable)), pool_.Import(loop.begin));
  };
  const ir::Expr* row =
      pool_.Mul(within(region_->serial.back()), pool_.Const(region_->columns_max));
  return {{.dtype = tensor.dtype, .strides = {}},
          turned->second.array,
          pool_.Add(row, within(*region_->columns))};
}

void Emitter::EmitTurned() {
  for (const Element* load : turned_order_)
    EmitTurnedTile(turned_.at(load), slots_.at(load->value));
}

void Emitter::EmitTurnedTile(const Turned& turned, int slot) {
  const Ty type = MemoryTypeOf(nest_.tensors[static_cast<size_t>(slot)].dtype);
  const Block block = {type, std::min(kBlockSideMax, target_.vector_bytes / BytesOf(type))};
  const auto constant = [](int64_t value) { return IntConstant(Ty::kI64, value); };
  const auto binary = [&](const char* op, const V& a, const V& b) {
    return writer_.Binary(Here(), op, a, b);
  };
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
  const V side = constant(block.side);
  const V fewer = writer_.Intrinsic(Here(), "smin", {num_rows, num_columns});
  const V is_small = writer_.Compare(Here(), "slt", fewer, side);
  const V in_blocks = writer_.Select(Here(), is_small, constant(0), num_columns);
  const V copied = writer_.Select(Here(), is_small, num_columns, constant(0));
  const V last_row = binary("sub", num_rows, side);
  const V last_column = binary("sub", num_columns, side);
  EmitLoop(constant(0), in_blocks, side, [&](const V& next_column) {
    const V column = writer_.Intrinsic(Here(), "smin", {next_column, last_column});
    EmitLoop(constant(0), num_rows, side, [&](const V& next_row) {
      const V row = writer_.Intrinsic(Here(), "smin", {next_row, last_row});
      const V from = source(row, column), to = target(row, column);
      EmitBlock(writer_, Here(), block, from, stride, to, region_->columns_max, scope);
    });
  });
  const std::string align = Cat(", align ", BytesOf(type));
  EmitLoop(constant(0), copied, constant(1), [&](const V& column) {
    EmitLoop(constant(0), num_rows, constant(1), [&](const V& row) {
      const V from = source(row, column), to = target(row, column);
      const V value = writer_.Let(
          Here(), type, 1, Cat("load ", TypeText(type, 1), ", ptr ", from.name, align, scope));
      Append(Here(), "  store ", Typed(value), ", ptr ", to.name, align, "\n");
    });
  });
}

}  // namespace hir::codegen::cpu
