// Memory that is asked for before it is read.
//
// A loop that goes through memory and computes much for each element: the core has too few elements under way to wait
// for memory by the way, so each vector asks for what lies a while ahead. (Five roundings to bfloat16 an element: 17 to
// 21 GB/s of 20 to 23.)
//
// What the rows to come read first. A row's later phases find it in the first-level cache and leave memory idle; so
// its last phase asks for the row after the next, line by line, into the second-level cache. (Rows of 4096, on a core
// with a first-level cache of 32 KiB, share of triad: a layer norm of float32 .84 with the next row in the first level,
// .85 to .89 in the second, .92 with the one after it; of bfloat16 .72, .77 to .83, .91.) While it also stores, a core
// has no room for as many lines on their way as it asks for, and forgets some; so the phase before the last asks for
// the next row once more. (The same rows on one Zen 4 core that has the memory for itself: layer norm of float32 .74,
// asked again .98; RMS norm .83 and .95; softmax .50 and .63.) Or each of the first two phases asks for every fourth
// line, and the last for the rest (target.h); the machine's own requests find their way between those. (Quarters of the
// row in one piece: .80 where lines have .84.)
//
// Sums have one phase: those of columns that are carried from row to row ask for the row after the next (.66 without,
// .75 with), or take rows side by side and ask in each for what lies 1 KiB ahead, into the second level (eight rows by
// hand on Zen 4, share of reading alone: .95 without, 1.00 with, .85 into the first level); those of rows ask for it,
// too, or for what lies 1 KiB ahead (target.h; .82 without, .845 with). Rows of a tile are too short for the machine to
// see where they go: they ask for what the tile after the next reads. Prefetching past a tensor's end does nothing.
#include "csrc/codegen/cpu/prefetch.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::codegen::cpu {
namespace {

constexpr size_t kPrefetchedMax = 4;
constexpr size_t kLongBody = 24;  // Instructions a vector; of fewer the core has enough under way.
constexpr int64_t kAheadBytes = 2048;
constexpr int64_t kAheadOfSumsBytes = 1024;
constexpr int64_t kAheadInTilesBytes = 512;
constexpr int64_t kRowsAhead = 2;
constexpr int64_t kRowBytesAheadMax = int64_t{64} << 10;     // Of longer rows, what lies so far ahead.
constexpr int64_t kSharedBytesAheadMax = int64_t{16} << 10;  // The same; the first level holds three of it.

}  // namespace

void Prefetches::Choose(const Region& region) {
  prefetched_.clear();
  prefetching_phase_ = 0;
  asks_again_ = shares_rows_ = false;
  shares_ = {};
  const Phase& first = region.phases.front();
  if (region.tile_rows_max > 0 && region.phases.size() == 1)
    return ChooseAlong(first, *region.columns, kAheadInTilesBytes, kSecondLevel);
  const bool adds_up = !first.accumulators.empty() || !first.carried.empty() || !first.nested.empty();
  if (region.phases.size() == 1 && !adds_up) return ChooseAhead(region);
  if (region.columns || first.loops.size() != 1) return;
  const size_t last = LastLoops(region);
  const Phase& final = region.phases[last];
  if (final.loops.size() != 1 || first.loops[0].variable != final.loops[0].variable) return;
  const bool rows_together = widths_.RowsTogether(region) > 1;
  if (rows_together || (last == 0 && first.carried.empty() && ReadsBestInOrder(elements_.target()))) {
    return ChooseAlong(first, first.loops[0], kAheadOfSumsBytes, rows_together ? kSecondLevel : kFirstLevel);
  }
  const std::vector<Loop>& rows = region.serial.empty() ? region.grid : region.serial;
  if (rows.empty()) return;
  shares_rows_ = SharesRowsToCome(region);
  const RowsAhead ahead = shares_rows_ ? RowsAhead{.bytes_max = kSharedBytesAheadMax, .into = kFirstLevel}
                                       : RowsAhead{.bytes_max = kRowBytesAheadMax, .into = kSecondLevel};
  ChooseRowsToCome(first, rows.back().variable, first.loops[0].variable, ahead);
  prefetching_phase_ = last;
  if (shares_rows_ || last == 0) return;
  const Phase& before = region.phases[last - 1];
  asks_again_ = before.loops.size() == 1 && before.loops[0].variable == first.loops[0].variable;
}

// What is carried from row to row fills the first level too. The last phase must go through the row as the first does,
// and in a row that is known: else lines would be asked for by nobody, or by two.
bool Prefetches::SharesRowsToCome(const Region& region) {
  const size_t last = LastLoops(region);
  const Phase& first = region.phases.front();
  if (!AsksInEveryPhase(elements_.target()) || region.columns || last == 0) return false;
  const Loop& inner = first.loops[0];
  const auto same_loop = [&](const Phase& phase) {
    return phase.loops.size() == 1 && phase.carried.empty() && phase.loops[0].variable == inner.variable;
  };
  if (!std::ranges::all_of(std::span(region.phases).first(last + 1), same_loop)) return false;
  if (!inner.begin->IsConst(0) || !inner.end->IsConst()) return false;
  if (inner.end->value * LargestBytes(first) > kSharedBytesAheadMax) return false;
  const Phase& final = region.phases[last];
  const int lanes = widths_.LanesFor(final, final.loops[0]);
  const bool alike = lanes == widths_.LanesFor(first, inner) &&
                     widths_.CopiesFor(first, inner, lanes, true) == kCopies &&
                     widths_.CopiesFor(final, final.loops[0], lanes, true) == kCopies;
  elements_.dependences().ForgetElements();  // Results of accumulators are not known yet.
  return alike;
}

int64_t Prefetches::LargestBytes(const Phase& phase) const {
  SeenElements seen;
  InstructionsOf(phase, seen);
  int64_t largest = 1;
  for (const auto& [element, counted] : seen) {
    const int slot = elements_.SlotOf(element);
    if (slot >= 0) largest = std::max<int64_t>(largest, BytesOf(MemoryTypeOf(elements_.TensorAt(slot).dtype)));
  }
  return largest;
}

void Prefetches::ChooseRowsToCome(const Phase& first, int row, int lane, const RowsAhead& rows) {
  ir::ExprPool& pool = elements_.pool();
  SeenElements seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    const int slot = elements_.SlotOf(e);
    if (slot < 0) return;
    const Tensor& tensor = elements_.TensorAt(slot);
    const ir::Expr* offset = elements_.PlainOffsetOf(e, tensor);
    if (offset == nullptr) return;
    const auto along_row = elements_.math().Split(offset, lane);
    const auto to_next = elements_.math().Split(offset, row);
    if (!along_row || !along_row->stride->IsConst(1) || !to_next || to_next->stride->IsConst(0)) return;
    if (prefetched_.size() == kPrefetchedMax) return;
    const int64_t most = rows.bytes_max / BytesOf(MemoryTypeOf(tensor.dtype)) / kRowsAhead;
    const auto rows_ahead = [&](int64_t count) {
      const ir::Expr* ahead = pool.Mul(to_next->stride, pool.Const(count));
      return pool.Add(offset, pool.Min(ahead, pool.Const(most * count)));
    };
    prefetched_.push_back({e, rows_ahead(kRowsAhead), rows_ahead(kRowsAhead - 1)});
  };
  for (const Accumulator& accumulator : first.accumulators) visit(visit, accumulator.body);
  for (const Carried& carried : first.carried) visit(visit, carried.accumulator.body);
  for (const Store& store : first.stores) visit(visit, store.value);
  prefetching_into_ = rows.into;
}

void Prefetches::ChooseAhead(const Region& region) {
  const Phase& phase = region.phases.front();
  if (region.columns || phase.loops.empty()) return;
  const Loop& inner = phase.loops.back();
  SeenElements seen;
  if (InstructionsOf(phase, seen) < kLongBody) return;
  for (const Store& store : phase.stores) {
    const Tensor& tensor = elements_.TensorAt(store.tensor);
    if (inner.end->IsConst() && inner.end->value * BytesOf(MemoryTypeOf(tensor.dtype)) < 2 * kAheadBytes) return;
  }
  ChooseAlong(phase, inner, kAheadBytes, kFirstLevel);
}

void Prefetches::ChooseAlong(const Phase& phase, const Loop& inner, int64_t bytes, int into) {
  prefetching_into_ = into;
  SeenElements seen;
  InstructionsOf(phase, seen);
  std::vector<const Element*> loads;
  for (const auto& [element, counted] : seen) {
    if (elements_.SlotOf(element) >= 0) loads.push_back(element);
  }
  std::ranges::sort(loads, {}, &Element::id);
  for (const Element* load : loads) {
    const Tensor& tensor = elements_.TensorAt(elements_.SlotOf(load));
    const ir::Expr* offset = elements_.PlainOffsetOf(load, tensor);
    const auto along = offset == nullptr ? std::nullopt : elements_.math().Split(offset, inner.variable);
    if (!along || !along->stride->IsConst(1) || prefetched_.size() == kPrefetchedMax) continue;
    const int64_t ahead = bytes / BytesOf(MemoryTypeOf(tensor.dtype));
    prefetched_.push_back({load, elements_.pool().Add(offset, elements_.pool().Const(ahead)), nullptr});
  }
}

void Prefetches::Emit(size_t phase, int copy, int copies) {
  if (prefetched_.empty()) return;
  if (elements_.lanes().masked) return;  // What a loop leaves.
  const bool again = asks_again_ && phase + 1 == prefetching_phase_;
  if (!again && (phase == prefetching_phase_ ? WasAskedFor(copy, copies) : !AsksForShare(phase, copy, copies))) return;
  Writer& writer = elements_.writer();
  std::string& code = elements_.scopes().Here();
  for (const auto& [load, offset, nearer] : prefetched_) {
    const int slot = elements_.SlotOf(load);
    const Ty type = MemoryTypeOf(elements_.TensorAt(slot).dtype);
    const V start = elements_.EmitExpr(again ? nearer : offset);
    for (int at = 0; at < elements_.lanes().count * BytesOf(type); at += kLineBytes) {
      const V element_at = writer.Binary(code, "add", start, IntConstant(Ty::kI64, at / BytesOf(type)));
      EmitPrefetch(writer, code, writer.Address(code, base::Cat("%t", slot), type, element_at), prefetching_into_);
    }
  }
}

// A phase before the last asks for the lines of one copy, another than those before, while half are left.
bool Prefetches::AsksForShare(size_t phase, int copy, int copies) {
  const auto mine = static_cast<int>(phase);
  if (!shares_rows_ || copies != kCopies || mine >= kCopies / 2 || copy != mine) return false;
  if (shares_.copies == mine && (mine == 0 || shares_.lanes == elements_.lanes().count))
    shares_ = {.copies = mine + 1, .lanes = elements_.lanes().count};
  return mine < shares_.copies;
}

bool Prefetches::WasAskedFor(int copy, int copies) const {
  return copies == kCopies && elements_.lanes().count == shares_.lanes && copy < shares_.copies;
}

void EmitPrefetch(Writer& writer, std::string& code, const V& address, int into) {
  writer.declarations.insert("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  base::Append(code, "  call void @llvm.prefetch.p0(ptr ", address.name, ", i32 0, i32 ", into, ", i32 1)\n");
}

}  // namespace hir::codegen::cpu
