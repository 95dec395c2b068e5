// What a schedule must know of a group before it builds anything: which axes run together, which reductions
// depend on which.
// Private to csrc/codegen.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/segment/segment.h"

namespace hir::codegen {

// The loops of a reduction op: for each trip of its kReduce element, the operand's value axis it runs over.
struct ReductionLoops {
  std::vector<int> operand_axes;
};
ReductionLoops LoopsOf(const ir::Op& op);

// AxesOf, and what follows from it of the op alone, remembered: segmentation asks of each op for every group that it
// might belong to. The graph must not change. Not thread-safe.
class OpAxes {
 public:
  // Where an op reads an operand.
  struct Reading {
    bool keeps_index = true;              // At its own index, as far as the operand varies.
    bool is_piece = false;                // Of the operand's own elements, beside which the result has others.
    const ir::Expr* innermost = nullptr;  // The extent of the result's innermost axis, which it does not vary along.
  };
  struct Facts {
    std::vector<fusion::AxisLink> links;
    // Elements are made from elements of the same place, and nothing else: no loop, no other index, no library.
    bool is_pointwise = false;
    std::optional<ReductionLoops> loops = {};  // Where a link is one of a reduction.
    std::vector<Reading> readings = {};        // By operand.
    int64_t price = 0;                         // segment::PriceOfElement; 0 of a reduction.
  };
  const Facts& Of(const ir::Op& op);

 private:
  std::vector<std::unique_ptr<Facts>> facts_;  // By the number of an op's first result.
};

// An axis of a tensor belongs to a class with the axes of other tensors that have the same index wherever an
// element of one
// is made from an element of the other. Axes that are stored once, or have extent 1, have none (-1): their
// index is 0.
class AxisClasses {
 public:
  // `axes` lives as long as this.
  AxisClasses(const segment::GroupView& group, OpAxes& axes);

  // One entry per value axis. REQUIRES: a tensor that the group reads or makes.
  std::span<const int> Of(const ir::Value* value) const;
  const ir::Expr* Extent(int axis_class) const { return extents_[static_cast<size_t>(axis_class)]; }
  // REQUIRES: an op of the group, for both.
  const OpAxes::Facts& FactsOf(const ir::Op* op) const { return axes_.Of(*op); }
  const std::vector<fusion::AxisLink>& Links(const ir::Op* op) const { return axes_.Of(*op).links; }

 private:
  struct Place {
    size_t begin = 0, count = 0;
  };
  OpAxes& axes_;
  std::vector<int> classes_;  // Of one value after the other.
  std::unordered_map<const ir::Value*, Place> places_;
  std::vector<const ir::Expr*> extents_;
};

// An op that needs a loop for each element of its result.
struct Reduction {
  const ir::Op* op = nullptr;
  std::vector<int> kept;     // Classes of the result's axes, in its order.
  std::vector<int> reduced;  // Classes of the loops, outermost first.
  int phase = 0;
  // "inner-outer": how many of the rows' classes, the outermost ones, are kept by a reduction over rows; -1 for one
  // over columns.
  int depth = -1;
  // A reduction over columns and over whatever rows keeps so many of the columns' classes, the outermost ones: each row
  // leaves its results, and a second launch adds them up. -1: another.
  int nested = -1;

  // Whether the result is complete behind the last row alone.
  bool IsLate() const { return depth >= 0 || nested >= 0; }
};

// Outputs that are stored in a phase of the reductions' region, or in a region of their own (phase -1).
struct OutputPlace {
  const ir::Value* value = nullptr;
  int phase = -1;
  // Not empty: made of reductions that are complete behind the last row and keep its axes; the number of one of them.
  std::optional<size_t> late = {};
};

struct Structure {
  std::string reason;    // Not empty: the group does not fit one kernel.
  std::string schedule;  // "scalar", "pointwise", "reduction", "normalization", "inner-outer"
  std::vector<Reduction> reductions;
  // Classes that all reductions keep; of "inner-outer": all but the columns, ordered so that each reduction over rows
  // alone keeps the first few.
  std::vector<int> rows;
  std::vector<int> columns;  // Of "inner-outer" and of rows in order, outermost in memory first; else empty.
  std::vector<std::vector<int>> phase_loops;  // Classes looped over in each phase; empty: none.
  std::vector<OutputPlace> outputs;           // Tensors only.
};

// Why no kernel holds that many ops; empty: one may. Asked ahead of the rest, as it takes no time.
std::string TooLarge(const segment::GroupView& group);
// As Analyse, of groups whose ops are all pointwise: with no need of classes. Nothing: Analyse may refuse it.
std::optional<Structure> AnalysePointwise(const segment::GroupView& group, OpAxes& axes);
// Pure and cheap: looks at types and axes, builds no elements of pointwise ops.
Structure Analyse(const segment::GroupView& group, const AxisClasses& classes);
// A "reduction" whose result is contiguous along axes that are kept, over rows in the manner of "inner-outer": rows
// run in their order. Has a reason where the group is none.
Structure AnalyseInOrder(const segment::GroupView& group, const AxisClasses& classes);

// The classes of an index that vary.
std::vector<int> Varying(std::span<const int> classes);
// The classes that `reduction` runs over, the outermost in memory first: as most inputs lie that vary along all of
// them; where none does, in its operand's order.
std::vector<int> DomainInMemory(const segment::GroupView& group, const AxisClasses& classes,
                                const Reduction& reduction);

// The index along such an axis is always 0.
inline bool IsSingle(const ir::Axis& axis) { return axis.kind == ir::AxisKind::kBroadcast || axis.extent->IsConst(1); }

}  // namespace hir::codegen
