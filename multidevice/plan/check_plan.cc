#include "multidevice/plan/check_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::plan {
namespace {

using base::Cat;
using mesh::DeviceMesh;
using mesh::ParallelType;
using mesh::PartRange;
using mesh::Range;
using mesh::Sharding;

// What a device holds: positions of axes, in the order in which they stand.
struct Part : PartRange {
  std::vector<int64_t> terms = {};  // Which partial results are in it, ascending; {0} where nothing was partial.

  bool IsEmpty() const {
    return std::ranges::any_of(valid, [](const Range& range) { return range.size() <= 0; });
  }
};

// `part` cut `ways` ways along `axis`: chunk `index`.
void Cut(PartRange& part, size_t axis, int64_t ways, int64_t index) {
  part.block[axis] = base::CeilDiv(part.block[axis], ways);
  part.begin[axis] += index * part.block[axis];
  Range& valid = part.valid[axis];
  valid.begin = std::max(valid.begin, part.begin[axis]);
  valid.end = std::max(valid.begin, std::min(valid.end, part.begin[axis] + part.block[axis]));
}

// The elements of a block of `axis` that go to, or come from, member `index` of a team of `ways` that deals them: every
// ways-th one of a block in natural order, and of a block of every ways-th element those of block `index`.
Range ShareOfTurns(const PartRange& part, size_t axis, int64_t extent, bool dealt, int64_t ways, int64_t index) {
  if (extent == 0) return {};
  const int64_t begin = part.valid[axis].begin, count = part.valid[axis].size() / ways;
  const int64_t turns = extent / ways;  // Each gives every member one element.
  const int64_t at = dealt ? begin + index * count : 0;
  const int64_t first = dealt ? at / turns + at % turns * ways : begin + index;
  return {first, first + (count - 1) * ways + 1, ways};
}

std::string Describe(const Part& part) {
  std::string text;
  for (const Range& range : part.valid)
    base::Append(text, text.empty() ? "" : " x ", "[", range.begin, ", ", range.end, ")");
  return Cat(text, " of partial results {", base::JoinInts(part.terms, ", "), "}");
}

class Checker {
 public:
  Checker(const Sharding& from, std::span<const int64_t> extents, const std::vector<bool>& stored_once)
      : extents_(extents.begin(), extents.end()), stored_once_(stored_once), at_(from) {
    stored_once_.resize(extents.size(), false);
    for (const int64_t device : from.mesh.devices()) {
      Part part = Claimed(from, device);
      int64_t term = 0;
      for (const ParallelType type : from.partial) {
        term = term * from.mesh.Size(type) + from.mesh.Coordinate(*from.mesh.PositionOf(device), type);
      }
      part.terms = {term};
      parts_.emplace(device, std::move(part));
    }
    for (const ParallelType type : from.partial) num_terms_ *= from.mesh.Size(type);
  }

  Status Take(const Step& step) {
    HIR_TRY(CheckOrders(step));
    std::map<int64_t, Part> next;
    for (const int64_t device : step.after.mesh.devices()) {
      Part want = Claimed(step.after, device);
      if (Status s = Receive(step, device, want); !s.ok())
        return s.WithContext(Cat(StepName(step.kind), " to ", step.after.ToString(), " on ", step.after.mesh.ToString(),
                                 ", device ", device));
      next.emplace(device, std::move(want));
    }
    parts_ = std::move(next);
    at_ = step.after;
    return {};
  }

  Status Finish(const Sharding& to) {
    if (at_ != to) return Internal(Cat("ends at ", at_.ToString(), ", not ", to.ToString()));
    for (const auto& [device, part] : parts_) {
      if (std::ssize(part.terms) != num_terms_) return Internal(Cat("device ", device, " ends with ", Describe(part)));
    }
    return {};
  }

 private:
  Part Claimed(const Sharding& sharding, int64_t device) const {
    Sharding split = sharding;
    for (size_t axis = 0; axis < extents_.size(); ++axis) {
      if (stored_once_[axis]) split.axes[axis] = {};
    }
    Part part;
    static_cast<PartRange&>(part) = mesh::PartRangeOf(split, extents_, device);
    return part;
  }

  bool DealsAlong(const Step& step) const { return step.kind == StepKind::kAllToAll && step.axis == step.to_axis; }

  // Positions mean the same before and after a step, but for the one axis that it reorders.
  Status CheckOrders(const Step& step) const {
    for (size_t axis = 0; axis < extents_.size(); ++axis) {
      if (at_.axes[axis].dealt == step.after.axes[axis].dealt || stored_once_[axis]) continue;
      const bool reorders = step.kind == StepKind::kReorder || DealsAlong(step);
      if (!reorders || step.axis != axis)
        return Internal(Cat(StepName(step.kind), " changes the order of axis ", axis));
    }
    return {};
  }

  Result<const Part*> Held(int64_t device) const {
    const auto found = parts_.find(device);
    if (found == parts_.end()) return Internal(Cat("device ", device, " holds nothing to send"));
    return &found->second;
  }

  // `got` becomes all of `want`.
  static Status Whole(const Part& got, Part& want) {
    want.terms = got.terms;
    return Place(got, want);
  }

  // `got` is written where it belongs in `want`, and is all that belongs there.
  static Status Place(const Part& got, const Part& want) {
    if (got.terms != want.terms) return Internal(Cat("mixes ", Describe(got), " with ", Describe(want)));
    if (got.IsEmpty() && want.IsEmpty()) return {};
    if (got.valid == want.valid && got.begin == want.begin) return {};
    return Internal(Cat("gets ", Describe(got), " where ", Describe(want), " belongs"));
  }

  // `pieces`, numbered with the last axis fastest, become `want`: each its own place, which leaves no hole.
  static Status Merge(const std::vector<Part>& pieces, const std::vector<int64_t>& chunks, Part& want) {
    want.terms = pieces[0].terms;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Part place = want;
      CutAll(place, chunks, static_cast<int64_t>(i));
      HIR_TRY(Place(pieces[i], place));
    }
    return {};
  }

  static void CutAll(Part& part, const std::vector<int64_t>& chunks, int64_t index) {
    for (size_t axis = chunks.size(); axis-- > 0;) {
      if (chunks[axis] > 1) Cut(part, axis, chunks[axis], index % chunks[axis]);
      index /= chunks[axis];
    }
  }

  static Status Reduce(const std::vector<Part>& terms, Part& want) {
    want.terms.clear();
    for (const Part& term : terms) {
      for (const int64_t number : term.terms) {
        if (std::ranges::count(want.terms, number) > 0) return Internal(Cat("adds partial result ", number, " twice"));
        want.terms.push_back(number);
      }
    }
    std::ranges::sort(want.terms);
    for (Part term : terms) {
      term.terms = want.terms;
      HIR_TRY(Place(term, want));
    }
    return {};
  }

  std::vector<int64_t> Only(size_t axis, int64_t ways) const {
    std::vector<int64_t> chunks(extents_.size(), 1);
    chunks[axis] = ways;
    return chunks;
  }

  Status Receive(const Step& step, int64_t device, Part& want) const {
    switch (step.kind) {
      case StepKind::kRelabel:
      case StepKind::kSpread: {
        HIR_ASSIGN(const Part* own, Held(device));
        return Whole(*own, want);
      }
      case StepKind::kReorder: {
        HIR_ASSIGN(const Part* own, Held(device));
        const Range all = {0, extents_[step.axis]};
        if (own->valid[step.axis] != all && !stored_once_[step.axis])
          return Internal(Cat("reorders axis ", step.axis, " of ", Describe(*own)));
        return Whole(*own, want);
      }
      case StepKind::kSlice: {
        HIR_ASSIGN(const Part* own, Held(device));
        Part part = *own;
        const int64_t position = *step.after.mesh.PositionOf(device);
        if (!stored_once_[step.axis])
          Cut(part, step.axis, step.after.mesh.Size(step.type), step.after.mesh.Coordinate(position, step.type));
        return Whole(part, want);
      }
      case StepKind::kAllreduce:
      case StepKind::kReduceScatter:
      case StepKind::kAllgather:
      case StepKind::kAllToAll: return ReceiveAlong(step, device, want);
      case StepKind::kBroadcast:
      case StepKind::kScatter:
      case StepKind::kGather:
      case StepKind::kReduce:
      case StepKind::kSendRecv:
      case StepKind::kCollectivePermute: return ReceiveBetween(step, device, want);
    }
    return Internal("no such step");
  }

  // A block of an axis from each rank's share of its turns, or the other way round.
  Status ReceiveTurns(const Step& step, int64_t device, Part& want) const {
    const DeviceMesh& mesh = step.after.mesh;
    const int64_t ways = mesh.Size(step.type), extent = extents_[step.axis];
    const bool dealt = at_.axes[step.axis].is_dealt();
    if (at_.Ways(step.axis) != ways || extent % (ways * ways) != 0 ||
        at_.axes[step.axis].dealt * step.after.axes[step.axis].dealt != ways)
      return Internal("the turns are not whole");
    const int64_t own = mesh.Coordinate(*mesh.PositionOf(device), step.type);
    int64_t number = 0;
    for (const int64_t peer : mesh.Team(device, step.type)) {
      HIR_ASSIGN(const Part* part, Held(peer));
      const Range got = ShareOfTurns(*part, step.axis, extent, dealt, ways, own);
      const Range place = ShareOfTurns(want, step.axis, extent, !dealt, ways, number);
      Part moved = *part;
      moved.begin[step.axis] = want.begin[step.axis];
      moved.valid[step.axis] = want.valid[step.axis];
      if (got != place)
        return Internal(
            Cat("gets [", got.begin, ", ", got.end, ") where [", place.begin, ", ", place.end, ") belongs"));
      HIR_TRY(number++ == 0 ? Whole(moved, want) : Place(moved, want));
    }
    return {};
  }

  Status ReceiveAlong(const Step& step, int64_t device, Part& want) const {
    const DeviceMesh& mesh = step.after.mesh;
    const int64_t ways = mesh.Size(step.type);
    const int64_t own = mesh.Coordinate(*mesh.PositionOf(device), step.type);
    if (DealsAlong(step)) return ReceiveTurns(step, device, want);
    std::vector<Part> parts;
    for (const int64_t peer : mesh.Team(device, step.type)) {
      HIR_ASSIGN(const Part* part, Held(peer));
      parts.push_back(*part);
      if (step.kind == StepKind::kReduceScatter) Cut(parts.back(), step.axis, ways, own);
      if (step.kind == StepKind::kAllToAll) Cut(parts.back(), step.to_axis, ways, own);
    }
    if (parts.size() < 2) return Internal("a communication of one rank");
    if (step.kind == StepKind::kAllreduce || step.kind == StepKind::kReduceScatter) return Reduce(parts, want);
    return Merge(parts, Only(step.axis, ways), want);
  }

  Status ReceiveBetween(const Step& step, int64_t device, Part& want) const {
    const std::optional<int64_t> position = step.to->PositionOf(device);
    if (!position) return Internal("receives nothing");
    const auto at = static_cast<size_t>(*position);
    const auto row = at / static_cast<size_t>(step.to->Size(ParallelType::kMeshX));
    if (step.kind == StepKind::kSendRecv || step.kind == StepKind::kCollectivePermute) {
      HIR_ASSIGN(const Part* part, Held(step.from->devices()[at]));
      return Whole(*part, want);
    }
    if (step.kind == StepKind::kBroadcast || step.kind == StepKind::kScatter) {
      HIR_ASSIGN(const Part* root, Held(step.from->devices()[row]));
      Part part = *root;
      if (step.kind == StepKind::kScatter) CutAll(part, step.chunks, *position % step.to->Size(ParallelType::kMeshX));
      return Whole(part, want);
    }
    std::vector<Part> parts;
    const std::vector<std::vector<int64_t>> rows = RowsOf(*step.from);
    for (const int64_t peer : rows[at]) {
      HIR_ASSIGN(const Part* part, Held(peer));
      parts.push_back(*part);
    }
    if (parts.size() < 2) return Internal("a communication of one rank");
    if (step.kind == StepKind::kReduce) return Reduce(parts, want);
    return Merge(parts, step.chunks, want);
  }

  std::vector<int64_t> extents_;
  std::vector<bool> stored_once_;
  Sharding at_;
  std::map<int64_t, Part> parts_;  // By device.
  int64_t num_terms_ = 1;
};

}  // namespace

Status CheckPlan(const Sharding& from, const Sharding& to, std::span<const int64_t> extents,
                 const std::vector<bool>& stored_once, const Plan& plan) {
  Checker checker(from, extents, stored_once);
  for (const Step& step : plan.steps) HIR_TRY(checker.Take(step));
  return checker.Finish(to);
}

}  // namespace hir::plan
