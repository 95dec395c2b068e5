// Writes one loop nest as the text of an LLVM function. Private to csrc/codegen/cpu.
//
// Code is written into the loops that are open. What does not depend on the innermost ones goes in front of
// them, inside the
// guard of the outermost of those, so it runs only where that loop has a trip.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/ir_writer.h"
#include "csrc/codegen/cpu/prims.h"
#include "csrc/codegen/cpu/target.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::cpu {

class Emitter {
 public:
  using Element = fusion::Element;

  // `in_place`: some input may lie where an output does.
  Emitter(const LoopNest& nest, const Target& target, bool in_place);

  // The function "@NAME", the kernel; declarations gather in writer().declarations.
  Result<std::string> Run(const std::string& name);
  Writer& writer() { return writer_; }

 private:
  // A condition that holds where code runs: elements under different guards are different code. 0: none.
  struct Guard {
    int parent = 0;
    const Element* condition = nullptr;
    bool holds = true;
  };
  struct Key {
    const void* what;
    int guard;
    int epoch;  // Of the ranges that were used.
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.what) * 31 + static_cast<size_t>(key.guard * 64 + key.epoch);
    }
  };
  using Memo = std::unordered_map<Key, V, KeyHash>;
  struct Level {  // An open loop; level 0 is the function.
    std::string before, body;
    Memo before_memo, body_memo;
  };
  // Where elements that vary along the vector variable are computed now.
  struct Lanes {
    int variable = -1;  // -1: nowhere.
    int count = 1;
    V first;  // The value of the variable in lane 0.
    bool masked = false;
    V mask;               // Lanes that exist, when masked.
    bool paired = false;  // See pairs.cc; never masked.
  };
  struct Data {  // What a symbol that is neither a loop variable nor an extent stands for.
    const Element* element = nullptr;
    int guard = 0;
  };
  struct Result_ {  // An accumulator's result.
    const Accumulator* accumulator = nullptr;
    V scalar;           // Without columns.
    std::string array;  // With columns: of elements of the accumulator's type, from the first column on.
  };

  // emitter.cc: functions, regions, loops.
  void EmitRegion(const Region& region, const V& begin, const V& end);
  void AddVariable(const Loop& loop);
  void EmitRowPhase(const Phase& phase);
  void EmitColumnPhase(const Phase& phase);
  // The serial loops from number `depth` on, and what is carried through each.
  void OpenSerial(size_t depth, const std::function<void()>& body);
  void EmitAhead(const Phase& ahead);
  void OpenLoops(std::span<const Loop> loops, const std::function<void()>& body);
  // body(at) for begin, begin + step, ... below end.
  void EmitLoop(const V& begin, const V& end, const V& step, const std::function<void(const V&)>& body);
  // body(copy) with lanes_ set, over `loop.variable` in vectors of `lanes`, `copies` of them at a time: neighbours, or
  // on a long way each in a part of its own.
  void EmitVectorLoop(const Loop& loop, const Phase& phase, int lanes, int copies,
                      const std::function<void(int copy)>& body);
  struct Vectors {
    int lanes = 1;
    int copies = 1;
    bool paired = false;
    bool masked = false;  // All of them, and the body is written once; else what is left is.
    int64_t own_way_min = kOwnWayMin;
  };
  // Vectors that do not wait for each other, and ways through memory: a core has several lines of each on their way,
  // and reads four ways at once a third faster than one.
  static constexpr int kCopies = 4;
  static constexpr size_t kLargeBody = 48;  // Instructions of all copies that keep a core busy.
  // From so many trips of each on, copies go their own ways: pages of their own.
  static constexpr int64_t kOwnWayMin = 1024;
  // The same over [first, last).
  void EmitVectors(int variable, const ir::Expr* first, const ir::Expr* last, const Vectors& vectors,
                   const std::function<void(int copy)>& body);
  // Sets lanes_ for the vector of `vectors` at `first`,
  void EnterVectors(int variable, const Vectors& vectors, const V& first);
  // and its masks: lanes before `end` exist.
  void MaskVectors(const Vectors& vectors, const V& end);
  // Where conditions on indices change along `loop`, as far as they are constants.
  std::vector<int64_t> CutsOf(const Phase& phase, const Loop& loop, int lanes);
  int RestLanes(int lanes) const;  // Of a vector of a loop's rest.
  bool IsShort(const Region& region);
  // Whether a masked access costs what another does.
  bool HasMasks() const { return target_.vector_bytes == 64; }
  int LanesFor(const Loop& loop) const;
  int LanesFor(const Phase& phase, const Loop& inner);
  size_t InstructionsOf(const Phase& phase, std::unordered_map<const Element*, bool>& seen) const;
  static size_t InstructionsOf(const Element* root, std::unordered_map<const Element*, bool>& seen);
  int CopiesFor(const Phase& phase, const Loop& inner, int lanes);
  // Of `copies`, as many as a loop of so many trips has vectors for, if that is known.
  static int CopiesIn(const ir::Expr* trips, int lanes, int copies);

  // sums.cc: what is added up.
  struct Addend {  // What an accumulator's body is in the lanes that are computed now,
    V value;
    std::optional<V> times;  // times this.
  };
  void Accumulate(const Accumulator& accumulator, const std::string& slot);
  Addend EmitAddend(const Accumulator& accumulator);
  V EmitAdded(const Accumulator& accumulator, const V& before, const Addend& addend);
  // One number of all lanes of all slots, and of `rest`, of fewer lanes, unless it is empty.
  V Collapse(const Accumulator& accumulator, const std::vector<std::string>& slots, int lanes, const std::string& rest);
  void EmitNeutral(const Phase& phase, int depth);
  void EmitMemoryOrder(const Phase& phase, int depth);
  void EmitCarried(const Phase& phase);
  V EmitCarriedLoad(const Carried& carried);
  // Adds `addends`, one a row, up in that order.
  void EmitCarried(const Carried& carried, std::span<const Addend> addends);
  // Sums of columns alone, on cores that read best in order: several rows at a time, each a way through memory of its
  // own, so that what is carried is read and written once for all of them. 1: as everywhere.
  int RowsTogether() const;
  void OpenRowsTogether(int rows, const std::function<void()>& body);
  // What depends on the row belongs to `level` from here on.
  void EnterRow(const V& row, size_t level);

  // pairs.cc: vectors whose even lanes come first, so that bfloat16 needs no shuffle.
  bool IsPaired(const Phase& phase, const Loop& inner);
  V EmitPairedIota() const;
  V EmitInMemoryOrder(const V& value);
  V EmitInPairs(const V& value);
  std::optional<V> EmitWidenedPairs(const Element* convert, int guard);
  std::function<void()> PrepareStoreOfPairs(const Store& store);  // Null: `store` is something else.

  // prefetch.cc: what a row to come reads first is asked for while this one is finished.
  void ChoosePrefetched(const Region& region);
  static size_t LastLoops(const Region& region);  // The last phase that has any.
  // Rows to come go into the second-level cache: the first has the one that is being read, and fewer misses under way.
  static constexpr int kFirstLevel = 3, kSecondLevel = 2;
  struct RowsAhead {
    int64_t bytes_max;
    int into;
  };
  void ChooseRowsToCome(const Phase& first, int row, int lane, const RowsAhead& rows);
  void ChooseAhead(const Region& region);  // Where a loop only stores: what it reads a while later.
  // The loads of `phase` that go along `inner`, `bytes` ahead.
  void ChooseAlong(const Phase& phase, const Loop& inner, int64_t bytes, int into);
  // Whether phases before the last ask for a share of the row to come, too.
  bool SharesRowsToCome(const Region& region);
  int64_t LargestBytes(const Phase& phase) const;  // Of an element that it loads.
  bool AsksForShare(int copy, int copies);         // In a phase before the last;
  bool WasAskedFor(int copy, int copies) const;    // in the last.
  void EmitPrefetches(int copy, int copies);       // In an innermost loop, with the copy of so many.
  void EmitPrefetch(const V& address, int into);

  // turned.cc: tiles of tensors that are contiguous along the rows of a tile are turned before its rows run.
  void ChooseTurned(const Region& region);
  struct Turned {
    const ir::Expr* base = nullptr;    // The offset of a load, less the rows and the columns;
    const ir::Expr* stride = nullptr;  // from a column to the next.
    std::string array;                 // A tile in rows of columns_max.
  };
  void EmitTurned();
  void EmitTurnedTile(const Turned& turned, int slot);
  std::string TurnOf(Ty type, int side);
  struct Place {  // Of a load.
    Tensor tensor;
    std::string base;
    const ir::Expr* offset = nullptr;
  };
  // Where `load`, of a tensor, is read: in memory, or turned in a tile.
  Place PlaceOf(const Element* load, int guard);

  // saved.cc: what a phase computes at a cost and a later one needs again is kept, an element for every trip.
  void ChooseSaved(const Region& region);
  void ChooseSavedColumns(const Region& region);
  int64_t ColumnsIn(const Region& region) const;  // Of a block, in whole vectors.
  void EmitSaves();                               // In the innermost loop of the phase that computes it.
  void EmitSavedColumns();                        // Behind the loops of a phase, over the columns.
  V EmitSaved(const Element* element, size_t level);
  bool IsSaved(const Element* element) const;  // By an earlier phase.

  // values.cc: expressions and elements.
  V EmitExpr(const ir::Expr* expr);       // i64; of lane 0 where it varies.
  V EmitExprLanes(const ir::Expr* expr);  // Of every lane.
  V EmitExprNode(std::string& code, const ir::Expr& expr, const std::vector<V>& args);
  // expr = base + stride * the vector variable; nothing where data that varies is in it.
  std::optional<IndexMath::Affine> SplitLanes(const ir::Expr* expr);
  bool HasVaryingData(const ir::Expr* expr);
  // The symbol of an index that is data, read under `guard`, in this epoch.
  const ir::Expr* DataSymbol(const Element* element, int guard);
  // One lane where it does not vary.
  V EmitElement(const Element* element, int guard);
  V EmitUncached(const Element* element, int guard, size_t level);
  std::optional<V> EmitRounded(const Element* element, int guard, size_t level);
  // `side` emits one side under a guard.
  V EmitSelect(const Element* element, int guard, size_t level, const std::function<V(const Element*, int)>& side);
  bool HasShortPayload(const Element* element);
  bool IsWidened(const Element* element, DType dtype) const;
  V EmitNarrow(const Element* element, DType dtype, int guard);
  V EmitGuard(int guard);  // REQUIRES: guard != 0.
  int AddGuard(int parent, const Element* condition, bool holds);

  // memory.cc: loads and stores.
  V EmitLoad(const Element* element, int guard, size_t level);
  void EmitStores(std::span<const Store> stores);
  // The value of one, now; the function writes it, in the same place of the code or behind it.
  std::function<void()> PrepareStore(const Store& store);
  void EmitStoreOf(int tensor, std::span<const Element* const> index, V value);
  // Stores a vector in memory's order, past the caches where the tensor is larger than they are and the address allows
  // it: a whole one alone.
  void EmitStream(const Tensor& tensor, const V& value, const V& address);
  // Stores the lanes of `value` that exist.
  void EmitMaskedStore(const Tensor& tensor, const V& value, const V& address);
  V EmitMaskedLoad(const std::string& base, Ty type, const V& address, const std::string& mask);
  // The address bits that must be 0 for that; all bits where it never pays, empty where that is certain.
  V StreamBits(const Tensor& tensor, int64_t bytes);
  V LoadFrom(const Tensor& tensor, const std::string& base, const ir::Expr* offset, int guard, size_t level);
  V AddressOf(const std::string& base, Ty type, const V& offset, std::string& code);
  // "<16 x i1> %m": the lanes that exist and that `guard` allows; empty for all.
  std::string MaskFor(int guard);
  // What follows a load from, or a store to, `base`: that outputs and workspaces overlap nothing else.
  std::string ScopeOf(std::string_view base) const;
  const ir::Expr* OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard);
  const ir::Expr* PlainOffsetOf(const Element* load,
                                const Tensor& tensor);  // Null where data is in it.

  // Where something with these dependencies is computed: level, and whether in front of it.
  uint64_t VariablesOf(const ir::Expr* expr);
  uint64_t VariablesOf(const Element* element);
  uint64_t VariablesOf(int guard);
  uint64_t BitOf(int variable) const { return uint64_t{1} << variable_bit_[static_cast<size_t>(variable)]; }
  bool Varies(uint64_t variables) const {
    return lanes_.variable >= 0 && lanes_.count > 1 && (variables & BitOf(lanes_.variable)) != 0;
  }
  size_t LevelOf(uint64_t variables) const;
  const V* Find(const Key& key, size_t level) const;
  std::string& CodeAt(size_t level);
  Memo& MemoAt(size_t level);
  std::string& Here() { return levels_.back().body; }

  const LoopNest& nest_;
  const Target& target_;
  const bool in_place_;
  ir::ExprPool pool_;
  IndexMath math_;
  Writer writer_;
  Status error_;

  std::vector<Level> levels_;
  std::vector<int> variable_level_;    // By variable; -1: not open.
  std::vector<int> variable_bit_;      // By variable; of the region's variables.
  std::vector<int> region_variables_;  // By bit.
  std::unordered_map<int, V> variable_value_;
  std::unordered_map<std::string_view, V> symbols_;
  std::unordered_map<std::string, Data> data_;  // By symbol.
  std::unordered_map<const ir::Value*, V> scalars_;
  std::unordered_map<const ir::Value*, int> slots_;
  std::unordered_map<const ir::Value*, Result_> results_;
  std::unordered_map<const ir::Expr*, uint64_t> expr_variables_;
  std::unordered_map<const Element*, uint64_t> element_variables_;
  std::unordered_map<const Element*, bool> has_short_payload_;
  std::vector<Guard> guards_;
  int epoch_ = 0;
  int num_epochs_ = 1;
  Lanes lanes_;
  struct Saved {
    size_t phase = 0;  // Which computes it.
    int variable = -1;
    std::string array;
  };
  const ir::Expr* PlaceOfSaved(const Saved& saved);  // In its array.
  std::unordered_map<const Element*, Saved> saved_;
  std::vector<const Element*> saved_order_;
  struct Prefetched {
    const Element* load;
    const ir::Expr* offset;  // Of what is asked for;
    const ir::Expr* nearer;  // of what was asked for a row before. Null where no rows are.
  };
  std::vector<Prefetched> prefetched_;
  size_t prefetching_phase_ = 0;
  bool asks_again_ = false;  // In the phase before that one.
  bool shares_rows_ = false;
  struct Shares {
    int copies = 0;  // Whose lines phases before that one have asked for, of vectors
    int lanes = 0;   // of so many elements.
  } shares_;
  int prefetching_into_ = 0;  // The locality that LLVM knows it by.
  std::unordered_map<const Element*, Turned> turned_;
  std::vector<const Element*> turned_order_;
  int64_t turned_bytes_ = 0;                      // Of all regions.
  std::map<std::string, std::string> functions_;  // The kernel's own, by name.
  // Values of the last serial loop's variable in one trip; empty: a trip is a row.
  std::vector<V> rows_together_;
  size_t phase_ = 0;  // Being written.
  size_t row_level_ = 0;
  const Region* region_ = nullptr;
  bool is_short_ = false;  // The region.
  std::string zero_;       // Eight bytes of zero, for loads that a guard forbids.
  bool streams_ = false;   // Some store goes past the caches.
};

}  // namespace hir::codegen::cpu
