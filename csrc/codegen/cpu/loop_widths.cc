#include "csrc/codegen/cpu/loop_widths.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>

#include "csrc/base/checked.h"

namespace hir::codegen::cpu {

using fusion::Element;

namespace {

constexpr size_t kCutsMax = 10;    // Copies of a loop for ranges in which conditions are decided.
constexpr int64_t kSumsMax = 8;    // Registers of sums; more leave too few for what is added.
constexpr size_t kFunction = 32;   // Those of exp, erf, tanh.
constexpr size_t kRounding = 5;    // Those of a conversion to bfloat16.
constexpr size_t kLargeBody = 48;  // Instructions of all copies that keep a core busy.
constexpr int kRowsTogether[] = {8, 4};

// Unknown: many.
int64_t TripsOf(const Loop& loop) {
  const bool known = loop.begin->IsConst(0) && loop.end->IsConst();
  return known ? std::max<int64_t>(loop.end->value, 1) : INT64_MAX;
}

// Which add up in registers, in a loop.
size_t SumsOf(const Phase& phase) { return phase.accumulators.size() + phase.nested.size(); }

size_t InstructionsOf(const Element* root, SeenElements& seen) {
  if (!seen.emplace(root, true).second) return 0;
  size_t count = root->dtype == DType::kInt64 ? 0 : 1;
  if (root->kind == fusion::Element::Kind::kConvert && BytesOf(TypeOf(root->dtype)) == 2) count = kRounding;
  if (root->kind == fusion::Element::Kind::kPrim && fusion::IsFunction(root->prim)) {
    count = kFunction;
  }
  for (const fusion::Element* arg : root->args) count += InstructionsOf(arg, seen);
  return count;
}

}  // namespace

size_t InstructionsOf(const Phase& phase, SeenElements& seen) {
  size_t size = 0;
  for (const Accumulator& accumulator : phase.accumulators) size += InstructionsOf(accumulator.body, seen);
  for (const Carried& carried : phase.carried) size += InstructionsOf(carried.accumulator.body, seen);
  for (const Nested& nested : phase.nested) size += InstructionsOf(nested.accumulator.body, seen);
  for (const Store& store : phase.stores) size += InstructionsOf(store.value, seen);
  return size;
}

size_t LastLoops(const Region& region) {
  size_t last = region.phases.size() - 1;
  while (last > 0 && region.phases[last].loops.empty()) --last;
  return last;
}

int LoopWidths::RestLanes(int lanes) const { return std::min(lanes, VectorBytes() / 4); }

int LoopWidths::LanesFor(const Loop& loop) const {
  const int most = VectorBytes() / 4;
  const int64_t trips = TripsOf(loop);
  return trips >= most ? most : static_cast<int>(std::bit_ceil(static_cast<uint64_t>(trips)));
}

// Where nothing is added up a vector may be several registers. Stores fill whole lines then: half of one, past the
// caches, is a store and a read of memory. And long chains of instructions that wait for each other have neighbours
// to run beside.
int LoopWidths::LanesFor(const Phase& phase, const Loop& inner) const {
  const int lanes = LanesFor(inner);
  const bool stores_alone = SumsOf(phase) == 0 && phase.carried.empty();
  const bool paired = IsPaired(phase, inner);
  if (!stores_alone && paired) return 2 * lanes;
  if (!stores_alone || phase.stores.empty() || lanes * 4 != VectorBytes()) return lanes;
  int bytes = 0;
  for (const Store& store : phase.stores) {
    const Tensor& tensor = elements_.TensorAt(store.tensor);
    bytes = std::max(bytes, BytesOf(MemoryTypeOf(tensor.dtype)));
  }
  SeenElements seen;
  const bool is_long = InstructionsOf(phase, seen) > LongChain(elements_.target());
  int registers = is_long ? 4 : bytes == 2 || paired ? 2 : 1;
  while (registers > 1 && TripsOf(inner) < int64_t{registers} * lanes) registers /= 2;
  return registers * lanes;
}

int LoopWidths::CopiesFor(const Phase& phase, const Loop& inner, int lanes, bool in_shares) const {
  SeenElements seen;
  const size_t size = InstructionsOf(phase, seen);
  int64_t copies = kCopies;
  if (SumsOf(phase) == 0) {
    copies = std::max(kCopies / std::max(WaysOf(inner, seen), 1), 1);
    const Region& region = elements_.region();
    // Neighbours that do not add up gain nothing from being written side by side.
    const int64_t trips = region.columns ? region.columns_max : TripsOf(inner);
    if (trips / copies < kOwnWayMin && !in_shares) copies = 1;
  }
  const int64_t registers = std::max(lanes * 4 / VectorBytes(), 1);
  const size_t instructions = std::max<size_t>(size * static_cast<size_t>(registers), 1);
  if (SumsOf(phase) == 0) {
    if (instructions > kLargeBody) copies = 1;
  } else {
    const size_t filled = std::max<size_t>(kLargeBody / instructions, 1);
    copies = std::min(copies, static_cast<int64_t>(std::bit_floor(filled)));
    const auto sums = static_cast<int64_t>(SumsOf(phase)) * registers;
    while (copies > 1 && copies * sums > kSumsMax) copies /= 2;
  }
  return static_cast<int>(std::clamp<int64_t>(TripsOf(inner) / lanes, 1, copies));
}

// Ways that there are anyway. Where the loop is a block of its axis, what varies along it alone is another part for
// every item, too.
int LoopWidths::WaysOf(const Loop& inner, const SeenElements& seen) const {
  Dependences& dependences = elements_.dependences();
  const uint64_t along = elements_.scopes().BitOf(inner.variable);
  const uint64_t lane = inner.begin->IsConst(0) ? along : 0;
  int ways = 0;
  for (const auto& [element, counted] : seen) {
    if (element->kind != Element::Kind::kLoad || dependences.IsResult(element->value)) continue;
    const uint64_t variables = dependences.Of(element);
    ways += (variables & along) != 0 && (variables & ~lane) != 0 ? 1 : 0;
  }
  return ways;
}

int LoopWidths::CopiesIn(const ir::Expr* trips, int lanes, int copies) {
  if (!trips->IsConst()) return copies;
  return static_cast<int>(std::clamp<int64_t>(trips->value / lanes, 1, copies));
}

int LoopWidths::RowsTogether(const Region& region) const {
  const Phase& phase = region.phases.front();
  const bool carries_alone =
      region.phases.size() == 1 && SumsOf(phase) == 0 && phase.stores.empty() && !phase.carried.empty();
  if (!carries_alone || !ReadsBestInOrder(elements_.target())) return 1;
  SeenElements seen;
  const size_t size = InstructionsOf(phase, seen);
  for (const int rows : kRowsTogether) {
    if (static_cast<size_t>(rows) * size <= kLargeBody) return rows;
  }
  return 1;
}

// Whether `region` goes through the rows that an earlier launch left of more, and beside them reads nothing at all of
// these or of fewer. It has little to do, so its loops are masked vectors alone.
bool LoopWidths::IsShort(const Region& region) const {
  if (!region.columns || region.columns_max > INT32_MAX) return false;
  SeenElements seen;
  uint64_t rows = 0;
  for (const Loop& loop : region.serial) rows |= elements_.scopes().BitOf(loop.variable);
  for (const Phase& phase : region.phases) {
    InstructionsOf(phase, seen);
    for (const Loop& loop : phase.loops) rows |= elements_.scopes().BitOf(loop.variable);
  }
  bool reads_workspace = false;
  uint64_t of_workspaces = 0, of_others = 0;
  for (const auto& [element, counted] : seen) {
    const int slot = elements_.SlotOf(element);
    if (slot < 0) continue;  // A result is no tensor.
    const Tensor& tensor = elements_.TensorAt(slot);
    const bool is_workspace = tensor.role == Tensor::Role::kWorkspace;
    reads_workspace = reads_workspace || is_workspace;
    (is_workspace ? of_workspaces : of_others) |= elements_.dependences().Of(element) & rows;
  }
  elements_.dependences().ForgetElements();  // Results of accumulators are not known yet.
  const bool fewer = (of_others & ~of_workspaces) == 0 && of_others != of_workspaces;
  return reads_workspace && (of_others == 0 || fewer);
}

std::vector<int64_t> LoopWidths::CutsOf(const Phase& phase, const Loop& loop, int lanes) const {
  IndexMath& math = elements_.math();
  const ir::Expr* const end = math.Upper(loop.end);  // Of the axis, where the loop is a block of it.
  if (end == nullptr || !end->IsConst()) return {};
  const int64_t trips = end->value;
  std::set<int64_t> cuts = {0, trips};
  SeenElements seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind != Element::Kind::kPrim || e->dtype != DType::kBool || !math.IsIndexCondition(e) || e->args.size() != 2)
      return;
    const ir::Expr* a = math.ToExpr(e->args[0]);
    const ir::Expr* b = math.ToExpr(e->args[1]);
    if (a == nullptr || b == nullptr) return;  // Of conditions.
    const auto affine = math.Split(math.pool().Sub(a, b), loop.variable);
    if (!affine || !affine->base->IsConst() || !affine->stride->IsConst() || affine->stride->value == 0) return;
    const int64_t stride = affine->stride->value;
    const int64_t root = base::FloorDiv(stride > 0 ? -affine->base->value : affine->base->value, std::abs(stride));
    for (const int64_t cut : {root, root + 1}) {  // The sign changes at one of them, or both for equality.
      if (cut <= 0 || cut >= trips) continue;
      cuts.insert(cut / lanes * lanes);
      cuts.insert(std::min(trips, (cut + lanes - 1) / lanes * lanes));
    }
  };
  for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
  for (const Nested& nested : phase.nested) visit(visit, nested.accumulator.body);
  for (const Store& store : phase.stores) visit(visit, store.value);
  if (cuts.size() > kCutsMax) return {};
  return {cuts.begin(), cuts.end()};
}

// Where bfloat16 is most of what is read and written, and no condition masks it.
bool LoopWidths::IsPaired(const Phase& phase, const Loop& inner) const {
  const int lanes = LanesFor(inner);
  const bool known = inner.begin->IsConst(0) && inner.end->IsConst();
  if (std::endian::native != std::endian::little || lanes * 4 != VectorBytes() || lanes < 8 ||
      (known && inner.end->value < 2 * lanes) || (elements_.region().columns && !phase.accumulators.empty())) {
    return false;
  }
  const uint64_t lane = elements_.scopes().BitOf(inner.variable);
  int narrow = 0, wide = 0;
  bool is_guarded = false;
  const auto count = [&](const Tensor& tensor) { ++(tensor.dtype == DType::kBFloat16 ? narrow : wide); };
  SeenElements seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect)
      is_guarded = is_guarded || elements_.math().GuardsSides(e);
    if (e->kind != Element::Kind::kLoad || (elements_.dependences().Of(e) & lane) == 0) return;
    const int slot = elements_.SlotOf(e);
    if (slot < 0) {
      ++wide;
    } else {
      count(elements_.TensorAt(slot));
    }
  };
  for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
  for (const Nested& nested : phase.nested) visit(visit, nested.accumulator.body);
  for (const Carried& carried : phase.carried) {
    visit(visit, carried.accumulator.body);
    ++wide;
  }
  for (const Store& store : phase.stores) {
    visit(visit, store.value);
    count(elements_.TensorAt(store.tensor));
  }
  return !is_guarded && narrow > wide;
}

}  // namespace hir::codegen::cpu
