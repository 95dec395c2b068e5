// The innermost loops: vectors, their remainders, and ranges in which conditions on indices are decided.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

namespace {

constexpr size_t kCutsMax = 10;   // Copies of a loop for ranges in which conditions are decided.
constexpr int64_t kSumsMax = 8;   // Registers of sums; more leave too few for what is added.
constexpr size_t kFunction = 32;  // Those of exp, erf, tanh.
constexpr size_t kRounding = 5;   // Those of a conversion to bfloat16.

// Unknown: many.
int64_t TripsOf(const Loop& loop) {
  const bool known = loop.begin->IsConst(0) && loop.end->IsConst();
  return known ? std::max<int64_t>(loop.end->value, 1) : INT64_MAX;
}

}  // namespace

// Elements as so many instructions.
size_t Emitter::InstructionsOf(const Element* root, std::unordered_map<const Element*, bool>& seen) {
  if (!seen.emplace(root, true).second) return 0;
  size_t count = root->dtype == DType::kInt64 ? 0 : 1;
  if (root->kind == fusion::Element::Kind::kConvert && BytesOf(TypeOf(root->dtype)) == 2) count = kRounding;
  if (root->kind == fusion::Element::Kind::kPrim && fusion::IsFunction(root->prim)) {
    count = kFunction;
  }
  for (const fusion::Element* arg : root->args) count += InstructionsOf(arg, seen);
  return count;
}

int Emitter::RestLanes(int lanes) const { return std::min(lanes, target_.vector_bytes / 4); }

int Emitter::LanesFor(const Loop& loop) const {
  const int most = target_.vector_bytes / 4;
  const int64_t trips = TripsOf(loop);
  return trips >= most ? most : static_cast<int>(std::bit_ceil(static_cast<uint64_t>(trips)));
}

size_t Emitter::InstructionsOf(const Phase& phase, std::unordered_map<const Element*, bool>& seen) const {
  size_t size = 0;
  for (const Accumulator& accumulator : phase.accumulators) size += InstructionsOf(accumulator.body, seen);
  for (const Carried& carried : phase.carried) size += InstructionsOf(carried.accumulator.body, seen);
  for (const Store& store : phase.stores) size += InstructionsOf(store.value, seen);
  return size;
}

// Where nothing is added up a vector may be several registers. Stores fill whole lines then: half of one, past the
// caches, is a store and a read of memory. And long chains of instructions that wait for each other have neighbours
// to run beside.
int Emitter::LanesFor(const Phase& phase, const Loop& inner) {
  const int lanes = LanesFor(inner);
  const bool stores_alone = phase.accumulators.empty() && phase.carried.empty();
  const bool paired = IsPaired(phase, inner);
  if (!stores_alone && paired) return 2 * lanes;
  if (!stores_alone || phase.stores.empty() || lanes * 4 != target_.vector_bytes) return lanes;
  int bytes = 0;
  for (const Store& store : phase.stores) {
    const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
    bytes = std::max(bytes, BytesOf(MemoryTypeOf(tensor.dtype)));
  }
  std::unordered_map<const Element*, bool> seen;
  const bool is_long = InstructionsOf(phase, seen) > LongChain(target_);
  int registers = is_long ? 4 : bytes == 2 || paired ? 2 : 1;
  while (registers > 1 && TripsOf(inner) < int64_t{registers} * lanes) registers /= 2;
  return registers * lanes;
}

int Emitter::CopiesFor(const Phase& phase, const Loop& inner, int lanes) {
  std::unordered_map<const Element*, bool> seen;
  const size_t size = InstructionsOf(phase, seen);
  int64_t copies = kCopies;
  if (phase.accumulators.empty()) {
    // Ways that there are anyway.
    // Where the loop is a block of its axis, what varies along it alone is another part for every item, too.
    const uint64_t lane = inner.begin->IsConst(0) ? BitOf(inner.variable) : 0;
    const uint64_t along = BitOf(inner.variable);
    int ways = 0;
    for (const auto& [element, counted] : seen) {
      if (element->kind != Element::Kind::kLoad || results_.contains(element->value)) continue;
      const uint64_t variables = VariablesOf(element);
      ways += (variables & along) != 0 && (variables & ~lane) != 0 ? 1 : 0;
    }
    copies = std::max(kCopies / std::max(ways, 1), 1);
    // Neighbours that do not add up gain nothing from being written side by side.
    const int64_t trips = region_->columns ? region_->columns_max : TripsOf(inner);
    if (trips / copies < kOwnWayMin && !shares_rows_) copies = 1;
  }
  const int64_t registers = std::max(lanes * 4 / target_.vector_bytes, 1);
  const size_t instructions = std::max<size_t>(size * static_cast<size_t>(registers), 1);
  if (phase.accumulators.empty()) {
    if (instructions > kLargeBody) copies = 1;
  } else {
    const size_t filled = std::max<size_t>(kLargeBody / instructions, 1);
    copies = std::min(copies, static_cast<int64_t>(std::bit_floor(filled)));
    const auto sums = static_cast<int64_t>(phase.accumulators.size()) * registers;
    while (copies > 1 && copies * sums > kSumsMax) copies /= 2;
  }
  return static_cast<int>(std::clamp<int64_t>(TripsOf(inner) / lanes, 1, copies));
}

int Emitter::CopiesIn(const ir::Expr* trips, int lanes, int copies) {
  if (!trips->IsConst()) return copies;
  return static_cast<int>(std::clamp<int64_t>(trips->value / lanes, 1, copies));
}

// Whether `region` goes through the rows that an earlier launch left of more, and beside them reads nothing at all of
// these or of fewer. It has little to do, so its loops are masked vectors alone.
bool Emitter::IsShort(const Region& region) {
  if (!region.columns || region.columns_max > INT32_MAX) return false;
  std::unordered_map<const Element*, bool> seen;
  uint64_t rows = 0;
  for (const Loop& loop : region.serial) rows |= BitOf(loop.variable);
  for (const Phase& phase : region.phases) {
    InstructionsOf(phase, seen);
    for (const Loop& loop : phase.loops) rows |= BitOf(loop.variable);
  }
  bool reads_workspace = false;
  uint64_t of_workspaces = 0, of_others = 0;
  for (const auto& [element, counted] : seen) {
    const auto slot = slots_.find(element->value);
    if (element->kind != Element::Kind::kLoad || slot == slots_.end()) continue;  // A result.
    const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot->second)];
    const bool is_workspace = tensor.role == Tensor::Role::kWorkspace;
    reads_workspace = reads_workspace || is_workspace;
    (is_workspace ? of_workspaces : of_others) |= VariablesOf(element) & rows;
  }
  element_variables_.clear();  // Results of accumulators are not known yet.
  const bool fewer = (of_others & ~of_workspaces) == 0 && of_others != of_workspaces;
  return reads_workspace && (of_others == 0 || fewer);
}

void Emitter::EmitVectorLoop(const Loop& loop, const Phase& phase, int lanes, int copies,
                             const std::function<void(int copy)>& body) {
  const ir::Expr* first = pool_.Import(loop.begin);
  const ir::Expr* last = pool_.Import(loop.end);
  const std::vector<int64_t> cuts = CutsOf(phase, loop, lanes);
  // Where later phases read the row again, it has been asked for, in one place or in shares of neighbours. Sums alone,
  // and what is stored of a row that earlier phases read, go by what the core does best (layer norm of float32 in four
  // places .84 to .85 of triad, in order .87 to .90; Zen 4).
  const bool is_alone = LastLoops(*region_) == 0;
  const bool in_order = shares_rows_ || (ReadsBestInOrder(target_) && is_alone != phase.accumulators.empty());
  Vectors vectors = {.lanes = lanes, .copies = copies};
  if (in_order) vectors.own_way_min = INT64_MAX;
  if (cuts.size() <= 2) {
    vectors.paired = IsPaired(phase, loop);
    EmitVectors(loop.variable, first, last, vectors, body);
    return;
  }
  // Between two cuts every condition is decided by the range.
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    math_.ResetRange(loop.variable, pool_.Const(cuts[i]), pool_.Const(cuts[i + 1] - 1));
    epoch_ = num_epochs_++;
    element_variables_.clear();
    EmitVectors(loop.variable, pool_.Const(cuts[i]), pool_.Const(cuts[i + 1]), vectors, body);
  }
  math_.ResetRange(loop.variable, first, pool_.Sub(last, pool_.Const(1)));
  epoch_ = 0;
  element_variables_.clear();
}

std::vector<int64_t> Emitter::CutsOf(const Phase& phase, const Loop& loop, int lanes) {
  if (!loop.begin->IsConst(0) || !loop.end->IsConst()) return {};
  const int64_t trips = loop.end->value;
  std::set<int64_t> cuts = {0, trips};
  std::unordered_map<const Element*, bool> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind != Element::Kind::kPrim || e->dtype != DType::kBool || !math_.IsIndexCondition(e) ||
        e->args.size() != 2)
      return;
    const ir::Expr* a = math_.ToExpr(e->args[0]);
    const ir::Expr* b = math_.ToExpr(e->args[1]);
    if (a == nullptr || b == nullptr) return;  // Of conditions.
    const auto affine = math_.Split(pool_.Sub(a, b), loop.variable);
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
  for (const Store& store : phase.stores) visit(visit, store.value);
  if (cuts.size() > kCutsMax) return {};
  return {cuts.begin(), cuts.end()};
}

void Emitter::EnterVectors(int variable, const Vectors& vectors, const V& first) {
  variable_level_[static_cast<size_t>(variable)] = static_cast<int>(levels_.size()) - 1;
  levels_.back().body_memo.clear();
  lanes_ = {};
  lanes_.variable = variable;
  lanes_.count = vectors.lanes;
  lanes_.first = first;
  lanes_.paired = vectors.paired;
}

// No more lanes than there are matter, and 32 bits hold their number: a compare of all lanes is one instruction then.
void Emitter::MaskVectors(const Vectors& vectors, const V& end) {
  std::string& code = Here();
  const int lanes = vectors.lanes;
  V rest = writer_.Binary(code, "sub", end, lanes_.first);
  if (vectors.masked) rest = writer_.Intrinsic(code, "smin", {rest, IntConstant(Ty::kI64, lanes)});
  const V count = writer_.CastTo(code, "trunc", rest, Ty::kI32);
  lanes_.masked = true;
  lanes_.mask = writer_.Compare(code, "ult", writer_.Iota(lanes, Ty::kI32), writer_.Splat(code, count, lanes));
}

void Emitter::EmitVectors(int variable, const ir::Expr* first, const ir::Expr* last, const Vectors& vectors,
                          const std::function<void(int copy)>& body) {
  const int lanes = vectors.lanes;
  const ir::Expr* trips = pool_.Sub(last, first);
  const int copies = CopiesIn(trips, lanes, vectors.copies);
  const int64_t step = int64_t{lanes} * copies;
  const V begin = EmitExpr(first);
  const V end = EmitExpr(last);
  const bool whole = pool_.Mod(trips, pool_.Const(step))->IsConst(0);
  const auto constant = [](int64_t value) { return IntConstant(Ty::kI64, value); };
  if (!whole && (is_short_ || vectors.masked)) {
    const Vectors all = {.lanes = is_short_ ? RestLanes(lanes) : lanes, .masked = !is_short_};
    EmitLoop(begin, end, constant(all.lanes), [&](const V& at) {
      EnterVectors(variable, all, at);
      if (all.lanes > 1) MaskVectors(all, end);
      body(0);
    });
    lanes_ = {};
    return;
  }
  // Whole steps are [begin, middle). In a step copy k is `distance` after copy k - 1.
  V middle = end, distance = constant(lanes), stride = constant(step), stop = end;
  if (trips->IsConst()) {
    const int64_t in_steps = std::max<int64_t>(trips->value, 0) / step * step;
    if (!whole) middle = EmitExpr(pool_.Add(first, pool_.Const(in_steps)));
    stop = middle;
    if (copies > 1 && in_steps / copies >= vectors.own_way_min) {
      distance = constant(in_steps / copies);
      stride = constant(lanes);
      stop = EmitExpr(pool_.Add(first, pool_.Const(in_steps / copies)));
    }
  } else {
    std::string& code = Here();
    V in_steps = writer_.Intrinsic(code, "smax", {writer_.Binary(code, "sub", end, begin), constant(0)});
    if (!whole) {
      const V rest = writer_.Binary(code, "urem", in_steps, constant(step));
      in_steps = writer_.Binary(code, "sub", in_steps, rest);
      middle = writer_.Binary(code, "add", begin, in_steps);
    }
    stop = middle;
    if (copies > 1 && vectors.own_way_min < INT64_MAX) {
      const V own = writer_.Binary(code, "udiv", in_steps, constant(copies));
      const V is_long = writer_.Compare(code, "sge", own, constant(vectors.own_way_min));
      distance = writer_.Select(code, is_long, own, distance);
      stride = writer_.Select(code, is_long, constant(lanes), stride);
      stop = writer_.Select(code, is_long, writer_.Binary(code, "add", begin, own), middle);
    }
  }
  EmitLoop(begin, stop, stride, [&](const V& at) {
    V from = at;
    for (int copy = 0; copy < copies; ++copy) {
      if (copy > 0) from = writer_.Binary(Here(), "add", from, distance);
      EnterVectors(variable, vectors, from);
      body(copy);
    }
  });
  if (!whole) {
    const Vectors rest = {.lanes = RestLanes(lanes)};  // One register at a time.
    const bool whole_vectors = pool_.Mod(trips, pool_.Const(rest.lanes))->IsConst(0);
    EmitLoop(middle, end, constant(rest.lanes), [&](const V& at) {
      EnterVectors(variable, rest, at);
      if (rest.lanes > 1 && !whole_vectors) MaskVectors(rest, end);
      body(0);
    });
  }
  lanes_ = {};
}

}  // namespace hir::codegen::cpu
