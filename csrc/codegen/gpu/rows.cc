// Reductions along the axis in which memory is contiguous, and what follows them: a group of threads shares a row.
//
//   phase by phase: each thread combines its vectors; warps by shuffles; warps of a group through shared memory with
//   one barrier; the next phase has the results
//
// Bytes: inputs and outputs once, when a row is held in registers (packed, as it lies in memory: half the registers
// of bf16) or when its second reading hits the second-level cache, which it does while the rows in flight fit there and
// the cache is told to give their lines up last.
// Loads of a row come before the first use: `unroll` of them a thread.
//
// Occupancy: a CTA that loads, reduces, stores has phases, which only other CTAs fill: 1536 to 2048 threads a
// multiprocessor, so 32 registers a thread where 2 vectors are held, 64 where 4 to 8 are. Caps that spill are relaxed
// by whoever compiles.
//
// Short rows: a warp has several, each of a group of its threads. Long rows of odd lengths begin anywhere: vectors
// begin where memory's do, and a thread each computes the elements in front of them and behind.
//
// Sums nested in a row, those of each channel of a group, are a warp's each, or several warps': they go through a
// channel alone, and add to the row's sums on the way.
//
// A maximum and the sum of exp(x - maximum) are taken in one reading: each thread keeps both, and scales its sum
// when its maximum rises.
#include <algorithm>
#include <bit>
#include <functional>
#include <span>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Element;
using fusion::Prim;

namespace {

constexpr int kRegisterFile = 65536;      // Of a multiprocessor.
constexpr int64_t kEarlyVectorsMax = 16;  // Of a thread, all loaded before the first is used.
constexpr int kScalarsInFlight = 8;
constexpr int kThreadsOfGroups = 128;
constexpr int64_t kVectorsOfShort = 4;
constexpr int64_t kReadings = 8;  // So many times the elements of a phase: else it counts for no reading of the row.

bool HasOnlinePair(const Region& region) {
  for (size_t p = 0; p < region.phases.size(); ++p) {
    if (IsOnlinePair(region, p)) return true;
  }
  return false;
}

// Whether all phases that loop do it over the same.
bool HaveSameLoops(const Region& region) {
  const Phase* first = nullptr;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    if (first == nullptr) first = &phase;
    if (!std::ranges::equal(phase.loops, first->loops, {}, &Loop::variable, &Loop::variable)) return false;
  }
  return true;
}

// Whether all phases that loop over `variable` do it from the same element to the same.
bool HaveSameBounds(const Region& region, int variable) {
  const Loop* first = nullptr;
  for (const Phase& phase : region.phases) {
    const auto loop = std::ranges::find(phase.loops, variable, &Loop::variable);
    if (loop == phase.loops.end()) continue;
    if (first == nullptr) first = &*loop;
    if (loop->begin != first->begin || loop->end != first->end) return false;
  }
  return true;
}

int RoundToWarps(int64_t threads) { return static_cast<int>((threads + 31) / 32 * 32); }

// Threads of a short row, of which a warp has several: as many as it has vectors, and as a rest may have elements.
int GroupOf(int64_t nv, int rest) {
  const auto vectors = static_cast<unsigned>(std::clamp<int64_t>(nv, 1, kWarp));
  return std::max(rest, static_cast<int>(std::bit_ceil(vectors)));
}

// Where the code serves many sizes there are few numbers of threads: each is compiled once.
int RoundToBucket(int64_t threads) { return threads <= 128 ? 128 : threads <= 288 ? 288 : 512; }

// Whether a row of `nv` vectors of one tensor stays in registers, or is read again from the second-level cache, which
// keeps what it is told to. `several`: reductions. Sizes a little over what 256 threads hold, and the longest rows of
// more than one sum, are better held; so are short rows.
bool HoldsRow(int64_t nv, bool several) { return (several && nv > 4096) || (nv > 512 && nv <= 640); }

// How it is read again, as measured on an H200 (ms, 16384 rows unless 2048 are said; in parentheses: held in
// registers). Returns the registers of a thread.
//    512 vectors: 256 threads with 2. Softmax 0.0668 (0.0689), layer norm 0.0683 (0.0696), RMS norm 0.0675 (0.0692).
//   1024: 256 with 4: softmax 0.1282 (0.1321), layer norm 0.1307 (0.1329); 512 with 2: RMS norm 0.1285 (0.1327). The
//         last without a word to the cache 0.1320.
//   2048 (2048 rows): 512 with 4. Softmax 0.0366 (0.0377), layer norm 0.0396 (0.0407), RMS norm 0.0368 (0.0378).
//   8192 (2048 rows): RMS norm, 1024 with 8, 0.1381 (0.1460). Softmax 0.1500 (0.1495), layer norm 0.1680 (0.1638).
//   Of 128 rows a thread for each vector: 1024 vectors: softmax 0.0057 (0.0064), layer norm 0.0060 (0.0064).
int ReadRowAgain(int64_t nv, bool online, bool several, bool few, bool is_constant, Schedule& s) {
  s.keep = s.stream = true;
  if (few && is_constant) {
    s.unroll = nv <= 1024 ? 1 : 2;
    s.threads = static_cast<int>(std::min<int64_t>(RoundToWarps(nv), 1024));
    return 32;
  }
  if (nv <= 512) {
    s.unroll = 2;
    s.threads = is_constant ? RoundToWarps((nv + 1) / 2) : nv <= 256 ? 128 : 256;
    return 32;
  }
  if (nv <= 1024) {
    s.unroll = several ? 4 : 2;
    s.threads = several ? 256 : 512;
    return online ? 64 : several ? 40 : 32;
  }
  if (nv <= 2048 || (nv <= 4096 && !is_constant)) {
    s.unroll = 4;
    s.threads = 512;
    return 40;
  }
  s.unroll = 8;
  s.threads = nv <= 4096 ? 512 : 1024;
  return 64;
}

// How it is held, measured as above. Returns the registers of a thread.
//    513 vectors: 128 threads with 5: softmax, capped at 40 registers, 0.0690, layer norm, at 56, 0.0705 (read again
//         by 128 0.0705; 288 with 2 0.0723). RMS norm 288 with 2 0.0685.
//   8192 (2048 rows): 1024 with 8, so one CTA a multiprocessor.
int HoldRow(int64_t nv, bool online, bool several, bool is_constant, Schedule& s) {
  s.held = true;
  if (nv > 4096) {
    s.unroll = 8;
    s.threads = is_constant ? RoundToWarps((nv + 7) / 8) : 1024;
    return 64;
  }
  if (several) {
    s.threads = 128;
    s.unroll = static_cast<int>((nv + s.threads - 1) / s.threads);
    if (!is_constant) s.unroll = s.unroll <= 2 ? 2 : 5;  // Where the code serves many sizes, few of these.
    return s.unroll <= 2 ? 32 : online ? 40 : 56;
  }
  s.unroll = 2;
  s.threads = is_constant ? RoundToWarps((nv + 1) / 2) : RoundToBucket((nv + 1) / 2);
  return 32;
}

}  // namespace

bool IsOnlinePair(const Region& region, size_t p) {
  if (p + 1 >= region.phases.size()) return false;
  const Phase& first = region.phases[p];
  const Phase& second = region.phases[p + 1];
  if (first.accumulators.size() != 1 || second.accumulators.size() != 1 || !first.stores.empty() ||
      !second.stores.empty() || !first.nested.empty() || !second.nested.empty() ||
      first.loops.size() != second.loops.size())
    return false;
  const Accumulator& maximum = first.accumulators[0];
  const Accumulator& sum = second.accumulators[0];
  if (maximum.kind != fusion::ReduceKind::kMax || sum.kind != fusion::ReduceKind::kSum ||
      maximum.dtype != DType::kFloat32 || sum.dtype != DType::kFloat32)
    return false;
  const Element* exp = sum.body;
  if (exp->kind != Element::Kind::kPrim || exp->prim != Prim::kExp) return false;
  const Element* difference = exp->args[0];
  if (difference->kind != Element::Kind::kPrim || difference->prim != Prim::kSub) return false;
  const Element* m = difference->args[1];
  return difference->args[0] == maximum.body && m->kind == Element::Kind::kLoad && m->value == maximum.value;
}

namespace {

// The rows of a region, as far as heuristics ask.
struct Rows {
  int64_t count = 0;
  int64_t nv = 1;                    // Vectors of the longest phase.
  int64_t tensors = 1, weights = 0;  // Loads that differ from row to row, and others.
  size_t reductions = 0;
  int loops = 0;  // Readings of a row.
  bool stores = false, online = false, is_constant = false, are_parts = false;
  bool one_wave =
      false;  // All threads that they want run at once, so that nothing hides a load's latency: 2 vectors a thread.
  bool few = false;
  int64_t processors = 1;

  int Round(int64_t threads) const { return is_constant ? RoundToWarps(threads) : RoundToBucket(threads); }
};

Rows RowsOf(Emitter& em, const Region& region, const KernelPlan& plan) {
  Rows rows;
  std::set<const Element*> row_loads, weight_loads;
  for (const Phase& phase : region.phases) {
    rows.reductions += phase.accumulators.size();
    if (phase.loops.empty()) continue;
    rows.nv = std::max(rows.nv, SizeOf(em.indices.TripsOf(phase.loops), plan.sizes, kUnknown));
    rows.stores = rows.stores || !phase.stores.empty();
    for (const Access& access : em.loads.Vectors(RootsOf(phase)))
      (em.places.Varies(access, region.grid) ? row_loads : weight_loads).insert(access.load);
  }
  rows.tensors = static_cast<int64_t>(std::max<size_t>(row_loads.size(), 1));
  rows.weights = static_cast<int64_t>(weight_loads.size());
  rows.count = SizeOf(em.indices.TripsOf(region.grid), plan.sizes, 1 << 20);
  rows.online = HasOnlinePair(region);
  rows.is_constant = std::ranges::all_of(
      region.phases, [&](const Phase& phase) { return IsConstant(em.indices.TripsOf(phase.loops)); });
  rows.are_parts = std::ranges::any_of(
      region.phases, [&](const Phase& phase) { return HasVariable(em.indices.TripsOf(phase.loops)); });
  const auto is_reading = [&](const Phase& phase) {
    return !phase.loops.empty() && SizeOf(em.indices.TripsOf(phase.loops), plan.sizes, kUnknown) * kReadings > rows.nv;
  };
  rows.loops = static_cast<int>(std::ranges::count_if(region.phases, is_reading)) - (rows.online ? 1 : 0);
  rows.one_wave =
      rows.is_constant && rows.count * rows.nv / 2 <= int64_t{kThreadsOfMultiprocessor} * plan.target.multiprocessors;
  rows.processors = std::max(plan.target.multiprocessors, 1);
  rows.few = rows.count < 2 * rows.processors;
  return rows;
}

// Returns the registers of a thread.
int ChooseThreads(const Rows& rows, Schedule& s) {
  const auto& [count, nv, tensors, weights, reductions, loops, stores, online, is_constant, are_parts, one_wave, few,
               processors] = rows;
  int registers = 64;
  const int64_t short_row = one_wave ? nv : (nv + 1) / 2;  // Of many, each thread has two vectors.
  if (s.lanes == 1) {
    // A warp a row, which no other waits for, with all of the row on its way at once.
    const bool by_warp = nv <= 64 || (is_constant && !few && nv <= int64_t{kWarp} * kScalarsInFlight);
    // Where few rows are long, as many threads as there are; and of long rows each has several elements on their way.
    const bool is_long = nv >= int64_t{kScalarsInFlight} * kThreadsOfGroups;
    const int of_row = nv <= 512 ? 128 : few && is_long ? 1024 : 256;
    const int width = by_warp ? (is_constant ? GroupOf(short_row, 4) : kWarp) : of_row;
    s.rows = by_warp ? kThreadsOfGroups / width : 1;
    s.threads = s.rows * width;
    s.unroll = by_warp && is_constant ? static_cast<int>((nv + width - 1) / width)
               : by_warp || !is_long  ? 1
                                      : static_cast<int>(std::clamp<int64_t>(nv / width, 1, kScalarsInFlight));
    if (!is_constant && s.unroll > 1) s.unroll = kScalarsInFlight;
    s.ahead = s.unroll > 1;
    s.ctas_per_sm = 1;
  } else if (nv <= (is_constant ? 128 : 64)) {  // 16384 x 1000: a row of 64 threads a CTA is 3 % faster than 4 rows.
    // 128 x 1000: a thread for each vector 0.0051 ms, half as many 0.0056.
    // Neighbours read a row of few vectors side by side. Of 65 to 96 vectors 64 threads would do few in their second
    // step: the sum of rows of 301 float32 takes 0.013 ms by a warp a row, 0.020 by two.
    const int64_t side_by_side = nv <= kVectorsOfShort ? nv : short_row;
    const int rest = s.is_skewed ? 2 * s.lanes : s.is_ragged ? s.lanes : 1;  // In front of vectors, and behind.
    const int of_row = is_constant ? GroupOf(side_by_side, rest) : kWarp;
    const int width = nv <= 64 ? of_row : few ? 128 : nv <= 96 ? kWarp : 64;
    // 2048 x 1000, all rows at once: in CTAs of two, that there are fewer to start.
    s.rows = width <= kWarp ? kThreadsOfGroups / width : one_wave && !few ? 2 : 1;
    s.threads = width * s.rows;
    s.unroll = is_constant ? static_cast<int>((nv + width - 1) / width) : 2;
    s.held = true;
    registers = s.unroll * tensors <= 2 ? 40 : s.unroll * tensors <= 4 ? 64 : 80;
  } else if (loops <= 1) {  // Read once: a few vectors in flight, as many threads as fit.
    // Cross entropy 8192 x 32768: 256 threads 0.134 ms, 512 0.151, and each 6 % more with streaming loads.
    const int64_t most = online ? 256 : few ? 1024 : 512;
    s.threads = online && !is_constant ? 256 : rows.Round(std::clamp<int64_t>(nv / 2, 64, most));
    const int vectors = online || (few && nv > 2 * most) ? 4 : 2;
    s.unroll = static_cast<int>(std::clamp<int64_t>(vectors / tensors, 1, 4));
    s.stream = !stores && !online;
    registers = online ? 48 : vectors == 2 ? 32 : 40;
    if (tensors > 1) registers = 64;
    // Parts of few rows are two a multiprocessor: as many threads as otherwise (16 million elements: 0.029 ms, 0.037).
    if (!online && (is_constant || are_parts) && !few && tensors == 1 && nv >= 4 * s.threads &&
        2 * count * s.threads <= kThreadsOfMultiprocessor * processors)
      s.threads *= 2;
  } else if (tensors == 1 && nv <= kVectorsOfRowNear) {
    const bool several = online || reductions > 1;
    if (few && is_constant && nv <= 512) {  // The shortest way through a row: two vectors a thread.
      s.held = true;
      s.unroll = 2;
      s.threads = RoundToWarps((nv + 1) / 2);
      registers = 64;
    } else if ((one_wave && !few && nv <= 512) || (!(few && is_constant) && HoldsRow(nv, several))) {
      registers = HoldRow(nv, online, several, is_constant, s);
    } else {
      registers = ReadRowAgain(nv, online, several, few, is_constant, s);
    }
  } else if (nv * tensors <= 1024 && tensors > 1) {
    s.unroll = std::max<int>(1, static_cast<int>(2 / tensors));
    s.threads = rows.Round((nv + s.unroll - 1) / s.unroll);
    s.held = true;
    registers = 48;
  } else if (nv * tensors <= 2048 && tensors > 1 && (online || reductions > 1)) {
    s.unroll = static_cast<int>((weights > 0 ? 8 : 4) / std::min<int64_t>(tensors, 4));
    s.threads = rows.Round((nv + s.unroll - 1) / s.unroll);
    s.held = true;
    registers = weights > 0 ? 80 : 48;
    if (s.threads > 512) s.unroll *= 2, s.threads = rows.Round((nv + s.unroll - 1) / s.unroll);
  } else {  // Read again for each phase; of few rows by as many threads as there are.
    // (128 x 65536: 2 vectors in flight are 4 % faster than 4; not worth one more text where sizes are symbols.)
    const bool is_long = nv > 2048;
    s.threads = is_long ? 1024 : 512;
    s.unroll = std::max<int>(1, static_cast<int>((is_long && !(few && is_constant) ? 4 : 2) / tensors));
    s.stream = online || reductions > 1;
    registers = is_long ? 64 : 32;
  }
  return registers;
}

}  // namespace

void ChooseRows(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kRows;
  const Rows rows = RowsOf(em, region, plan);
  s.vectors = rows.nv;
  const int registers = ChooseThreads(rows, s);
  // How long a row is must not depend on which it is, and each phase must walk it alike.
  s.can_hold = s.lanes > 1 && !rows.are_parts && !HasNested(region) && HaveSameBounds(region, s.vector);
  s.held = s.held && s.can_hold;
  s.keep = s.keep && s.lanes > 1;
  if (s.held) {
    const int64_t width = s.threads / s.rows;
    s.unroll = std::max(s.unroll, static_cast<int>((rows.nv + width - 1) / width));
  }
  if (rows.few && !s.held && s.lanes > 1 && rows.nv >= 4096) s.threads = 1024;
  // Eight norms in a chain have 25 tensors: no registers hold those at once.
  const bool fit = (rows.tensors + rows.weights) * s.unroll <= kEarlyVectorsMax;
  s.early = s.held && rows.weights > 0 && fit && rows.one_wave && HaveSameLoops(region);
  if (s.lanes > 1) s.ctas_per_sm = std::clamp(kRegisterFile / (s.threads * registers), 1, 2048 / s.threads);
  s.items_per_cta = s.rows;
}

namespace {

class RowsEmitter {
 public:
  RowsEmitter(Emitter& em, const Region& region, const Schedule& schedule)
      : em_(em),
        code_(em.code),
        region_(region),
        s_(schedule),
        width_(s_.threads / s_.rows),
        warps_(std::max(width_ / kWarp, 1)) {}

  const ir::Expr* Run() {
    ir::ExprPool& pool = em_.pool;
    const ir::Expr* rows = em_.indices.TripsOf(region_.grid);
    em_.vector.Clear();
    em_.vector.SetRagged(s_.is_ragged);
    if (s_.is_skewed) em_.vector.SetSkew(em_.loads.RowOffset(region_, s_.vector));
    code_.Line("const ix row = (ix)unit * ", s_.rows, " + t / ", width_, ";");
    code_.Line("const int w = t % ", width_, ";");
    if (s_.is_exact && s_.rows == 1) {  // A CTA for every row, and no other.
      code_.Line("const bool live = true;\nconst ix item = row;");
    } else {
      code_.Line("const bool live = row < ", em_.indices.Text(rows), ";\nconst ix item = live ? row : 0;");
    }
    code_.Open();
    em_.indices.Decode(region_.grid, "item");
    code_.SetRowScope();
    LoadWithRows(em_, region_);
    for (const Phase& phase : region_.phases) {
      if (!s_.early || phase.loops.empty()) continue;
      const std::vector<const Element*> roots = RootsOf(phase);
      early_roots_.insert(early_roots_.end(), roots.begin(), roots.end());
    }
    for (size_t p = 0; p < region_.phases.size(); ++p) {
      if (region_.phases[p].loops.empty()) {
        OncePerRow(region_.phases[p]);
      } else if (IsOnlinePair(region_, p)) {
        Pair(p++);
      } else if (!region_.phases[p].nested.empty()) {
        AccumulateNested(p);
      } else {
        Accumulate(p);
      }
    }
    em_.vector.SetRagged(false);
    em_.vector.SetSkew(nullptr);
    const std::string body = code_.Close();
    code_.Line("{\n", body, "}");
    return pool.CeilDiv(rows, pool.Const(s_.rows));
  }

 private:
  // Loops of a phase, the vector's innermost, how they are walked, and where a row stays.
  struct Reading {
    std::vector<Loop> loops;
    Walk walk;
    Held* keep = nullptr;
  };

  void OncePerRow(const Phase& phase) {
    em_.vector.Clear();
    code_.Open();
    em_.lanes.Body({}, {}, phase.stores);
    const std::string body = code_.Close();
    code_.Line("if (live && w == 0) {\n", body, "}");
  }

  // `next`: the phase behind those that are read together.
  Reading Read(size_t p, size_t next) {
    const Phase& phase = region_.phases[p];
    Reading reading;
    reading.loops = WithLast(phase.loops, s_.vector);
    const bool has_vector = reading.loops.back().variable == s_.vector;
    em_.vector.Set(has_vector ? s_.vector : -1, has_vector ? s_.lanes : 1);
    if (s_.held && has_vector) reading.keep = &held_;
    bool is_last = true;
    for (size_t q = next; q < region_.phases.size(); ++q) is_last = is_last && region_.phases[q].loops.empty();
    // Any row has at most as many as one that begins with a vector.
    if (reading.keep != nullptr)
      em_.conditions.Require(
          Cat(em_.arguments.SymbolText(em_.indices.TripsOf(reading.loops)), " <= ", s_.unroll * width_));
    reading.loops.back().begin = FirstVector(em_, reading.loops.back(), s_);
    const std::string count = code_.NewName("n");
    const ir::Expr* trips = em_.indices.TripsOf(reading.loops);
    code_.Line("const ix ", count, " = live ? ", em_.indices.Text(trips), " : 0;");
    using Kind = Values::Reading;
    reading.walk = {.start = "w",
                    .step = width_,
                    .count = count,
                    .unroll = s_.unroll,
                    .rolled = s_.rolled,
                    .is_whole = s_.held && has_vector,
                    .is_exact = !s_.held && trips->IsConst() && trips->value % (width_ * s_.unroll) == 0,
                    .is_single = !s_.held && trips->IsConst(int64_t{width_} * s_.unroll),
                    .reading = is_last   ? (s_.stream ? Kind::kLast : Kind::kPlain)
                               : s_.keep ? Kind::kFirst
                                         : Kind::kPlain,
                    .early = s_.early,
                    .ahead = s_.ahead};
    return reading;
  }

  // A thread for each element that vectors leave of a row runs body().
  void Rest(const Loop& loop, const std::function<void()>& body) { EmitRest(em_, loop, s_, "w", "live", body); }

  // The loads in front of a phase. Those of all phases stand in front of the first where a schedule loads early.
  std::vector<const Element*> LoadsOf(const Phase& phase) {
    return early_roots_.empty() ? RootsOf(phase) : std::exchange(early_roots_, {});
  }

  // A maximum, and the sum of what lies below it, in one reading.
  void Pair(size_t p) {
    const Phase& phase = region_.phases[p];
    const Reading reading = Read(p, p + 2);
    const Element* x = phase.accumulators[0].body;
    const std::string m = code_.NewName("acc"), sum = code_.NewName("acc"), top = code_.NewName("top");
    code_.Line("float ", m, " = u2f(0xff800000u), ", sum, " = 0.0f;");
    // One step: its maximum, then the sum scaled to it, then its terms.
    const std::string base = code_.NewName("base");
    const Accumulator maximum = {nullptr, fusion::ReduceKind::kMax, DType::kFloat32, x};
    code_.Line("float ", top, " = ", m, ";");
    const Stage stages[] = {
        {[&] { em_.lanes.Body(std::span(&maximum, 1), std::span(&top, 1), {}); },
         [&] { code_.Line("const float ", base, " = online_raise(", m, ", ", sum, ", ", top, ");"); }},
        {[&] { em_.lanes.AddExponentials(x, base, sum); }, nullptr}};
    EmitStages(em_, reading.walk, reading.loops, region_.grid, LoadsOf(phase), reading.keep, stages);
    if (s_.is_ragged) {
      Rest(phase.loops[0], [&] {
        const std::string own = code_.NewName("top"), raised = code_.NewName("base");
        code_.Line("float ", own, " = ", m, ";");
        em_.lanes.Body(std::span(&maximum, 1), std::span(&own, 1), {});
        code_.Line("const float ", raised, " = online_raise(", m, ", ", sum, ", ", own, ");");
        em_.lanes.AddExponentials(x, raised, sum);
      });
    }
    const std::string part = Cat("part", number_++);
    code_.Line("SHARED float ", part, "[2][", s_.rows, "][", warps_, "];");
    code_.Line("online_collect<", warps_, ", ", std::min(width_, kWarp), ">(", m, ", ", sum, ", ", part, "[0][t / ",
               width_, "], ", part, "[1][t / ", width_, "], w / 32);");
    const ir::Expr* length = em_.pool.Sub(em_.pool.Import(phase.loops[0].end), em_.pool.Import(phase.loops[0].begin));
    const std::string any = s_.is_ragged ? em_.indices.Text(length) : reading.walk.count;
    code_.Line("if (", m, " == u2f(0xff800000u) && ", any, " > 0) ", sum, " = u2f(0x7fc00000u);");
    em_.dependences.SetResult(phase.accumulators[0].value, m, false);
    em_.dependences.SetResult(region_.phases[p + 1].accumulators[0].value, sum, false);
    if (reading.keep != nullptr) KeepPacks(code_, held_.arrays, s_.unroll);
  }

  void Accumulate(size_t p) {
    const Phase& phase = region_.phases[p];
    const Reading reading = Read(p, p + 1);
    std::vector<std::string> names;
    for (const Accumulator& accumulator : phase.accumulators) {
      names.push_back(code_.NewName("acc"));
      code_.Line(TypeText(accumulator.dtype), " ", names.back(), " = ",
                 NeutralText(accumulator.kind, accumulator.dtype), ";");
    }
    EmitWalk(em_, reading.walk, reading.loops, region_.grid, LoadsOf(phase), reading.keep,
             [&] { em_.lanes.Body(phase.accumulators, names, phase.stores); });
    if (s_.is_ragged) Rest(phase.loops[0], [&] { em_.lanes.Body(phase.accumulators, names, phase.stores); });
    if (names.empty()) return;
    Collect(phase.accumulators, names, width_);
    for (size_t k = 0; k < names.size(); ++k) em_.dependences.SetResult(phase.accumulators[k].value, names[k], false);
    if (reading.keep != nullptr) KeepPacks(code_, held_.arrays, s_.unroll);
  }

  // Threads of a row that take one trip of the outermost loops, `outer` in all: a warp; several, where there are fewer
  // trips than warps.
  int ThreadsOfTrip(const ir::Expr* outer) const {
    int at_once = warps_;
    if (outer->IsConst()) at_once = static_cast<int>(std::clamp<int64_t>(outer->value, 1, warps_));
    while (warps_ % at_once != 0) --at_once;
    return width_ / at_once;
  }

  // Some threads take a trip of the outermost loops at a time, and have a result for it; the row's accumulators go on.
  void AccumulateNested(size_t p) {
    const Phase& phase = region_.phases[p];
    const size_t of_row = phase.accumulators.size();
    std::vector<Accumulator> all = phase.accumulators;
    for (const Nested& nested : phase.nested) all.push_back(nested.accumulator);
    std::vector<std::string> names;
    const auto declare = [&](size_t begin, size_t end) {
      for (size_t k = begin; k < end; ++k) {
        names.push_back(code_.NewName("acc"));
        code_.Line(TypeText(all[k].dtype), " ", names[k], " = ", NeutralText(all[k].kind, all[k].dtype), ";");
      }
    };
    declare(0, of_row);
    const std::span<const Loop> outer = std::span(phase.loops).first(phase.nested_loops);
    const std::span<const Loop> inside = std::span(phase.loops).subspan(phase.nested_loops);
    const std::vector<Loop> inner = WithLast({inside.begin(), inside.end()}, s_.vector);
    std::vector<Loop> around = region_.grid;
    around.insert(around.end(), outer.begin(), outer.end());
    em_.vector.Set(s_.vector, s_.lanes);
    const ir::Expr* trips = em_.indices.TripsOf(outer);
    const ir::Expr* inner_trips = em_.indices.TripsOf(inner);
    const int threads = ThreadsOfTrip(trips), at_once = width_ / threads;
    const std::string first = code_.NewName("k"), trip = code_.NewName("k"), count = code_.NewName("n");
    const std::string has = code_.NewName("has"), limit = em_.indices.Text(trips);
    const std::string inner_limit = em_.indices.Text(inner_trips);
    code_.Open();
    em_.indices.Decode(outer, trip);
    declare(of_row, all.size());
    Walk walk = {.start = Cat("w % ", threads), .step = threads, .count = count, .unroll = s_.unroll};
    if (inner_trips->IsConst())
      walk.unroll = static_cast<int>(std::clamp<int64_t>(base::CeilDiv(inner_trips->value, threads), 1, s_.unroll));
    walk.rolled = s_.rolled;
    walk.ahead = s_.ahead;
    EmitWalk(em_, walk, inner, around, RootsOf(phase), nullptr, [&] { em_.lanes.Body(all, names, phase.stores); });
    em_.vector.Clear();
    const std::vector<std::string> sums(names.begin() + static_cast<std::ptrdiff_t>(of_row), names.end());
    Collect(std::span(all).subspan(of_row), sums, threads);
    for (size_t i = 0; i < sums.size(); ++i) {
      const Nested& nested = phase.nested[i];
      code_.Line("if (", has, " && w % ", threads, " == 0) st_", Suffix(nested.accumulator.dtype), "(",
                 em_.stores.AddressOf(nested.tensor, nested.index), ", ", sums[i], ");");
    }
    if (threads > kWarp) code_.Line("sync();");  // All have read what the next trip overwrites.
    const std::string body = code_.Close();
    code_.Line("for (ix ", first, " = 0; ", first, " < ", limit, "; ", first, " += ", at_once, ") {");
    code_.Line("const bool ", has, " = live && ", first, " + w / ", threads, " < ", limit, ";");
    code_.Line("const ix ", trip, " = ", has, " ? ", first, " + w / ", threads, " : 0, ", count, " = ", has, " ? ",
               inner_limit, " : 0;\n", body, "}");
    names.resize(of_row);
    if (names.empty()) return;
    Collect(phase.accumulators, names, width_);
    for (size_t k = 0; k < names.size(); ++k) em_.dependences.SetResult(phase.accumulators[k].value, names[k], false);
  }

  // Each of the `threads` that work on one thing gets the results of all of them.
  void Collect(std::span<const Accumulator> accumulators, const std::vector<std::string>& names, int threads) {
    for (size_t k = 0; k < names.size(); ++k) {
      code_.Line(names[k], " = across<", InfoOf(accumulators[k].kind).c_name, ", ", std::min(threads, kWarp), ">(",
                 names[k], ");");
    }
    const int warps = threads / kWarp;
    if (warps <= 1) return;
    const std::string among = threads == width_ ? "w" : Cat("w % ", threads);
    const std::string parts = Cat("part", number_++, "_");
    for (size_t k = 0; k < names.size(); ++k) {
      code_.Line("SHARED ", TypeText(accumulators[k].dtype), " ", parts, k, "[", s_.threads / threads, "][", warps,
                 "];");
      code_.Line("if ((t & 31) == 0) ", parts, k, "[t / ", threads, "][", among, " / 32] = ", names[k], ";");
    }
    code_.Line("sync();");
    for (size_t k = 0; k < names.size(); ++k) {
      code_.Line(names[k], " = collect<", InfoOf(accumulators[k].kind).c_name, ", ", warps, ">(", parts, k, "[t / ",
                 threads, "], ", NeutralText(accumulators[k].kind, accumulators[k].dtype), ");");
    }
  }

  Emitter& em_;
  Scopes& code_;
  const Region& region_;
  const Schedule& s_;
  const int width_;  // Threads of a row.
  const int warps_;
  Held held_;
  std::vector<const Element*> early_roots_;
  int number_ = 0;  // Of the reductions, each with shared memory of its own.
};

}  // namespace

const ir::Expr* EmitRows(Emitter& em, const Region& region, const Schedule& s) {
  return RowsEmitter(em, region, s).Run();
}

}  // namespace hir::codegen::gpu
