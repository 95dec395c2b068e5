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

// A line of float32 each way.
constexpr int kBlockSideMax = 16;
// Of all tiles of a kernel, those of several regions too: a thread's stack has eight times as much.
constexpr int64_t kTileBytesMax = int64_t{1} << 20;

// The part of turning a square block that exchanges bits of the elements' places with bits of the vectors' numbers:
// `vectors` are those that differ in these bits, from the one worth `unit` on.
void ExchangeBits(Writer& writer, std::string& code, int unit, std::vector<V>& vectors) {
  const int side = vectors[0].lanes, count = static_cast<int>(vectors.size());
  for (int bit = 1; bit < count; bit *= 2) {
    const int across = bit * unit;
    for (int i = 0; i < count; ++i) {
      if ((i & bit) != 0) continue;
      V& a = vectors[static_cast<size_t>(i)];
      V& b = vectors[static_cast<size_t>(i + bit)];
      const V low = writer.Shuffle(
          code, a, b, side, [&](int k) { return (k & across) == 0 ? k : side + k - across; });
      b = writer.Shuffle(code, a, b, side,
                         [&](int k) { return (k & across) == 0 ? k + across : side + k; });
      a = low;
    }
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

// Reads vectors number `first`, first + `unit`, ... of `from`, exchanges the bits in which their numbers differ with
// the same bits of their elements' places, and writes them as those numbers of `to`.
void Emitter::EmitTurn(const Lines& from, const V& first, int unit, int count, const Lines& to) {
  const Ty type = from.type;
  const auto binary = [&](const char* op, const V& a, const V& b) {
    return writer_.Binary(Here(), op, a, b);
  };
  // The addresses of `lines`, each from the one before.
  const auto step_to = [&](const Lines& lines, int i, V& at) {
    const V units = IntConstant(Ty::kI64, unit);
    at = i == 0 ? AddressOf(lines.first.name, type, binary("mul", first, lines.stride), Here())
                : AddressOf(at.name, type, binary("mul", lines.stride, units), Here());
  };
  const std::string align = Cat(", align ", BytesOf(type));
  std::vector<V> vectors;
  V at;
  for (int i = 0; i < count; ++i) {
    step_to(from, i, at);
    vectors.push_back(
        writer_.Let(Here(), type, from.side,
                    Cat("load ", TypeText(type, from.side), ", ptr ", at.name, align, from.scope)));
    if (!from.is_next_wanted) continue;
    const V to_next = binary("mul", from.stride, IntConstant(Ty::kI64, from.side));
    EmitPrefetch(AddressOf(at.name, type, to_next, Here()), kSecondLevel);
  }
  ExchangeBits(writer_, Here(), unit, vectors);
  for (int i = 0; i < count; ++i) {
    step_to(to, i, at);
    Append(Here(), "  store ", Typed(vectors[static_cast<size_t>(i)]), ", ptr ", at.name, align,
           "\n");
  }
}

// Turns a square block in two loops: half of the shuffles in each, on so few vectors that both are written, and
// compiled, for few. What the first leaves is in `between`.
void Emitter::EmitBlock(const Lines& from, const Lines& between, const Lines& to) {
  int group = 2;  // Neighbours that the first loop turns.
  while (group * group < from.side) group *= 2;
  const auto constant = [](int64_t value) { return IntConstant(Ty::kI64, value); };
  EmitLoop(constant(0), constant(from.side), constant(group),
           [&](const V& first) { EmitTurn(from, first, 1, group, between); });
  EmitLoop(constant(0), constant(group), constant(1),
           [&](const V& first) { EmitTurn(between, first, group, from.side / group, to); });
}

void Emitter::EmitTurnedTile(const Turned& turned, int slot) {
  const Ty type = MemoryTypeOf(nest_.tensors[static_cast<size_t>(slot)].dtype);
  const int side = std::min(kBlockSideMax, target_.vector_bytes / BytesOf(type));
  const V between = {writer_.Alloca(type, int64_t{side} * side), Ty::kPtr, 1};
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
      EmitBlock({type, side, source(row, column), stride, scope, true},
                {type, side, between, step, {}},
                {type, side, target(row, column), constant(region_->columns_max), {}});
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
