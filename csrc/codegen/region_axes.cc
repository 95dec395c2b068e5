// How the loops of a region are laid out. Whatever the schedule, memory decides: the axis along which most
// tensors are
// contiguous is the innermost loop of every phase.
//
//  * It is one of a phase's own loops: rows run in parallel, each phase runs along its row.
//  * It is a row axis: a block of neighbouring rows ("columns") runs together, and each phase's loops are
//  outside the block. Where points are read that are contiguous along another row axis (a transposition), an item is
//  a tile: a block of that axis, too.
//
// An axis of a few elements makes no vectors: those lie along a longer one then, with elements apart in memory.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "csrc/codegen/axis_votes.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using fusion::Element;

constexpr int64_t kUnknownTrips = 1024;
constexpr int64_t kGridMin = 256;   // Items of a grid that keep any machine busy.
constexpr int64_t kWorkMin = 8192;  // Elements an item computes before its loops stop going into it.
constexpr int64_t kPointwiseColumns = 16384;
// Accumulators of a block lie in the first-level cache: 1024 columns of 4 float32 accumulators are 16 KiB.
constexpr int64_t kReductionColumns = 1024;
// A tile of a transposition is read in runs of so many bytes of the tensor that is transposed, and written in such of
// the others: it stays in the first-level cache, and the next of the grid lies behind it along those. (Add a transpose
// of 8192 x 4096 float32, share of triad on two cores: .82; with runs of 128 and 128 .75, of 256 and 256 .74, of 128
// and 512 .73, of 1024 and 1024 .69. A Xeon: .76 and .71; .82 with 512 and 512.)
constexpr int64_t kTileRowBytes = 128;
constexpr int64_t kTileColumnBytes = 256;
constexpr int64_t kFewBlocks = 32;
constexpr int64_t kFewColumns = 256;
constexpr int64_t kShortVector = 8;  // Elements; of fewer, a vector is mostly empty.
constexpr int64_t kShortPhase = 64;
constexpr int64_t kLongRows = 512;      // Beside which rows are taken in their place,
constexpr int64_t kColumnsApart = 128;  // so many at once: a line of memory for each.

class Layout {
 public:
  Layout(NestBuilder& builder, Region& region) : builder_(builder), region_(region), math_(builder.nest().exprs) {}

  void Run() {
    for (const Loop& loop : region_.grid) AddRange(loop);
    for (const Loop& loop : region_.serial) AddRange(loop);
    for (const Phase& phase : region_.phases) {
      for (const Loop& loop : phase.loops) AddRange(loop);
    }
    Vote();
    if (!region_.serial.empty()) {
      RotatePhases(Best());
      return;
    }
    if (HasNested()) {
      RotatePhases(Best());
      MoveToSerial();
      return;
    }
    const int best = BesideShort(Best());
    const auto row = std::ranges::find(region_.grid, best, &Loop::variable);
    if (row != region_.grid.end()) MakeColumns(row);
    RotatePhases(best);
    MoveToSerial();
  }

 private:
  // Makes the loop over `variable` the innermost one.
  void RotatePhases(int variable) {
    for (Phase& phase : region_.phases) {
      const auto inner = std::ranges::find(phase.loops, variable, &Loop::variable);
      if (inner != phase.loops.end()) std::rotate(inner, inner + 1, phase.loops.end());
    }
  }

  void AddRange(const Loop& loop) {
    ir::ExprPool& pool = builder_.nest().exprs;
    math_.WidenRange(loop.variable, loop.begin, pool.Sub(loop.end, pool.Const(1)));
    order_.push_back(loop.variable);
  }

  void Vote() {
    const StridesOf strides = [this](const ir::Value* value) { return StridesFor(value); };
    votes_ = VotesOf(region_, builder_.nest().tensors, strides, math_);
    all_ = votes_.All();
  }

  // The widest element that the region reads or writes.
  int64_t WidestBytes() {
    int64_t widest = 1;
    std::set<const Element*> seen;
    const auto visit = [&](const auto& self, const Element* e) -> void {
      if (!seen.insert(e).second) return;
      if (e->kind == Element::Kind::kLoad) widest = std::max(widest, DTypeBytes(e->value->type->dtype));
      for (const Element* arg : e->args) self(self, arg);
    };
    for (const Phase& phase : region_.phases) {
      for (const Store& store : phase.stores) {
        visit(visit, store.value);
        widest = std::max(widest, DTypeBytes(builder_.nest().tensors[static_cast<size_t>(store.tensor)].dtype));
      }
    }
    return widest;
  }

  // Null for accumulators: no tensor is behind them.
  const std::vector<const ir::Expr*>* StridesFor(const ir::Value* value) {
    for (const Phase& phase : region_.phases) {
      for (const Accumulator& accumulator : phase.accumulators) {
        if (accumulator.value == value) return nullptr;
      }
    }
    auto [at, added] = strides_.try_emplace(value);
    if (added) at->second = builder_.StridesOf(*value);
    return &at->second;
  }

  bool HasNested() const {
    return std::ranges::any_of(region_.phases, [](const Phase& phase) { return !phase.nested.empty(); });
  }

  // Whether all that is nested is added up over it.
  bool IsInsideNested(int variable) const {
    return std::ranges::all_of(region_.phases, [&](const Phase& phase) {
      const auto inside = std::span(phase.loops).subspan(phase.nested_loops);
      return phase.nested.empty() || std::ranges::find(inside, variable, &Loop::variable) != inside.end();
    });
  }

  // The parts of a reduction, and rows in their order, stay outside of it.
  bool BoundsOthers(int variable) {
    if (!IsInsideNested(variable)) return true;
    if (std::ranges::find(region_.serial, variable, &Loop::variable) != region_.serial.end()) return true;
    return std::ranges::any_of(region_.phases, [&](const Phase& phase) {
      return std::ranges::any_of(phase.loops, [&](const Loop& loop) { return math_.DependsOn(loop.begin, variable); });
    });
  }

  int Best() {
    int best = order_.empty() || BoundsOthers(order_.back()) ? -1 : order_.back();
    int64_t most = 0;
    for (const int variable : order_) {  // The later of equals: further in.
      const auto votes = all_.find(variable);
      if (votes != all_.end() && votes->second >= most && !BoundsOthers(variable)) {
        best = variable;
        most = votes->second;
      }
    }
    return best;
  }

  // `best`, unless a vector along it would be short, and there is a row axis as long as some: elements of a vector are
  // apart then, but none is missing. Of a transposition it is the axis along which tensors are read. A power of two is
  // no worse than any vector, nor are columns of which it is known how many they are, where nothing is transposed and
  // nothing takes long. (Two cores with AVX2, ms, before in parentheses. 1048576 rows: permute and tanh of [2, 2] 6.5
  // (19), rows of 6 less their sums 7 (9.5), of 4 4.4 (1.5); tanh of 3 and a column 5.1 (10.7), of 4 7.2 (5.7);
  // log-softmax of 4, 262144 rows, 1.8 (3.6). Permute of 16 images [3, 50176] 1.0 (3.6), of [50176, 3] 1.3 (2.5);
  // from 8 channels on tiles are as fast, or faster.)
  int BesideShort(int best) {
    std::vector<Loop> loops = region_.grid;
    for (const Phase& phase : region_.phases) loops.insert(loops.end(), phase.loops.begin(), phase.loops.end());
    const auto along = std::ranges::find(loops, best, &Loop::variable);
    if (along == loops.end() || !along->begin->IsConst(0) || !IsBelow(*along, kShortVector)) return best;
    const auto phases = loops.begin() + std::ssize(region_.grid);
    const auto is_short = [&](const Loop& loop) { return loop.variable == best || IsBelow(loop, kShortPhase); };
    if (!std::all_of(phases, loops.end(), is_short)) return best;
    int64_t least = kShortVector;
    const Loop* beside = FindRow(Across(best), least);
    if (beside == nullptr) {
      const auto trips = static_cast<uint64_t>(TripsOf(*along, 0));
      const bool is_column = along < phases;
      const bool fills =
          HasFunctions() ? is_column && trips == 4 : std::has_single_bit(trips) || (is_column && trips > 0);
      if (fills && Across(best) < 0) return best;
      least = kLongRows;
      for (size_t i = region_.grid.size(); beside == nullptr && i-- > 0;) {
        const int row = region_.grid[i].variable;
        if (row != best && !BoundsOthers(row)) beside = FindRow(row, least);
      }
      if (beside == nullptr) return best;
    }
    // Now the plan is for such sizes.
    builder_.facts().AtLeast(along->end, kShortVector, true);
    builder_.facts().AtLeast(beside->end, least, true);
    for (auto loop = phases; loop != loops.end(); ++loop) {
      if (loop->variable != best) builder_.facts().AtLeast(loop->end, kShortPhase, true);
    }
    is_apart_ = true;
    return beside->variable;
  }

  // Known to have fewer trips.
  bool IsBelow(const Loop& loop, int64_t bound) {
    const std::optional<int64_t> trips = builder_.facts().ValueOf(loop.end);
    return trips && *trips < bound;
  }

  // The row over `variable`, unless there is none, or it is known to be shorter; else null.
  const Loop* FindRow(int variable, int64_t least) {
    const auto row = std::ranges::find(region_.grid, variable, &Loop::variable);
    return row == region_.grid.end() || IsBelow(*row, least) ? nullptr : &*row;
  }

  void MakeColumns(std::vector<Loop>::iterator row) {
    ir::ExprPool& pool = builder_.nest().exprs;
    Loop columns = *row;
    const auto place = row - region_.grid.begin();
    region_.grid.erase(row);
    const bool reduces = std::ranges::any_of(region_.phases, [](const Phase& p) { return !p.accumulators.empty(); });
    int across = reduces || is_apart_ ? -1 : Across(columns.variable);
    // A tile of so few rows is a vector's elements at a time, too.
    const auto turned = std::ranges::find(region_.grid, across, &Loop::variable);
    if (turned != region_.grid.end() && IsBelow(*turned, kShortVector)) {
      builder_.facts().AtLeast(turned->end, kShortVector, true);
      is_apart_ = true;
      across = -1;
    }
    if (across >= 0) {
      MakeTiles(columns, across);
      return;
    }
    int64_t guess = 1;
    const ir::Expr* items = pool.Const(1);
    for (const Loop& loop : region_.grid) {
      guess = std::min(guess * TripsOf(loop, kUnknownTrips), int64_t{1} << 40);
      items = pool.Mul(items, loop.end);
    }
    const auto many = [&] { return builder_.facts().AtLeast(items, kFewBlocks, guess >= kFewBlocks); };
    const int64_t block = is_apart_  ? kColumnsApart
                          : !reduces ? kPointwiseColumns
                          : many()   ? kReductionColumns
                                     : kFewColumns;
    const size_t others = region_.grid.size();
    region_.columns_max = Block(columns, block);
    // Lines are read once for all that is in them: what else is short goes into the item.
    if (is_apart_ && region_.grid.size() > others)
      std::rotate(region_.grid.begin() + place, region_.grid.end() - 1, region_.grid.end());
    region_.columns = columns;
  }

  // Makes `loop` a block of `most` of its trips, and the blocks the innermost loop of the grid. The trips of one.
  int64_t Block(Loop& loop, int64_t most) {
    ir::ExprPool& pool = builder_.nest().exprs;
    const int64_t trips = TripsOf(loop, INT64_MAX);
    if (trips <= most) return trips;
    const ir::Expr* size = pool.Const(most);
    const int variable = builder_.NewVariable();
    region_.grid.push_back({variable, pool.Const(0), pool.CeilDiv(loop.end, size)});
    loop.begin = pool.Mul(pool.Symbol(VariableSymbol(variable)), size);
    const ir::Expr* end = pool.Add(loop.begin, size);
    const bool whole = loop.end->IsConst() && loop.end->value % most == 0;
    loop.end = whole ? end : pool.Min(end, loop.end);
    return most;
  }

  bool HasFunctions() const {
    std::set<const Element*> seen;
    const auto visit = [&](const auto& self, const Element* e) -> bool {
      if (!seen.insert(e).second) return false;
      if (e->kind == Element::Kind::kPrim && fusion::IsFunction(e->prim)) return true;
      return std::ranges::any_of(e->args, [&](const Element* arg) { return self(self, arg); });
    };
    return std::ranges::any_of(region_.phases, [&](const Phase& phase) {
      const auto of_sum = [&](const Accumulator& accumulator) { return visit(visit, accumulator.body); };
      const auto of_store = [&](const Store& store) { return visit(visit, store.value); };
      return std::ranges::any_of(phase.accumulators, of_sum) || std::ranges::any_of(phase.stores, of_store);
    });
  }

  // The row axis along which tensors are contiguous that vary along the columns in another way: a transposition.
  int Across(int columns) const {
    int across = -1;
    int64_t most = 0;
    for (const Loop& loop : region_.grid) {
      const auto votes = votes_.across.find({loop.variable, columns});
      if (votes != votes_.across.end() && votes->second > most) {
        across = loop.variable;
        most = votes->second;
      }
    }
    return across;
  }

  // Blocks of both axes, longer one way where the other is short.
  void MakeTiles(Loop columns, int across) {
    const auto at = std::ranges::find(region_.grid, across, &Loop::variable);
    Loop rows = *at;
    region_.grid.erase(at);
    const int64_t widest = WidestBytes();
    const int64_t num_rows = kTileRowBytes / widest, num_columns = kTileColumnBytes / widest;
    const auto beside = [&](const Loop& other, int64_t most) {
      const int64_t trips = std::clamp<int64_t>(TripsOf(other, most), 1, most);
      return std::min(num_rows * num_columns / trips, kPointwiseColumns);
    };
    const int64_t rows_most = beside(columns, num_columns), columns_most = beside(rows, num_rows);
    region_.tile_rows_max = Block(rows, rows_most);
    region_.columns_max = Block(columns, columns_most);
    region_.serial.push_back(rows);
    region_.columns = columns;
  }

  // Items with little to do get the innermost loops of the grid, while enough items remain.
  void MoveToSerial() {
    int64_t work = region_.columns ? region_.columns_max : 1;
    int64_t most = 1;
    for (const Phase& phase : region_.phases) {
      int64_t trips = 1;
      for (const Loop& loop : phase.loops) trips = std::min(trips * TripsOf(loop, kUnknownTrips), int64_t{1} << 40);
      most = std::max(most, trips);
    }
    work *= most;
    int64_t items = 1;
    for (const Loop& loop : region_.grid) items = std::min(items * TripsOf(loop, 1), int64_t{1} << 40);
    std::vector<Loop> serial;
    while (region_.grid.size() > 1 && work < kWorkMin && region_.serial.empty()) {
      const int64_t trips = TripsOf(region_.grid.back(), 0);
      if (trips == 0 || items / trips < kGridMin) break;
      items /= trips;
      work *= trips;
      serial.insert(serial.begin(), region_.grid.back());
      region_.grid.pop_back();
    }
    if (!serial.empty()) region_.serial = std::move(serial);
  }

  NestBuilder& builder_;
  Region& region_;
  IndexMath math_;
  std::vector<int> order_;  // Variables, outermost first.
  bool is_apart_ = false;   // Vectors lie along an axis that memory is not contiguous along.
  AxisVotes votes_;
  std::map<int, int64_t> all_;
  std::map<const ir::Value*, std::vector<const ir::Expr*>> strides_;
};

}  // namespace

int64_t TripsOf(const Loop& loop, int64_t otherwise) {
  return loop.begin->IsConst(0) && loop.end->IsConst() ? loop.end->value : otherwise;
}

void AddRegion(NestBuilder& builder, Region region) {
  JoinLoops(builder, region);
  // Threads of a GPU share what blocks of columns share here.
  if (WalksOf(builder.target()).lays_out_loops) Layout(builder, region).Run();
  builder.nest().regions.push_back(std::move(region));
}

}  // namespace hir::codegen
