// Writes the scalar code of a loop nest as CUDA C++: expressions, elements, loads and stores, in vectors along one
// variable. The schedules (pointwise.cc, rows.cc, ...) write the loops around it. Private to csrc/codegen/gpu.
//
// Code goes into open scopes; what varies with an outer scope's variables alone is written into that scope, in front
// of what is open inside it. A "lane" is one element of a vector: code that varies along the vector variable goes
// into a loop over lanes, everything else in front of it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Emitter {
 public:
  using Element = fusion::Element;

  struct Options {
    int lanes = 1;        // Elements of a vector.
    bool narrow = false;  // 32-bit index arithmetic, under a condition.
    bool fast = false;    // See PrimText.
    // Sizes of symbols, where known: they decide which vectors there are (MayDivide).
    const Sizes* sizes = nullptr;
  };
  Emitter(const LoopNest& nest, const Options& options);

  // --- scopes
  void Open() { levels_.emplace_back(); }
  std::string Close();
  template <typename... Parts>
  void Line(const Parts&... parts) {
    base::Append(levels_.back().code, parts..., "\n");
  }
  std::string NewName(std::string_view prefix) { return base::Cat(prefix, num_names_++); }

  // Makes the variables of `region` known; none has a value yet.
  void StartRegion(const Region& region);
  // From here on, in the innermost scope, `variable` is `text`.
  void Define(int variable, std::string text);
  // What variables are called and where; to give them other values for a while.
  struct Definitions {
    std::unordered_map<int, size_t> levels;
    std::unordered_map<int, std::string> texts;
  };
  Definitions GetDefinitions() const { return {variable_level_, variable_text_}; }
  void SetDefinitions(Definitions definitions) {
    variable_level_ = std::move(definitions.levels);
    variable_text_ = std::move(definitions.texts);
  }
  // The variable along which vectors lie; Define gives it the first lane's value, a multiple of lanes().
  void SetVector(int variable, int lanes);
  // Whoever writes the loops takes care of what vectors leave: they need not divide it.
  void SetRagged(bool is_ragged) { is_ragged_ = is_ragged; }
  int lanes() const { return lanes_; }
  int vector() const { return vector_; }
  // Values of lanes that do not vary with `variable`, the one of a loop inside the vector's scope, are computed in
  // front of that loop, into arrays.
  void SetInnerRows(int variable) { inner_rows_ = variable; }
  // The scope at which results of accumulators exist: the innermost one now.
  void SetRowScope() { row_level_ = levels_.size() - 1; }
  // What the result of an accumulator is called.
  void SetResult(const ir::Value* value, std::string text, bool is_lane);

  // --- values
  IndexMath& math() { return math_; }
  ir::ExprPool& pool() { return pool_; }
  const ir::Expr* Import(const ir::Expr* expr) { return pool_.Import(expr); }
  // An `ix` (the function's index type). Of lane 0 where it varies along the vector.
  std::string Expr(const ir::Expr* expr) { return ExprText(expr, false); }
  std::string Value(const Element* element) { return ValueText(element, 0); }
  // Variables of `loops`, the last one fastest, from the row-major index `k` of their trips; the vector variable
  // counts vectors. REQUIRES: the vector variable is last or not among them.
  void Decode(std::span<const Loop> loops, const std::string& k);
  // The number of trips of all `loops`, of vectors along the vector variable.
  const ir::Expr* TripsOf(std::span<const Loop> loops);

  // --- memory
  struct Access {
    const Element* load = nullptr;
    int guard = 0;
  };
  // Where a load lies; null where that is data.
  const ir::Expr* OffsetOfLoad(const Access& access);
  // The loads below `roots` that are vectors.
  std::vector<Access> VectorLoads(const std::vector<const Element*>& roots);
  // Bytes of one, and whether it varies with any of `variables`.
  int BytesOf(const Access& access) const;
  bool Varies(const Access& access, std::span<const Loop> loops);
  // "p = ...;" at the current scope for a vector load, with what the caches are told of it.
  enum class Reading {
    kPlain,
    kLast,   // It is not read again.
    kFirst,  // It soon is.
  };
  std::string LoadText(const Access& access, Reading reading);
  // The same for a load of one element.
  std::string ScalarText(const Access& access);
  // Its address.
  std::string LoadAddress(const Access& access);
  // From now on, that load is `text`.
  void SetPack(const Access& access, std::string text) { packs_[{access.load, access.guard}] = std::move(text); }
  void ForgetPacks() { packs_.clear(); }
  // Loads of one element that vary with `rows` and not with `columns`, whatever conditions say.
  std::vector<Access> ScalarLoads(const std::vector<const Element*>& roots, std::span<const Loop> rows,
                                  std::span<const Loop> columns);
  // From now on, such a load is `text`.
  void SetScalar(const Access& access, std::string text) { scalar_loads_[access.load] = std::move(text); }

  // In the scope of a vector: adds to `accumulators` (named by `names`, an expression in the lane e) and stores.
  struct Product {  // A sum of products of values, by its name.
    std::string name;
    std::vector<const Element*> factors;
  };
  void Body(std::span<const Accumulator> accumulators, std::span<const std::string> names,
            std::span<const Store> stores, std::span<const Product> products = {});
  // body() once for each lane `e` of the vector in scope.
  void Lanes(const std::function<void()>& body);
  // Whether `element` varies with `loops`, or depends on the result of an accumulator.
  bool DependsOn(const Element* element, std::span<const Loop> loops);
  // The same without the latter.
  bool VariesWith(const Element* element, std::span<const Loop> loops);
  // Makes the elements that a schedule computes instead of the nest's.
  fusion::ElementBuilder& elements() { return elements_; }
  // In the scope of a vector: adds exp(x - base) to `sum`.
  void AddExponentials(const Element* x, const std::string& base, const std::string& sum);
  // Stops the compiler from keeping what it unpacked from arrays of packs.
  void KeepPacks(std::span<const std::pair<Access, std::string>> arrays, int count);
  // The lanes of `element` as a pack of `dtype`, its name.
  std::string PackOf(const Element* element, DType dtype);
  // The address of an element of `tensor`: of the lane, within Lanes.
  std::string AddressOf(int tensor, std::span<const Element* const> index);
  bool IsVectorStore(const Store& store);
  // One element: what `store` stores, in registers, and a line that stores it once it is `text`.
  std::string Stored(const Store& store);
  void StoreElement(const Store& store, const std::string& text);

  // --- what the code relies on: conditions on the arguments, true of every launch it is used for
  void Require(std::string condition) { conditions_.insert(std::move(condition)); }
  const std::set<std::string>& conditions() const { return conditions_; }
  // Whether expr is a multiple of `by`, at most 8: provably, or by a condition on symbols of which the known sizes are.
  bool Divisible(const ir::Expr* expr, int64_t by);
  // What does not fit vectors, as far as `region` is concerned: its weight in accesses.
  int Misfits(const Region& region);
  const Status& status() const { return error_; }
  // An expression of symbols alone, in 64 bits, for conditions.
  std::string SymbolText(const ir::Expr* expr);

 private:
  // Sets of variables, a bit each by their place in the region, and
  static constexpr uint64_t kRowBit = uint64_t{1} << 63;   // what depends on an accumulator's result,
  static constexpr uint64_t kLaneBit = uint64_t{1} << 62;  // on one that is not the same for all lanes.
  static constexpr size_t kVariablesMax = 62;

  struct Guard {
    int parent = 0;
    const Element* condition = nullptr;
    bool holds = true;
    bool operator==(const Guard&) const = default;
  };
  struct Key {
    const void* what;
    int guard;
    bool is_lane;
    auto operator<=>(const Key&) const = default;
  };
  struct Level {
    std::string code;
    std::map<Key, std::string> memo;
  };
  struct Offset {
    const ir::Expr* affine = nullptr;
    std::vector<std::pair<const Element*, const ir::Expr*>> data;  // Indices that are data, with their strides,
    int guard = 0;                                                 // where they may be read.
  };
  struct Result {
    std::string text;
    bool is_lane = false;
  };

  // emitter.cc: what varies with what, expressions.
  uint64_t VarsOf(const ir::Expr* expr);
  uint64_t VarsOf(const Element* element);
  uint64_t VarsOf(int guard);
  uint64_t VarsOf(const Offset& offset);
  uint64_t BitOf(int variable) const;
  bool IsLane(uint64_t vars) const { return lanes_ > 1 && vector_ >= 0 && (vars & BitOf(vector_)) != 0; }
  size_t LevelOf(uint64_t vars, bool is_lane) const;
  std::string ExprText(const ir::Expr* expr, bool is_lane);
  std::string NodeText(const ir::Expr& expr, const std::vector<std::string>& args);
  std::string Named(const Key& key, size_t level, std::string_view type, const std::string& text);

  // values.cc: conditions and elements.
  std::vector<std::string> Arguments(const Element* element, int guard);
  std::string PrimValue(const Element* element, const Key& key, size_t level);
  bool MayDivide(const ir::Expr* expr, int64_t by) const;
  bool IsUniform(const Element* condition);
  bool IsUniformGuard(int guard);
  std::string ConditionText(const Element* element);
  int AddGuard(int parent, const Element* condition, bool holds);
  std::string GuardText(int guard);
  std::string ValueText(const Element* element, int guard);
  bool LeavesRows(const Element* element, int guard, uint64_t vars) const;
  std::string InFrontOfRows(const Element* element, size_t level);
  bool IsExact(const Element* element, DType dtype) const;
  static std::string PowerText(const Element* element, const std::string& base);

  // memory.cc: loads.
  Offset OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard);
  // The same of what `load` reads, remembered: a load is asked for from every place that may take it in.
  Offset LoadOffset(const Element* load, int guard);
  std::string OffsetText(const Offset& offset, bool is_lane);
  bool IsVectorOffset(const Offset& offset, DType dtype, const std::string& pointer);
  bool IsVectorLoad(const Element* element, int guard);
  std::string PackText(const Access& access);
  std::string LoadValue(const Element* element, int guard);
  void PairLoads(const Element* select, int guard);
  void Visit(const Element* element, int guard, std::set<std::pair<const Element*, int>>& seen,
             std::vector<Access>& found, int* misfits);
  void VisitScalars(const Element* element, std::span<const Loop> rows, std::span<const Loop> columns,
                    std::set<const Element*>& seen, std::vector<Access>& found);

  // lanes.cc: what is done with a vector.
  struct Packed;
  Packed FindCopy(const Element* value, DType dtype);
  std::string StoredText(const Element* value, DType dtype, int guard = 0);
  std::string PairsText(const Element* element);

  const LoopNest& nest_;
  const Options options_;
  ir::ExprPool pool_;
  fusion::ElementBuilder elements_;
  IndexMath math_;
  Status error_;
  std::vector<Level> levels_;
  std::set<std::string> conditions_;
  bool probing_ = false;  // Conditions are not kept.
  int num_names_ = 0;

  int vector_ = -1;
  int inner_rows_ = -1;
  int lanes_ = 1;
  bool is_ragged_ = false;
  size_t lane_level_ = 0;  // 0: no loop over lanes is open.
  size_t row_level_ = 0;
  std::vector<int> region_variables_;
  std::unordered_map<int, size_t> variable_level_;
  std::unordered_map<int, std::string> variable_text_;
  std::unordered_map<std::string_view, std::string> symbols_;
  std::unordered_map<const ir::Value*, std::string> scalars_;
  std::unordered_map<const ir::Value*, int> slots_;
  std::unordered_map<const ir::Value*, Result> results_;
  std::unordered_map<const ir::Expr*, uint64_t> expr_vars_;
  std::unordered_map<const Element*, uint64_t> element_vars_;
  std::unordered_map<const Element*, Offset> load_offsets_;  // As if without a guard.
  std::set<const ir::Value*> accumulated_;
  std::vector<Guard> guards_;
  std::map<std::pair<const Element*, int>, std::string> packs_;
  std::unordered_map<const Element*, std::string> scalar_loads_;
};

}  // namespace hir::codegen::gpu
