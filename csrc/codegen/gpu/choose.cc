// Which schedule a region gets: by which variable memory is contiguous along, and which loop that is.
#include <algorithm>
#include <bit>
#include <map>

#include "csrc/codegen/axis_votes.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

namespace {

using fusion::Element;

constexpr int64_t kTileMin = 32;  // Extents below do not fill tiles.
// Shorter rows that follow each other: vectors along the outputs read each several times, from the first-level
// cache: 64x50176x3 with its rows turned takes 0.027 ms on an H200, through tiles 0.039. A shorter axis of outputs is
// a side of the tile as a whole, where it is constant: 64x3x50176 takes 0.025 ms, without tiles 0.032.
constexpr int64_t kAnyTileMin = 8;
// Of a flat loop: shifted inputs are read an element at a time, and still its vectors pay.
constexpr int kMisfitsOfFlat = 16;
// Elements of a row; shorter ones go through shared memory. The sum of 15 million bfloat16 in rows of 65 takes 0.015 ms
// on an H200, by elements 0.039; in rows of 255 0.013 and 0.017.
constexpr int64_t kSkewedMin = 41;
// The same, where a thread has one vector: what is in front of it costs more; and vectors that are as good as none.
constexpr int64_t kSkewedMinOfGrid = 2048;
constexpr int kLanesOfFew = 2;
constexpr int64_t kThreadRow = 16;
// Through shared memory, where no vectors fit: softmax of 15 million bfloat16 in rows of 17 takes 0.027 ms on an H200,
// by threads that share a row 0.087; in rows of 63 0.030 and 0.052.
constexpr int64_t kStagedRow = 80;
// Rows of a multiprocessor from which on a thread has each, where their lengths are symbols: softmax over 16 of
// [1, 16, 10001], of any size, 0.0062 ms, 0.0081 with a thread each.
constexpr int64_t kRowsOfAnyLength = 256;
constexpr int64_t kThreadRowOfMany = 64;  // Where threads of a vector each are several times as many as run at once.
// Threads of a multiprocessor from which on each takes a vector with all its rows: softmax over 10 of [1, 10, 131072]
// takes 0.0085 ms on an H200, by blocks of threads 0.013.
constexpr int64_t kThreadsOfSteps = 96;
constexpr size_t kTiledStoresMax = 4;
constexpr size_t kTransposedStoresMax = 2;
constexpr int kThreadsThatHide = 256;  // Of a multiprocessor, the latency of what each reads, several vectors at once.

AxisVotes VotesWithoutParts(Emitter& em, const LoopNest& nest, const Region& region) {
  const StridesOf strides = [&nest](const ir::Value* value) -> const std::vector<const ir::Expr*>* {
    const auto is_its = [&](const Tensor& t) { return t.value == value && t.role != Tensor::Role::kOutput; };
    const auto found = std::ranges::find_if(nest.tensors, is_its);
    return found == nest.tensors.end() ? nullptr : &found->strides;
  };
  AxisVotes votes = VotesOf(region, nest.tensors, strides, em.math);
  // The parts of a reduction, by which its loops begin and end, are no vectors.
  for (const Phase& phase : region.phases) {
    for (const Loop& loop : phase.loops) {
      const auto bounds = [&](const auto& entry) {
        return entry.first >= 0 &&
               (em.math.DependsOn(loop.begin, entry.first) || em.math.DependsOn(loop.end, entry.first));
      };
      std::erase_if(votes.loads, bounds);
      std::erase_if(votes.stores, bounds);
    }
  }
  return votes;
}

// The variable with most votes; the later of equals; -1 without any.
int Best(const std::map<int, int64_t>& votes) {
  int best = -1;
  int64_t most = 0;
  for (const auto& [variable, count] : votes) {
    if (count >= most) best = variable, most = count;
  }
  return best;
}

const Loop* FindLoop(std::span<const Loop> loops, int variable) {
  const auto at = std::ranges::find(loops, variable, &Loop::variable);
  return at == loops.end() ? nullptr : &*at;
}

// Whether the region adds up what another launch left in workspaces: that is most of what it moves.
bool AddsParts(const LoopNest& nest, const Region& region) {
  if (LoopingPhases(region) == 0 || !region.serial.empty()) return false;
  const auto is_workspace = [&](const Tensor& t) { return t.role == Tensor::Role::kWorkspace; };
  for (const Phase& phase : region.phases) {
    for (const Store& store : phase.stores) {
      if (is_workspace(nest.tensors[static_cast<size_t>(store.tensor)])) return false;
    }
  }
  return std::ranges::any_of(nest.tensors, is_workspace);
}

// Whether most of what is read and stored along `variable` is of 4 bytes and more. Vectors of 16 bytes of those give
// more threads, with less each: an H200 updates 1.7 million weights of float32 by gradients of bfloat16 (Adam) in
// 0.0170 ms, with 8 elements each in 0.0180.
bool MovesWide(Emitter& em, const LoopNest& nest, const Region& region, int variable) {
  const auto loop = std::ranges::find(region.grid, variable, &Loop::variable);
  if (loop == region.grid.end()) return false;
  std::vector<DType> dtypes;
  for (const Access& access : em.loads.Scalars(RootsOf(region.phases[0]), std::span(&*loop, 1), {}))
    dtypes.push_back(access.load->dtype);
  for (const Store& store : region.phases[0].stores)
    dtypes.push_back(nest.tensors[static_cast<size_t>(store.tensor)].dtype);
  return 2 * std::ranges::count_if(dtypes, [](DType d) { return DTypeBytes(d) >= 4; }) > std::ssize(dtypes);
}

// The widest vectors in which everything along `variable` fits, by bytes of the narrowest element moved.
int LanesFor(Emitter& em, const LoopNest& nest, const Region& region, int variable) {
  int64_t narrowest = 8;
  const bool reduces = LoopingPhases(region) > 0;  // What is stored is little.
  const bool parts = AddsParts(nest, region);
  for (const Tensor& tensor : nest.tensors) {
    if (parts ? tensor.role == Tensor::Role::kWorkspace : !reduces || tensor.role != Tensor::Role::kOutput)
      narrowest = std::min(narrowest, DTypeBytes(tensor.dtype));
  }
  int most = std::min<int>(kLanesMax, static_cast<int>(16 / narrowest));
  if (!reduces && MovesWide(em, nest, region, variable)) most = std::min(most, 4);
  int best = 1, fewest = 1000;
  for (int lanes = most; lanes > 1; lanes /= 2) {
    em.vector.Set(variable, lanes);
    const int misfits = em.loads.Misfits(region);
    if (misfits < fewest) best = lanes, fewest = misfits;
  }
  em.vector.Clear();
  return best;
}

// Where an element lies; null where that is data.
const ir::Expr* OffsetOf(Emitter& em, std::span<const Element* const> index, const Tensor& tensor) {
  ir::ExprPool& pool = em.pool;
  const ir::Expr* offset = pool.Const(0);
  for (size_t i = 0; i < index.size(); ++i) {
    const ir::Expr* at = em.math.ToExpr(index[i]);
    if (at == nullptr) return nullptr;
    offset = pool.Add(offset, pool.Mul(at, pool.Import(tensor.strides[i])));
  }
  return offset;
}

bool FitsTransposed(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan, int along,
                    int across) {
  const std::vector<Store>& stores = region.phases[0].stores;
  if (stores.size() > kTransposedStoresMax) return false;
  const int64_t bytes = DTypeBytes(nest.tensors[static_cast<size_t>(stores[0].tensor)].dtype);
  if (bytes != 2 && bytes != 4) return false;
  em.vector.Set(across, 1);
  for (const Store& store : stores) {
    const Tensor& tensor = nest.tensors[static_cast<size_t>(store.tensor)];
    if (DTypeBytes(tensor.dtype) != bytes) return false;
    const ir::Expr* offset = OffsetOf(em, store.index, tensor);
    if (offset == nullptr) return false;
    const auto split = em.math.Split(offset, across);
    if (!split || !split->stride->IsConst(1)) return false;
    // Other terms are multiples of an extent along `across`, which the tile's code requires to fit.
    const auto other = em.math.Split(split->base, along);
    if (!other) return false;
  }
  for (const int variable : {along, across}) {
    if (SizeOf(FindLoop(region.grid, variable)->end, plan.sizes, kUnknown) < kTileMin) return false;
  }
  if (!FillsTransposed(nest, region, plan, along, across)) return false;
  bool divide = true;  // Both sides of a tile are vectors.
  em.conditions.Probe([&] {
    for (const int variable : {along, across})
      divide = divide && em.conditions.Divisible(em.pool.Import(FindLoop(region.grid, variable)->end), 16 / bytes);
  });
  if (!divide) return false;
  em.vector.Set(along, static_cast<int>(16 / bytes));
  Region loads = region;  // Its stores do not count: they turn.
  for (Store& store : loads.phases[0].stores) store.index.clear();
  const bool fits = em.loads.Misfits(loads) == 0;
  em.vector.Clear();
  return fits;
}

// Whether rows have at most so many elements, and are enough for a thread each to fill the machine.
bool HasShortRows(Emitter& em, const Region& region, const KernelPlan& plan, int64_t longest_max = kThreadRow) {
  int64_t longest = 0;
  bool is_known = true;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    const ir::Expr* trips = em.indices.TripsOf(phase.loops);
    longest = std::max(longest, SizeOf(trips, plan.sizes, kUnknown));
    is_known = is_known && trips->IsConst();
  }
  const int64_t rows = SizeOf(em.indices.TripsOf(region.grid), plan.sizes, 0);
  return longest <= longest_max && !region.grid.empty() &&
         rows >= (is_known ? kWarp : kRowsOfAnyLength) * plan.target.multiprocessors;
}

// Whether all loops of the region's phases are over `variable`, one each, and need no more than their rest to be added.
bool MayBeRagged(const Region& region, int variable) {
  for (size_t p = 0; p < region.phases.size(); ++p) {
    const Phase& phase = region.phases[p];
    if (phase.loops.empty()) continue;
    if (phase.loops.size() != 1 || phase.loops[0].variable != variable) return false;
  }
  return true;
}

// Whether tiles may save any bytes: outputs lie across, others may lie along, and what is read along one axis lies in
// memory along the other, too.
bool MayBeTiled(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan, int along,
                int across) {
  const std::vector<Store>& stores = region.phases[0].stores;
  if (stores.size() > kTiledStoresMax) return false;
  const auto is_contiguous = [&](const ir::Expr* offset, int variable) {
    const auto split = offset == nullptr ? std::nullopt : em.math.Split(offset, variable);
    return split && split->stride->IsConst(1);
  };
  bool turns = false;
  for (const Store& store : stores) {
    const ir::Expr* offset = OffsetOf(em, store.index, nest.tensors[static_cast<size_t>(store.tensor)]);
    const bool is_turned = is_contiguous(offset, across);
    if (!is_turned && !is_contiguous(offset, along)) return false;
    turns = turns || is_turned;
  }
  if (!turns) return false;
  for (const int variable : {along, across}) {
    const Loop* loop = FindLoop(region.grid, variable);
    if (loop == nullptr || SizeOf(loop->end, plan.sizes, kUnknown) < (loop->end->IsConst() ? 2 : kAnyTileMin))
      return false;
  }
  const ir::Expr* row = FindLoop(region.grid, along)->end;
  const bool is_short = SizeOf(row, plan.sizes, kUnknown) < kAnyTileMin;
  // Whether short rows follow each other, so that neighbours have read what lies beside an element.
  const auto joins = [&](const ir::Expr* offset) {
    const auto split = em.math.Split(offset, across);
    return split && split->stride == em.pool.Import(row);
  };
  bool crosses = false;
  std::set<const Element*> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.insert(e).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind != Element::Kind::kLoad) return;
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.value != e->value || tensor.role == Tensor::Role::kOutput) continue;
      const ir::Expr* offset = OffsetOf(em, e->args, tensor);
      const bool is_turned = is_contiguous(offset, along) && em.math.DependsOn(offset, across);
      crosses = crosses || (is_turned && !(is_short && joins(offset)));
    }
  };
  for (const Store& store : stores) visit(visit, store.value);
  return crosses;
}

class Chooser {
 public:
  Chooser(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan)
      : em_(em),
        nest_(nest),
        region_(region),
        plan_(plan),
        votes_(VotesWithoutParts(em, nest, region)),
        all_(votes_.All()) {
    s_.vector = Best(all_);
  }

  Schedule Run() {
    if (!region_.serial.empty()) {
      InOrder();
    } else if (HasNested(region_)) {
      Nested();
    } else if (LoopingPhases(region_) == 0 && region_.phases.size() == 1) {
      Pointwise();
    } else if (FindLoop(region_.grid, s_.vector) != nullptr) {
      Columns();
    } else {
      Rows();
    }
    em_.vector.Clear();
    em_.vector.SetRagged(false);
    em_.vector.SetSkew(nullptr);
    return s_;
  }

 private:
  // Vectors lie along the columns.
  void InOrder() {
    std::map<int, int64_t> columns;
    for (const Phase& phase : region_.phases) {
      for (const Loop& loop : phase.loops) columns[loop.variable] = all_[loop.variable];
    }
    s_.vector = Best(columns);
    SetLanes();
    ChooseCarried(em_, region_, plan_, s_);
  }

  // Vectors lie along what each nested sum adds up.
  void Nested() {
    std::map<int, int64_t> inside;
    for (const Phase& phase : region_.phases) {
      if (phase.nested.empty()) continue;
      for (const Loop& loop : std::span(phase.loops).subspan(phase.nested_loops))
        inside[loop.variable] = all_[loop.variable];
    }
    s_.vector = Best(inside);
    SetLanes();
    ChooseRows(em_, region_, plan_, s_);
  }

  void Pointwise() {
    // Where outputs lie in several ways, others than the commonest may be what a tile is for.
    std::map<int, int64_t> candidates = votes_.stores;
    while (!candidates.empty()) {
      const int across = Best(candidates);
      candidates.erase(across);
      if (Turn(across)) return;
    }
    if (const int across = Best(votes_.stores); across >= 0) s_.vector = across;
    if (s_.vector < 0 && !region_.grid.empty()) s_.vector = region_.grid.back().variable;
    SetLanes();
    if (region_.grid.size() == 1) {
      TryRagged(kMisfitsOfFlat);
    } else if (s_.vector >= 0 && s_.lanes <= kLanesOfFew) {
      TrySkewed(SizeOf(FindLoop(region_.grid, s_.vector)->end, plan_.sizes, kUnknown), kSkewedMinOfGrid);
    }
    ChoosePointwise(em_, region_, plan_, s_);
  }

  // Whether outputs along `across` go through tiles.
  bool Turn(int across) {
    // Inputs that lie as outputs do need no tile; beside others they do not forbid one.
    std::map<int, int64_t> turned = votes_.loads;
    turned.erase(across);
    const int along = Best(turned);
    if (along < 0) return false;
    const Schedule before = s_;
    s_.vector = along;
    s_.across = across;
    if (along == Best(votes_.loads) && FitsTransposed(em_, nest_, region_, plan_, along, across)) {
      ChooseTransposed(nest_, region_, s_);
      return true;
    }
    if (MayBeTiled(em_, nest_, region_, plan_, along, across) && ChooseTiled(em_, nest_, region_, plan_, s_))
      return true;
    s_ = before;
    return false;
  }

  void Columns() {
    SetLanes();
    s_.adds_parts = AddsParts(nest_, region_);
    const Loop& column = *FindLoop(region_.grid, s_.vector);
    const bool is_narrow = SizeOf(em_.indices.TripsOf(std::span(&column, 1)), plan_.sizes, kUnknown) < kWarp;
    // One a vector.
    const int64_t all = SizeOf(em_.indices.TripsOf(region_.grid), plan_.sizes, 0);
    const int64_t threads = all / std::max(plan_.target.multiprocessors, 1);
    const bool are_many = threads >= kThreadsThatHide && !s_.adds_parts;
    const bool is_constant = IsConstant(em_.indices.TripsOf(region_.grid));
    // Rows that are read several times are better held.
    const bool is_once = is_constant && LoopingPhases(region_) == 1;
    const int64_t longest = is_once && threads >= 2 * kThreadsOfMultiprocessor ? kThreadRowOfMany : kThreadRow;
    if ((s_.lanes == 1 || is_narrow || are_many || IsStep(threads)) && HasShortRows(em_, region_, plan_, longest))
      return ChooseShortRows(em_, region_, plan_, s_);
    ChooseColumns(em_, region_, plan_, s_);
  }

  // Whether all rows are of a few vectors, which a thread loads at once, and threads are enough.
  bool IsStep(int64_t threads) {
    return s_.lanes > 1 && !s_.adds_parts && threads >= kThreadsOfSteps &&
           std::ranges::all_of(region_.phases, [&](const Phase& phase) {
             return IsOneStep(em_.indices.TripsOf(phase.loops), s_.lanes);
           });
  }

  void Rows() {
    const bool are_short = HasShortRows(em_, region_, plan_);
    const bool may_be_staged = HasShortRows(em_, region_, plan_, kStagedRow);
    for (size_t p = 0; s_.vector < 0 && p < region_.phases.size(); ++p) {
      if (!region_.phases[p].loops.empty()) s_.vector = region_.phases[p].loops.back().variable;
    }
    SetLanes();
    const bool has_vectors = are_short && HasVectorsAThreadEach();
    // By threads that share a row, or staged, if that can be.
    const bool are_shared = are_short ? has_vectors : s_.lanes <= kLanesOfFew;
    if (are_short ? !has_vectors || !AreWholeOrPaired() : may_be_staged && are_shared) {
      // A thread for each; or for a vector of them, where all that varies from row to row lies so.
      const Schedule before = s_;
      s_.vector = region_.grid.back().variable;
      SetLanes();
      if (em_.loads.Misfits(region_) > 0) s_.lanes = 1;
      if (s_.lanes == 1) em_.vector.Clear();
      ChooseShortRows(em_, region_, plan_, s_);
      if (s_.is_staged || !are_shared) return;
      s_ = before;
      em_.vector.Set(s_.lanes > 1 ? s_.vector : -1, s_.lanes);
    }
    if (MayBeRagged(region_, s_.vector)) {
      TryRagged(0);
      int64_t longest = 0;
      for (const Phase& phase : region_.phases) {
        if (!phase.loops.empty()) longest = std::max(longest, SizeOf(phase.loops[0].end, plan_.sizes, kUnknown));
      }
      TrySkewed(longest, kSkewedMin);
    }
    ChooseRows(em_, region_, plan_, s_);
  }

  // Whether a short row is of vectors, known to be few, that neighbouring threads read side by side. A row that is only
  // added up is faster so where no thread of its group is idle, as with 1, 2 or 4 vectors; else one thread has the row
  // (ms on an H200, 16 million float32: rows of 6 0.031 with a thread a row, 0.055 with four threads for three vectors;
  // rows of 16 0.038 and 0.027).
  bool HasVectorsAThreadEach() {
    if (s_.lanes == 1 || !MayBeRagged(region_, s_.vector)) return false;
    const bool adds_only = LoopingPhases(region_) == 1 && std::ranges::all_of(region_.phases, [](const Phase& phase) {
                             return phase.loops.empty() || phase.stores.empty();
                           });
    return std::ranges::all_of(region_.phases, [&](const Phase& phase) {
      const ir::Expr* trips = em_.indices.TripsOf(phase.loops);
      return trips->IsConst() && (!adds_only || std::has_single_bit(static_cast<uint64_t>(trips->value)));
    });
  }

  // Whether the vectors of a short row are of 16 bytes, or a power of two: other rows are better staged (ms on an H200,
  // softmax of 7.5 million float32: rows of 6 0.030, staged 0.023; of 8 0.020 and 0.036; of 12 0.022 and 0.023; of 14
  // 0.024 and 0.020).
  bool AreWholeOrPaired() {
    return std::ranges::all_of(region_.phases, [&](const Phase& phase) {
      if (phase.loops.empty()) return true;
      if (std::has_single_bit(static_cast<uint64_t>(em_.indices.TripsOf(phase.loops)->value))) return true;
      return std::ranges::all_of(em_.loads.Vectors(RootsOf(phase)),
                                 [&](const Access& access) { return em_.places.BytesOf(access) >= 16; });
    });
  }

  void SetLanes() {
    s_.lanes = s_.vector < 0 ? 1 : LanesFor(em_, nest_, region_, s_.vector);
    em_.vector.Set(s_.lanes > 1 ? s_.vector : -1, s_.lanes);
  }

  // Wider vectors with a rest behind them, where the misfits of memory are at most so many.
  void TryRagged(int misfits_max) {
    const int before = s_.lanes;
    em_.vector.SetRagged(true);
    SetLanes();
    s_.is_ragged = s_.lanes > before && em_.loads.Misfits(region_) <= misfits_max;
    em_.vector.SetRagged(s_.is_ragged);
    if (!s_.is_ragged) SetLanes();
  }

  // Vectors of long rows that begin anywhere: what lies otherwise than most tensors is read across them.
  void TrySkewed(int64_t longest, int64_t least) {
    const ir::Expr* skew = longest < least ? nullptr : em_.loads.RowOffset(region_, s_.vector);
    if (skew == nullptr) return;
    const Schedule before = s_;
    em_.vector.SetRagged(true);
    em_.vector.SetSkew(skew);
    SetLanes();
    size_t fits = 0;
    for (const Phase& phase : region_.phases) {
      const bool is_read = !phase.loops.empty() || region_.phases.size() == 1;
      if (is_read) fits = std::max(fits, em_.loads.Vectors(RootsOf(phase)).size());
    }
    s_.is_skewed = s_.is_ragged = s_.lanes > before.lanes && em_.loads.Misfits(region_) <= static_cast<int>(fits);
    if (s_.is_skewed) return;
    em_.vector.SetRagged(before.is_ragged);
    em_.vector.SetSkew(nullptr);
    SetLanes();
    s_.is_ragged = before.is_ragged;
  }

  Emitter& em_;
  const LoopNest& nest_;
  const Region& region_;
  const KernelPlan& plan_;
  const AxisVotes votes_;
  std::map<int, int64_t> all_;  // Votes of loads and of stores.
  Schedule s_;
};

}  // namespace

bool IsConstant(const ir::Expr* expr) {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(expr, symbols);
  return std::ranges::all_of(symbols, [](std::string_view s) { return VariableOf(s) >= 0; });
}

Schedule Choose(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan) {
  return Chooser(em, nest, region, plan).Run();
}

void Tune(Schedule& s, const Tuning& tuning) {
  using Kind = Schedule::Kind;
  if (tuning == Tuning()) return;
  if (s.kind == Kind::kCarried) return;
  if (s.kind == Kind::kTransposed || s.kind == Kind::kTiled || s.is_staged) {
    if (tuning.ctas_per_sm > 0) s.ctas_per_sm = tuning.ctas_per_sm;
    return;
  }
  if (tuning.threads > 0) s.threads = tuning.threads;
  if (tuning.unroll > 0) s.unroll = tuning.unroll;
  if (tuning.stream != 0) s.stream = tuning.stream > 0;
  if (tuning.keep != 0) s.keep = tuning.keep > 0;
  if (tuning.ctas_per_sm > 0) s.ctas_per_sm = tuning.ctas_per_sm;
  if (s.kind == Kind::kRows) {
    if (tuning.rows > 0) s.rows = tuning.rows;
    if (tuning.held != 0) s.held = tuning.held > 0 && s.can_hold;
    s.early = s.early && s.held;
    s.keep = s.keep && !s.held;
    s.rows = std::clamp(s.rows, 1, std::max(s.threads / 32, 1));
    s.threads = std::max(s.threads / s.rows / 32, 1) * 32 * s.rows;
    const int64_t width = s.threads / s.rows;
    if (s.held) s.unroll = static_cast<int>((s.vectors + width - 1) / width);
    s.items_per_cta = s.rows;
  } else if (s.kind == Kind::kColumns) {
    if (tuning.width > 0) s.width = tuning.width;
    s.width = std::min(s.width, s.threads);
    if (s.held && tuning.width + tuning.threads + tuning.unroll > 0) s.held = false;
    const bool was_exact = s.is_exact;
    const int64_t before = s.items_per_cta;
    s.items_per_cta = int64_t{s.width} * s.lanes;
    s.is_exact = was_exact && before % s.items_per_cta == 0;
  } else {
    s.items_per_cta = int64_t{s.threads} * s.unroll * s.lanes;
  }
}

Tuning TuningOf(const Schedule& s) {
  constexpr std::string_view kNames[] = {"pointwise", "rows", "columns", "transposed", "tiled", "carried"};
  return {.schedule = std::string(kNames[static_cast<size_t>(s.kind)]),
          .vectors = s.vectors,
          .lanes = s.lanes,
          .threads = s.threads,
          .rows = s.rows,
          .width = s.width,
          .unroll = s.unroll,
          .ctas_per_sm = s.ctas_per_sm,
          .held = s.held ? 1 : -1,
          .stream = s.stream ? 1 : -1,
          .keep = s.keep ? 1 : -1};
}

Schedule AnySize(Schedule s) {
  switch (s.kind) {
    case Schedule::Kind::kTransposed:
      s.kind = Schedule::Kind::kPointwise;
      s.vector = s.across;
      s.unroll = static_cast<int>(s.items_per_cta / s.threads);
      break;
    case Schedule::Kind::kPointwise: s.unroll *= s.lanes; break;
    case Schedule::Kind::kTiled: s.lanes_across = 1; break;
    case Schedule::Kind::kColumns: {
      const int width = std::min(s.width * s.lanes, s.threads);
      s.width = width;
      s.unroll = 1;
      s.held = s.is_staged = false;
      break;
    }
    case Schedule::Kind::kRows:
      s.held = false;
      s.early = false;
      s.unroll = 1;
      break;
    case Schedule::Kind::kCarried:
      s.held = false;
      s.unroll = 1;
      break;
  }
  s.is_exact = s.is_exact && s.kind != Schedule::Kind::kColumns;
  s.lanes = 1;
  s.is_ragged = s.is_skewed = false;
  s.ahead = false;
  s.stream = false;
  s.keep = false;
  s.rolled = true;
  return s;
}

}  // namespace hir::codegen::gpu
