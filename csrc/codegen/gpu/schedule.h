// How one region runs on a GPU: which variable its vectors lie along, how threads share the work, and the parameters
// of that. Private to csrc/codegen/gpu.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/codegen/gpu/emitter.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/target.h"

namespace hir::codegen::gpu {

constexpr int kThreadsOfMultiprocessor = 2048;  // At most: of A100, H100 and H200.

inline constexpr int kWarp = 32;

// How rows come before they are needed: into registers, by copies of each thread, by one copy of the CTA.
enum class Staging : uint8_t { kRegisters, kCopies, kBulk };

struct Schedule {
  enum class Kind : uint8_t {
    kPointwise,   // pointwise.cc: a vector of the grid a thread.
    kRows,        // rows.cc: threads share a row; vectors along a reduced axis.
    kColumns,     // columns.cc: vectors along a kept axis; threads share the reduced ones.
    kTransposed,  // transposed.cc: pointwise, through shared memory.
    kTiled,       // tiled.cc: the same of any extents.
    kCarried,     // carried.cc: rows in order, sums over them in registers.
  };
  Kind kind = Kind::kPointwise;
  int vector = -1;  // The variable along which vectors lie; -1: none.
  int lanes = 1;    // Elements of a vector.
  // kPointwise, kRows: vectors need not divide the one loop there is; threads of their own compute what they leave.
  bool is_ragged = false;
  // kRows, kPointwise in rows; ragged: rows begin anywhere, and threads of their own compute what is in front of the
  // first vector, too.
  bool is_skewed = false;
  bool in_rows =
      false;        // kPointwise: a CTA's items are of one row, so that all loops but the innermost are divided once.
  int across = -1;  // kTransposed, kTiled: the variable along which stores are contiguous.
  int lanes_across = 1;   // kTiled: elements of a vector along that.
  int threads = 128;      // Of a CTA.
  int rows = 1;           // kRows: rows of a CTA.
  int width = 32;         // kColumns: threads along the columns; kTiled: elements along `vector`.
  int height = 1;         // kTiled: elements along `across`.
  int unroll = 1;         // Vectors loaded before the first is used; kRows: held in registers when `held`.
  bool held = false;      // A row is read once.
  bool can_hold = false;  // All rows are as long, and of vectors.
  bool early = false;     // With the first row comes what all rows read alike.
  bool ahead = false;     // Without vectors, too, all elements of a step are loaded before the first is used.
  bool stream = false;    // Last reads do not stay in cache.
  bool keep = false;      // kRows: what is read again stays in the second-level cache meanwhile.
  bool rolled = false;    // Loops stay loops: short code instead of fast code.
  // kCarried: how rows are loaded ahead, and how many of them.
  Staging staging = Staging::kRegisters;
  int stages = 1;
  int64_t shared_bytes = 0;  // Dynamic.
  int ctas_per_sm = 1;       // The registers of a thread are capped for as many.
  bool adds_parts = false;   // kColumns: what another launch left, in cache.
  bool is_packed = false;    // kColumns: rows have few columns; threads go on into the next rows.
  bool is_staged = false;    // kColumns, packed: short rows go through shared memory (staged_rows.h).
  int64_t items_per_cta = 1;
  bool is_exact = true;  // As many CTAs as units: each does one.
  int64_t vectors = 1;   // kRows, kColumns: trips of the longest phase, as far as known.
};

// An extent counts as so much where no size of it is known.
inline constexpr int64_t kUnknown = 4096;
// The most elements of a vector: 16 bytes of the narrowest.
inline constexpr int kLanesMax = 8;
// No size is in it, loop variables may be.
bool IsConstant(const ir::Expr* expr);

// The schedule of `region`: its own heuristics. `em` has started the region.
Schedule Choose(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan);
// The same work of a CTA without vectors and without conditions on sizes or addresses.
Schedule AnySize(Schedule schedule);

// Replaces what `tuning` says, as far as the schedule has it and can do it.
void Tune(Schedule& schedule, const Tuning& tuning);
Tuning TuningOf(const Schedule& schedule);

// Heuristics, each beside its schedule's code.
void ChoosePointwise(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule);
void ChooseRows(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule);
void ChooseColumns(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule);
void ChooseShortRows(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule);
// Whether a thread loads a short row of so many vectors at once.
bool IsOneStep(const ir::Expr* trips, int lanes);
// Whether the tiles of kTransposed are as good as full, and are enough: where they are not, smaller ones are faster.
bool FillsTransposed(const LoopNest& nest, const Region& region, const KernelPlan& plan, int along, int across);
void ChooseTransposed(const LoopNest& nest, const Region& region, Schedule& schedule);
// False: it does not fit. Of the schedule, `vector` and `across` are set.
bool ChooseTiled(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan, Schedule& schedule);
void ChooseCarried(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule);

// Write what CTA `unit` of a region does, into the function `em` is in. Return how many units there are.
const ir::Expr* EmitPointwise(Emitter& em, const Region& region, const Schedule& schedule);
const ir::Expr* EmitRows(Emitter& em, const Region& region, const Schedule& schedule);
const ir::Expr* EmitColumns(Emitter& em, const Region& region, const Schedule& schedule);
const ir::Expr* EmitTransposed(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& schedule);
const ir::Expr* EmitTiled(Emitter& em, const Region& region, const Schedule& schedule);
const ir::Expr* EmitCarried(Emitter& em, const Region& region, const Schedule& schedule);

// The tiles of kTransposed and kTiled: `height` by `width` elements along `across` and `vector`. In the scope that
// OpenTiles opens, tr and tc are the tile's place, and all other variables have their values.
struct Tiles {
  Loop row, column;  // Along `across`, and along `vector`;
  const ir::Expr* rows = nullptr;
  const ir::Expr* columns = nullptr;  // their extents.
  const ir::Expr* units = nullptr;    // Tiles there are.
};
Tiles OpenTiles(Emitter& em, const Region& region, const Schedule& schedule, int height, int width);

// `loops` with the one over `variable`, if it is there, last.
std::vector<Loop> WithLast(std::vector<Loop> loops, int variable);
// Loads what each row of `region` has one element of: with the row, and not behind what is reduced of it.
void LoadWithRows(Emitter& em, const Region& region);
// The number of loops of `phases` that loop at all.
int LoopingPhases(const Region& region);

bool HasNested(const Region& region);

// Phase p + 1 sums exp(x - m), m being the maximum of x that phase p takes.
bool IsOnlinePair(const Region& region, size_t p);

// Vectors of a phase, in steps: for each of them the row-major index `k` of the phase's trips.
struct Walk {
  std::string start;  // The first k of this thread.
  int step = 1;       // To its next.
  std::string count;  // Below which k is.
  int unroll = 1;
  bool rolled = false;
  bool is_whole = false;  // `unroll` steps from `start` cover all.
  // `count` is 0 or a multiple of `unroll` steps, and `start` less than a step; and it is one of them.
  bool is_exact = false, is_single = false;
  Values::Reading reading = Values::Reading::kPlain;
  bool early = false;  // What does not vary with `outer` is loaded first, too.
  bool ahead = false;  // Loads of one element that vary with `outer` come first, too, where there are no vectors.
};
// Arrays of packs that live across phases; where there are no vectors, of elements.
struct Held {
  std::vector<std::pair<Access, std::string>> arrays, scalars;
};
// Stops the compiler from keeping what it unpacked from arrays of `count` packs.
void KeepPacks(Scopes& code, std::span<const std::pair<Access, std::string>> arrays, int count);
// Loads the vectors that vary with `outer` first, `unroll` at a time, then body() in the scope of each.
void EmitWalk(Emitter& em, const Walk& walk, std::span<const Loop> loops, std::span<const Loop> outer,
              const std::vector<const fusion::Element*>& roots, Held* held, const std::function<void()>& body);
// The same in pieces, for whoever does more than one thing with the loaded vectors: `stages` one after the other, with
// `between` behind each.
struct Stage {
  std::function<void()> body;
  std::function<void()> after;
};
void EmitStages(Emitter& em, const Walk& walk, std::span<const Loop> loops, std::span<const Loop> outer,
                const std::vector<const fusion::Element*>& roots, Held* held, std::span<const Stage> stages);
std::vector<const fusion::Element*> RootsOf(const Phase& phase);

// Where the vectors along a row begin: where memory's do, by the skew.
const ir::Expr* FirstVector(Emitter& em, const Loop& loop, const Schedule& schedule);
// In front of the vectors of a row and behind them, fewer elements than one has: where `condition` holds body() for
// each, by the thread whose number `thread` is.
void EmitRest(Emitter& em, const Loop& loop, const Schedule& schedule, const std::string& thread,
              const std::string& condition, const std::function<void()>& body);

}  // namespace hir::codegen::gpu
