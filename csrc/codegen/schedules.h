// The schedules: each makes regions of a nest. One file each. Private to csrc/codegen.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "csrc/codegen/nest_builder.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen {

// pointwise.cc: outputs that depend on no reduction.
void AddPointwiseRegions(NestBuilder& builder, const std::vector<const ir::Value*>& outputs);

// pieces.cc: a region without reductions, or what it computes in several, along one of its loops: in each of them those
// conditions are decided by which functions are computed or not.
std::vector<Region> InPieces(NestBuilder& builder, Region region);

// Whether rows of a few columns are taken several abreast: long sums over them, of tensors that all lie as they are
// reduced.
bool TakesRowsAbreast(NestBuilder& builder);

// reduction.cc: all reductions of the group and the outputs that go with them, in one region without a
// decision about vectors.
Region MakeReductionRegion(NestBuilder& builder);

// short_reductions.cc: reductions of a few elements that do not lie side by side become part of what reads them, where
// all of the region's are such.
void InlineShortReductions(NestBuilder& builder, Region& region);

// partials.cc: whether memory is contiguous along the reduced axes.
bool ReducesInnermost(const NestBuilder& builder);
// Whether the region has too few rows to keep a machine busy, and can be computed in several launches.
bool WantsParts(NestBuilder& builder, const Region& region);
// Reads a range once for sums and for squares of deviations from their mean, where the second reading would be of
// memory.
void ReadPairsOnce(NestBuilder& builder, Region& region);
// The phases that accumulate, in their order.
std::vector<size_t> ReducingPhases(const Region& region);
// A phase that is reduced in parts, and one that is reduced in the same parts (paired.h).
struct Together {
  size_t first = 0;
  std::optional<size_t> second;
};
// A workspace that a launch leaves for later ones: the results of an accumulator, or of each part of its range; or an
// element that is made of results alone, once a row (`row_element`: its number among those).
struct Kept {
  NestBuilder::Source source;
  int row_element = -1;
  const ir::Value* value = nullptr;
  int workspace = 0;  // Of the plan.
};
// The workspaces that a launch has, in the order of its slots: numbers of the plan, and the nest's values.
struct UsedWorkspaces {
  std::vector<int> numbers;
  std::vector<const ir::Value*> values;
};
// A region of one of those launches, made of the whole region anew: one of these, then Finish.
class PartsLaunch {
 public:
  // `workspaces`: how many the plan has. `used`: the launch's.
  PartsLaunch(NestBuilder& builder, Region region, int workspaces, UsedWorkspaces& used)
      : builder_(builder), region_(std::move(region)), first_workspace_(workspaces), used_(used) {}

  // Part by part, each kept: those of the first phase, then those of the second.
  void ReduceParts(const Together& phases);
  // The `parts` together: kept where phases follow that loop, or if so told; the last time with what is stored once a
  // row, and what phases that only store make of results alone.
  void CombineParts(const Together& phases, std::span<const Kept> parts, bool is_last, bool keep);
  // Phase `p`, which stores, point by point; it reads what the last sums' launch has made of results alone, if told.
  void StorePoints(size_t p, bool reads_row_elements);
  // The stores of one element a row.
  void StoreRows();
  // Results of earlier launches are read from where they are kept.
  Region Finish(std::span<const Kept> results);

  const std::vector<Kept>& made() const { return made_; }

 private:
  // Where a phase's loops are cut: loop number `loop` into `parts` of `length` times `abreast` trips: results are apart
  // for each of those that are a multiple of `abreast` apart.
  struct Cut {
    size_t loop = 0;
    const ir::Expr* parts = nullptr;
    const ir::Expr* length = nullptr;
    int64_t abreast = 1;
  };
  Cut CutOf(const Together& phases);
  int64_t AbreastOf(const Together& phases);
  // Variables of a part: its number, and which of the trips abreast; -1: there is one.
  struct Part {
    int number = -1;
    int of_abreast = -1;
  };
  Part NewPart(const Cut& cut);
  std::vector<Loop> LoopsOver(const Part& part, const Cut& cut) const;
  // The index of what is kept of it: the part's, and `index`.
  std::vector<const fusion::Element*> IndexOf(const Part& part, std::vector<const fusion::Element*> index) const;
  // The elements of a part, as a number of `dtype`: of the first `length` of the cut loop's trips in it.
  const fusion::Element* CountOfPart(const Phase& phase, const Cut& cut, const Part& part, const ir::Expr* length,
                                     DType dtype);
  // A value that a launch keeps of a part: `element`, or the accumulator's result where that is null.
  struct Result {
    Accumulator accumulator;
    const fusion::Element* element = nullptr;
  };
  // The phases, in their order, and results where trips lie abreast.
  void LayAbreast(const Phase& whole, const Cut& cut, const Part& part, std::vector<Phase>& phases,
                  std::vector<Result>& results);
  // The elements that phases which only store make of results alone, at some cost: the same ones in each launch.
  std::vector<const fusion::Element*> RowElements() const;
  const ir::Value* Use(const Kept& kept);
  // A store of `result`, the accumulator's where that is null.
  Store Make(const Accumulator& accumulator, std::vector<ir::Axis> axes, std::vector<const fusion::Element*> index,
             const fusion::Element* result = nullptr, int row_element = -1);

  NestBuilder& builder_;
  Region region_;
  const int first_workspace_;
  std::vector<Kept> made_;
  std::vector<const fusion::Element*> row_elements_;  // Which the region reads from where they are kept.
  UsedWorkspaces& used_;
};

// inner_outer.cc: reductions over columns and over rows, in one pass over the rows and a second launch.
// Whether a "reduction" that could run its rows in order is fast so: a CPU reads pages that follow each other faster
// than blocks of columns, but few rows make more partial results than they save.
bool RowsInOrderPay(NestBuilder& builder);
// Reductions over rows, part by part.
struct RowSums {
  // The results that nested reductions have of each row.
  struct OfRows {
    NestBuilder::Source source;
    const ir::Value* value = nullptr;  // A workspace: [row axes..., the columns that it keeps...].
  };
  std::vector<OfRows> of_rows;
  struct Partial {
    const ir::Value* value = nullptr;  // A workspace.
    int depth = 0;                     // It keeps the first `depth` rows' axes.
  };
  std::vector<Partial> partials;  // Their workspaces lie behind those of `of_rows`.
  // Of each reduction the partial that it is; or, where several share sums, that of each term of its body (terms.h).
  std::map<NestBuilder::Source, std::vector<size_t>> sources;
  bool shared = false;
  std::vector<const ir::Value*> kept;  // Workspaces of the first launch alone, behind those.
};
// First launch: all that is made row by row, and the parts' sums.
RowSums AddRowsInParts(NestBuilder& builder);
// Second launch: the parts together, and what depends on them.
void AddSumsOfParts(NestBuilder& builder, const RowSums& sums);

// nested.cc: reductions over some columns of each row, and over rows. First launch: each row leaves its results.
void LeaveNested(NestBuilder& builder, Region& region, RowSums& sums);
// Second launch: those of all rows together, and what depends on them.
void AddSumsOfRows(NestBuilder& builder, const RowSums& sums);

// join_loops.cc: loops of the grid, or of all phases that have either, become one where every access, results of
// reductions included, runs through them side by side. Elements of values that are made behind it know nothing of it.
void JoinLoops(NestBuilder& builder, Region& region);

// region_axes.cc: joins loops, chooses the axis that is innermost, splits what is too long, and what is parallel from
// what is not; adds the region. For GPUs adds it with its loops joined.
// REQUIRES: grid holds every loop outside the phases and serial is empty, or serial is decided; columns are empty.
void AddRegion(NestBuilder& builder, Region region);

// The trip count where it is constant, else `otherwise`.
int64_t TripsOf(const Loop& loop, int64_t otherwise);

}  // namespace hir::codegen
