#include "csrc/codegen/structure.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/walks.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::codegen {

std::vector<int> Varying(std::span<const int> classes) {
  std::vector<int> varying;
  std::ranges::copy_if(classes, std::back_inserter(varying), [](int c) { return c >= 0; });
  return varying;
}

namespace {

using base::Cat;
using fusion::AxisLink;
using fusion::AxisRelation;
using fusion::Element;

constexpr size_t kOpsMax = 512;        // Ops of one kernel: beyond, compiling takes longer than launching twice.
constexpr size_t kViewsMax = 32;       // Different indices at which one value is computed.
constexpr size_t kElementsMax = 2048;  // Sum of those over the group.
// Of an index: beyond, dividing takes longer than storing a value and reading it back (three unaligned reshapes in
// three axes: 39), and ir::kExprNodesMax comes near.
constexpr int64_t kIndexTermsMax = 32;
static_assert(kIndexTermsMax >= ir::kAxesMax, "one op always fits");
constexpr size_t kOutputsMax = 32;
constexpr int64_t kFewRows = 64;
constexpr int64_t kLongRow = 65536;
constexpr int64_t kColumnsMax = 32768;  // Sums a row of which is kept near the processor.

bool Contains(std::span<const int> classes, int axis_class) {
  return std::ranges::find(classes, axis_class) != classes.end();
}
bool SameSet(std::vector<int> a, std::vector<int> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}
bool HasRepeat(std::span<const int> classes) {
  const std::vector<int> varying = Varying(classes);
  return std::set<int>(varying.begin(), varying.end()).size() != varying.size();
}

class Analysis {
 public:
  Analysis(const segment::GroupView& group, const AxisClasses& classes) : group_(group), classes_(classes) {}

  Structure Run(bool in_order) {
    if (!CheckOps() || !CheckViews()) return std::move(result_);
    for (const ir::Value* value : group_.outputs) {
      if (IsTensor(*value)) result_.outputs.push_back({value, -1});
    }
    for (const ir::Op* op : group_.ops) {
      if (!VisitOp(*op)) return std::move(result_);
    }
    if (result_.outputs.size() > kOutputsMax) return Refuse(Cat("more than ", kOutputsMax, " outputs"));
    if (result_.reductions.empty()) {
      result_.schedule = result_.outputs.empty() ? "scalar" : "pointwise";
      return std::move(result_);
    }
    result_.rows = result_.reductions.front().kept;
    const bool same =
        std::ranges::all_of(result_.reductions, [&](const Reduction& r) { return SameSet(r.kept, result_.rows); });
    if (!same && !ChooseRows() && !ChooseRowsOfNested()) return std::move(result_);
    if (in_order && !(ChooseRowsInOrder() && CheckRows())) return std::move(result_);
    AssignPhases();
    for (OutputPlace& output : result_.outputs) {
      if (!Place(output)) return std::move(result_);
    }
    const auto loops = std::ranges::count_if(result_.phase_loops, [](const auto& l) { return !l.empty(); });
    const bool several = loops > 1 && !in_order;
    result_.schedule = !same ? "inner-outer" : several ? "normalization" : "reduction";
    return std::move(result_);
  }

 private:
  // Reductions that keep different axes: some, or none, reduce the columns of each row, the others run over rows.
  bool ChooseRows() {
    const Reduction& first = result_.reductions.front();
    const std::vector<int> domain = DomainInMemory(group_, classes_, first);
    std::vector<std::vector<int>> candidates;
    std::vector<int> all_reduced;
    for (const Reduction& reduction : result_.reductions) {
      if (!SameSet(DomainOf(reduction), domain)) {
        return Refused(
            Cat("%", reduction.op->results[0]->name, " runs over other axes than %", first.op->results[0]->name));
      }
      candidates.push_back(reduction.kept);
      std::ranges::copy_if(reduction.reduced, std::back_inserter(all_reduced),
                           [&](int c) { return !Contains(all_reduced, c); });
    }
    candidates.push_back(all_reduced);
    const int innermost = InnermostOf(domain);
    const auto may_be = [&](const std::vector<int>& rows) {
      return !rows.empty() && !Contains(rows, innermost) && AreRows(rows);
    };
    const std::vector<int>* chosen = nullptr;
    for (const std::vector<int>& rows : candidates) {
      if (!may_be(rows)) continue;
      if (chosen == nullptr) chosen = &rows;
      if (KeepFewBusy(domain, rows)) continue;
      chosen = &rows;
      break;
    }
    if (chosen != nullptr) {
      SetRows(domain, *chosen);
      return CheckColumns() && CheckRows();
    }
    for (const Reduction& reduction : result_.reductions) {
      if (SameSet(reduction.kept, first.kept)) continue;
      return Refused(Cat("%", reduction.op->results[0]->name, " keeps other axes than %", first.op->results[0]->name));
    }
    return true;
  }

  // The same where some reductions run over columns and over rows, or over some of the columns: each row leaves its
  // share of their results. Best are rows that lie behind each other in memory and leave one element of each.
  bool ChooseRowsOfNested() {
    const std::vector<int> domain = DomainInMemory(group_, classes_, result_.reductions.front());
    for (const Reduction& reduction : result_.reductions) {
      if (!SameSet(DomainOf(reduction), domain)) return false;
    }
    std::vector<std::vector<int>> candidates;
    for (size_t count = 1; count < domain.size(); ++count)
      candidates.emplace_back(domain.begin(), domain.begin() + static_cast<std::ptrdiff_t>(count));
    for (const Reduction& reduction : result_.reductions) {
      const auto is_same = [&](const std::vector<int>& rows) { return SameSet(rows, reduction.kept); };
      if (std::ranges::none_of(candidates, is_same)) candidates.push_back(reduction.kept);
    }
    const int innermost = InnermostOf(domain);
    std::string reason = std::exchange(result_.reason, {});  // What the first choice was refused for.
    const auto choose = [&](bool keeps_columns, bool keep_few_busy) {
      return std::ranges::any_of(candidates, [&](const std::vector<int>& rows) {
        if (rows.empty() || Contains(rows, innermost) || KeepFewBusy(domain, rows) != keep_few_busy) return false;
        result_.columns.clear();
        result_.reason.clear();
        return SetRowsOfNested(domain, rows, keeps_columns) && CheckColumns() && CheckRows();
      });
    };
    if (choose(false, false) || choose(false, true) || choose(true, false) || choose(true, true)) return true;
    result_.reason = std::move(reason);
    return false;
  }

  // Whether each reduction fits `rows`: keeps exactly those; or is one over rows alone, or over the last columns and
  // whatever rows. `keeps_columns`: those of the last kind have several results in a row.
  bool SetRowsOfNested(const std::vector<int>& domain, const std::vector<int>& rows, bool keeps_columns) {
    std::vector<Reduction>& reductions = result_.reductions;
    for (Reduction& reduction : reductions) reduction.depth = reduction.nested = -1;
    std::vector<int> columns;
    std::ranges::copy_if(domain, std::back_inserter(columns), [&](int c) { return !Contains(rows, c); });
    bool has_rows_alone = false;
    int most = 0;
    for (Reduction& reduction : reductions) {
      if (SameSet(reduction.kept, rows)) continue;
      const auto is_kept = [&](int c) { return Contains(reduction.kept, c); };
      const auto first_reduced = std::ranges::find_if_not(columns, is_kept);
      if (first_reduced == columns.end()) {
        has_rows_alone = true;
        continue;
      }
      if (std::any_of(first_reduced, columns.end(), is_kept)) return false;
      reduction.nested = static_cast<int>(first_reduced - columns.begin());
      if (most > 0 && reduction.nested > 0 && reduction.nested != most) return false;
      most = std::max(most, reduction.nested);
    }
    if ((most > 0) != keeps_columns || (has_rows_alone && (keeps_columns || !AreRows(rows)))) return false;
    SetRows(domain, rows);
    return true;
  }

  // The columns are the last axes of what is reduced, as far as they are kept.
  bool ChooseRowsInOrder() {
    const Reduction& first = result_.reductions.front();
    std::vector<int> domain = DomainInMemory(group_, classes_, first);
    std::vector<int> rows = domain;
    while (!rows.empty() && Contains(first.kept, rows.back())) rows.pop_back();
    if (rows.size() == domain.size() || rows.empty() || Contains(rows, InnermostOf(domain)))
      return Refused("is not contiguous along axes that are kept");
    for (const Reduction& reduction : result_.reductions) {
      if (!SameSet(DomainOf(reduction), domain)) return Refused("runs over several domains");
    }
    SetRows(domain, rows);
    return true;
  }

  // The classes of what a reduction runs over, in the operand's order.
  std::vector<int> DomainOf(const Reduction& reduction) const {
    return Varying(classes_.Of(reduction.op->operands[0]));
  }

  // The class along which most tensors of the whole domain are contiguous.
  int InnermostOf(const std::vector<int>& domain) const {
    std::map<int, int> votes;
    int best = domain.back();
    const auto vote = [&](const ir::Value* value) {
      if (!IsTensor(*value)) return;
      const std::vector<int> axes = Varying(classes_.Of(value));
      if (!SameSet(axes, domain)) return;
      const int count = ++votes[axes.back()];
      if (count > votes[best]) best = axes.back();
    };
    for (const ir::Value* value : group_.inputs) vote(value);
    for (const ir::Value* value : group_.outputs) vote(value);
    return best;
  }

  // Whether each reduction keeps exactly `rows`, is nested, or reduces some of them and nothing else; and those keep
  // ever fewer.
  bool AreRows(const std::vector<int>& rows) const {
    std::vector<std::vector<int>> kept_rows;
    for (const Reduction& reduction : result_.reductions) {
      if (SameSet(reduction.kept, rows) || reduction.nested >= 0) continue;
      if (!std::ranges::all_of(reduction.reduced, [&](int c) { return Contains(rows, c); })) return false;
      std::vector<int>& kept = kept_rows.emplace_back();
      std::ranges::copy_if(rows, std::back_inserter(kept), [&](int c) { return Contains(reduction.kept, c); });
    }
    std::ranges::sort(kept_rows, {}, [](const auto& kept) { return kept.size(); });
    for (size_t i = 1; i < kept_rows.size(); ++i) {
      const bool contained = std::ranges::all_of(kept_rows[i - 1], [&](int c) { return Contains(kept_rows[i], c); });
      if (!contained) return false;
    }
    return true;
  }

  // A part of the grid goes through several rows in order: of a dozen long ones few processors would work, and of short
  // ones few lanes of each.
  bool KeepFewBusy(const std::vector<int>& domain, const std::vector<int>& rows) const {
    int64_t count = 1, length = 1;
    for (const int axis : domain) {
      const ir::Expr* extent = classes_.Extent(axis);
      int64_t& product = Contains(rows, axis) ? count : length;
      if (Contains(rows, axis) && !extent->IsConst()) return false;
      product = extent->IsConst() ? base::CheckedMul(product, extent->value).value_or(kLongRow) : kLongRow;
      product = std::min(product, kLongRow);
    }
    return (count < kFewRows && length >= kLongRow) || length < kShortRow;
  }

  // Rows that more of the reductions over rows keep come first.
  void SetRows(const std::vector<int>& domain, const std::vector<int>& rows) {
    result_.rows.clear();
    std::map<int, int> keepers;
    for (const int axis : domain) {
      (Contains(rows, axis) ? result_.rows : result_.columns).push_back(axis);
    }
    for (Reduction& reduction : result_.reductions) {
      if (SameSet(reduction.kept, rows) || reduction.nested >= 0) continue;
      reduction.depth = 0;
      for (const int axis : reduction.kept) {
        if (!Contains(rows, axis)) continue;
        ++keepers[axis];
        ++reduction.depth;
      }
    }
    std::ranges::stable_sort(result_.rows, [&](int a, int b) { return keepers[a] > keepers[b]; });
  }

  // Sums over rows alone have a row of results.
  bool CheckColumns() {
    if (std::ranges::none_of(result_.reductions, [](const Reduction& r) { return r.depth >= 0; })) return true;
    int64_t columns = 1;
    for (const int axis : result_.columns) {
      const ir::Expr* extent = classes_.Extent(axis);
      if (!extent->IsConst()) continue;
      columns = std::min(columns * std::max<int64_t>(extent->value, 1), kColumnsMax + 1);
    }
    return columns <= kColumnsMax ||
           Refused(Cat("sums over rows of more than ", kColumnsMax, " columns, beside others"));
  }

  // What reductions over rows make is complete behind the last row: no other reduction reads it, and outputs made of
  // it have its axes. And what goes over rows has one loop, over the columns.
  bool CheckRows() {
    made_of_.clear();
    for (OutputPlace& output : result_.outputs) output.late.reset();
    size_t next = 0;
    for (const ir::Op* op : group_.ops) {
      Parts parts;
      for (const ir::Value* operand : op->operands) {
        const auto known = made_of_.find(operand);
        if (known == made_of_.end()) continue;
        parts.of_rows = parts.of_rows || known->second.of_rows;
        parts.late.insert(known->second.late.begin(), known->second.late.end());
      }
      if (next < result_.reductions.size() && result_.reductions[next].op == op) {
        const Reduction& reduction = result_.reductions[next++];
        if (!parts.late.empty()) {
          return Refused(Cat("%", op->results[0]->name, " reads a sum over rows"));
        }
        parts = {.of_rows = !reduction.IsLate(), .late = {}};
        if (reduction.IsLate()) parts.late.insert(next - 1);
      }
      if (parts.of_rows || !parts.late.empty()) made_of_[op->results[0]] = std::move(parts);
    }
    for (OutputPlace& output : result_.outputs) {
      const auto known = made_of_.find(output.value);
      if (known == made_of_.end() || known->second.late.empty()) continue;
      output.late = *known->second.late.begin();
      const std::vector<int> axes = Varying(classes_.Of(output.value));
      const bool same =
          std::ranges::all_of(known->second.late, [&](size_t r) { return SameSet(axes, result_.reductions[r].kept); });
      if (known->second.of_rows || !same) {
        return Refused(Cat("output %", output.value->name, " needs a sum over rows and more than its columns"));
      }
    }
    return elsewhere_ == nullptr || Refused(Cat(elsewhere_->info->name, " %", elsewhere_->results[0]->name,
                                                " reads another column than its own, beside sums over rows"));
  }

  Structure Refuse(std::string reason) {
    result_.reason = std::move(reason);
    return std::move(result_);
  }
  bool Refused(std::string reason) {
    result_.reason = std::move(reason);
    return false;
  }

  bool CheckOps() {
    if (std::string reason = TooLarge(group_); !reason.empty()) return Refused(std::move(reason));
    for (const ir::Op* op : group_.ops) {
      const fusion::FusionOp code = fusion::CodeOf(*op);
      if (fusion::IsCommunication(code)) return Refused(Cat(op->info->name, " is a communication"));
      if ((op->info->effects & ir::kLibrary) != 0) return Refused(Cat(op->info->name, " is a library call"));
    }
    return true;
  }

  // Counts at how many different indices each value is computed: ops that change the index make a new one for each of
  // theirs, so chains of them can grow beyond bounds. And how long an index becomes: that of an axis which a reshape
  // takes apart is made of the indices of all its parts.
  bool CheckViews() {
    std::unordered_map<const ir::Value*, std::set<int>> views;
    std::unordered_map<const ir::Value*, int64_t> terms;  // Of its longest index.
    int next = 0;
    size_t sum = 0;
    for (const ir::Value* value : group_.outputs) views[value].insert(next++);
    for (size_t i = group_.ops.size(); i-- > 0;) {
      const ir::Op* op = group_.ops[i];
      const std::set<int>& own = views[op->results[0]];  // Stays where it is when others come.
      sum += own.size();
      if (own.size() > kViewsMax || sum > kElementsMax) {
        return Refused(Cat("%", op->results[0]->name, " would be computed at ", own.size(), " places"));
      }
      for (size_t k = 0; k < op->operands.size(); ++k) {
        int64_t& most = terms[op->operands[k]];
        most = std::max(most, TermsOf(*op, static_cast<int>(k), terms[op->results[0]]));
        if (most > kIndexTermsMax) {
          return Refused(Cat("an index of %", op->operands[k]->name, " would have ", most, " terms"));
        }
        std::set<int>& theirs = views[op->operands[k]];
        if (KeepsIndex(*op, static_cast<int>(k))) {
          theirs.insert(own.begin(), own.end());
        } else {
          for (size_t n = 0; n < own.size(); ++n) theirs.insert(next++);
        }
      }
    }
    return true;
  }

  // Of an operand's longest index, when those of the result have `terms`.
  int64_t TermsOf(const ir::Op& op, int operand, int64_t terms) const {
    if (KeepsIndex(op, operand)) return terms;
    int64_t most = 0;
    std::unordered_map<int, int64_t> sums;  // By axis of the operand.
    for (const AxisLink& link : classes_.Links(&op)) {
      if (link.operand == operand) most = std::max(most, sums[link.operand_axis] += terms + 1);
    }
    return most;
  }

  bool KeepsIndex(const ir::Op& op, int operand) const {
    return classes_.FactsOf(&op).readings[static_cast<size_t>(operand)].keeps_index;
  }

  bool VisitOp(const ir::Op& op) {
    const ir::Value* result = op.results[0];
    if (!IsTensor(*result)) return true;
    bool depends = false;
    std::set<int> kept;
    for (size_t k = 0; k < op.operands.size(); ++k) {
      const auto known = reduced_.find(op.operands[k]);
      if (known == reduced_.end()) continue;
      depends = true;
      const Places places = PlacesOf(op, static_cast<int>(k), known->second);
      if (places == Places::kOther) {
        return Refused(Cat(op.info->name, " %", result->name, " reads the result of a reduction at another index"));
      }
      if (places == Places::kOtherColumns) elsewhere_ = &op;
      kept.insert(known->second.begin(), known->second.end());
    }
    const std::optional<ReductionLoops>& loops = classes_.FactsOf(&op).loops;
    Reduction reduction;
    reduction.op = &op;
    if (loops) {
      const std::span<const int> axes = classes_.Of(op.operands[0]);
      for (const int axis : loops->operand_axes) {
        // A minimum over an axis that is stored once; rare, and it has no class.
        if (axes[static_cast<size_t>(axis)] < 0) return Refused(Cat("%", result->name, " reduces a broadcast axis"));
        reduction.reduced.push_back(axes[static_cast<size_t>(axis)]);
      }
      if (!reduction.reduced.empty() && HasRepeat(axes)) {
        return Refused(Cat("two axes of %", op.operands[0]->name, " have one index"));
      }
    }
    if (!reduction.reduced.empty()) {
      reduction.kept = Varying(classes_.Of(result));
      kept.insert(reduction.kept.begin(), reduction.kept.end());
      result_.reductions.push_back(std::move(reduction));
      depends = true;
    }
    if (depends) {
      reduced_[result] = std::move(kept);
      if (HasRepeat(classes_.Of(result))) return Refused(Cat("two axes of %", result->name, " have one index"));
    }
    return true;
  }

  enum class Places { kSame, kOtherColumns, kOther };

  // Where an op reads an operand made of reductions that keep the classes `kept`. Along those, each element of the
  // result needs the operand's element of its own index. Along other axes any will do: it is computed where it is
  // read, from the reductions' results at its index.
  Places PlacesOf(const ir::Op& op, int operand, const std::set<int>& kept) const {
    const std::span<const int> axes = classes_.Of(op.operands[static_cast<size_t>(operand)]);
    Places places = Places::kSame;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis] < 0) continue;
      const bool same = std::ranges::any_of(classes_.Links(&op), [&](const AxisLink& link) {
        return link.operand == operand && link.operand_axis == static_cast<int>(axis) &&
               (link.relation == AxisRelation::kSame || link.relation == AxisRelation::kReduced);
      });
      if (same) continue;
      if (kept.contains(axes[axis])) return Places::kOther;
      places = Places::kOtherColumns;
    }
    return places;
  }

  // The last phase whose results `value` needs, or -1.
  int NeededPhase(const ir::Value* value) {
    const auto known = needed_.find(value);
    return known == needed_.end() ? -1 : known->second;
  }

  // Each reduction goes into the first phase with its loops that comes after all it needs.
  void AssignPhases() {
    size_t next = 0;
    for (const ir::Op* op : group_.ops) {
      int needed = -1;
      for (const ir::Value* operand : op->operands) needed = std::max(needed, NeededPhase(operand));
      if (next < result_.reductions.size() && result_.reductions[next].op == op) {
        Reduction& reduction = result_.reductions[next++];
        const bool is_late = reduction.IsLate();
        reduction.phase = FindPhase(is_late ? result_.columns : reduction.reduced, needed);
        needed = is_late ? -1 : reduction.phase;
        // The columns that it keeps are the outermost loops.
        if (reduction.nested > 0) result_.phase_loops[static_cast<size_t>(reduction.phase)] = result_.columns;
      }
      if (needed >= 0) needed_[op->results[0]] = needed;
    }
  }

  int FindPhase(const std::vector<int>& loops, int after) {
    for (size_t p = static_cast<size_t>(after + 1); p < result_.phase_loops.size(); ++p) {
      if (SameSet(result_.phase_loops[p], loops)) return static_cast<int>(p);
    }
    result_.phase_loops.push_back(loops);
    return static_cast<int>(result_.phase_loops.size()) - 1;
  }

  bool Place(OutputPlace& output) {
    if (output.late) return true;
    const std::span<const int> axes = classes_.Of(output.value);
    const bool depends = reduced_.contains(output.value);
    const bool fits =
        !HasRepeat(axes) && std::ranges::all_of(result_.rows, [&](int row) { return Contains(axes, row); });
    if (!fits)
      return !depends || Refused(Cat("output %", output.value->name, " lacks an axis that the reductions keep"));
    std::vector<int> loops;
    for (const int axis : Varying(axes)) {
      if (!Contains(result_.rows, axis)) loops.push_back(axis);
    }
    if (!depends) {  // Where it costs no loop of its own; else in a region of its own.
      for (size_t p = 0; p < result_.phase_loops.size(); ++p) {
        if (SameSet(result_.phase_loops[p], loops)) {
          output.phase = static_cast<int>(p);
          return true;
        }
      }
      return true;
    }
    output.phase = FindPhase(loops, NeededPhase(output.value));
    return true;
  }

  // The reductions that a value is made of: of each row, and those that are complete behind the last row, by number.
  struct Parts {
    bool of_rows = false;
    std::set<size_t> late;
  };

  const segment::GroupView& group_;
  const AxisClasses& classes_;
  Structure result_;
  std::unordered_map<const ir::Value*, Parts> made_of_;  // Where there are any.
  // Values that depend on reductions, with the classes that those keep.
  std::unordered_map<const ir::Value*, std::set<int>> reduced_;
  const ir::Op* elsewhere_ = nullptr;  // Reads such a value at another index along other classes.
  std::unordered_map<const ir::Value*, int> needed_;
};

}  // namespace

std::string TooLarge(const segment::GroupView& group) {
  return group.ops.size() > kOpsMax ? Cat("more than ", kOpsMax, " ops") : std::string();
}

std::optional<Structure> AnalysePointwise(const segment::GroupView& group, OpAxes& axes) {
  Structure structure;
  for (const ir::Value* value : group.outputs) {
    if (IsTensor(*value)) structure.outputs.push_back({value, -1});
  }
  // Each op may be computed at a place of its own for each output (CheckViews).
  const bool may_be_large = group.outputs.size() > kViewsMax || group.outputs.size() * group.ops.size() > kElementsMax;
  if (may_be_large || structure.outputs.size() > kOutputsMax) return std::nullopt;
  const auto is_pointwise = [&axes](const ir::Op* op) { return axes.Of(*op).is_pointwise; };
  if (!std::ranges::all_of(group.ops, is_pointwise)) return std::nullopt;
  structure.schedule = structure.outputs.empty() ? "scalar" : "pointwise";
  return structure;
}

Structure Analyse(const segment::GroupView& group, const AxisClasses& classes) {
  return Analysis(group, classes).Run(false);
}

Structure AnalyseInOrder(const segment::GroupView& group, const AxisClasses& classes) {
  return Analysis(group, classes).Run(true);
}

std::vector<int> DomainInMemory(const segment::GroupView& group, const AxisClasses& classes,
                                const Reduction& reduction) {
  std::vector<int> domain = Varying(classes.Of(reduction.op->operands[0]));
  std::map<std::vector<int>, int> votes;
  for (const ir::Value* input : group.inputs) {
    if (!IsTensor(*input)) continue;
    std::vector<int> axes = Varying(classes.Of(input));
    if (!SameSet(axes, domain)) continue;
    const int count = ++votes[axes];
    if (count > votes[domain]) domain = std::move(axes);
  }
  return domain;
}

}  // namespace hir::codegen
