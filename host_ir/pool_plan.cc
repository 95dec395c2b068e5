#include "host_ir/pool_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "csrc/base/checked.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

void Touch(PoolLife& life, bool first, const Point& point, const Clock& ahead) {
  Join(life.work, {{point.stream, point.position, point.position}});
  if (first) {
    life.after = ahead;
  } else {
    Meet(life.after, ahead);
  }
}

// Whether all of a is over before b begins.
bool Precedes(const PoolLife& a, const PoolLife& b) { return AtMost(a.work, b.after); }

constexpr int kMovesMax = 16;                  // Of one order.
constexpr size_t kPairsMax = size_t{1} << 20;  // Of allocs, in all that is tried: some tens of milliseconds.

// Looks for offsets: one alloc after the other goes to the lowest bytes that are free throughout its life. No order is
// the best for all programs, and which is depends on sizes; so several are tried, and each is changed by what it
// came to: what ended highest goes first.
class Placement {
 public:
  Placement(std::span<const PoolLife> lives, std::span<const int64_t> bytes, int64_t alignment)
      : lives_(lives), bytes_(bytes), alignment_(alignment), apart_(bytes.size()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (Precedes(lives[i], lives[j]) || Precedes(lives[j], lives[i])) continue;
        apart_[i].push_back(j);
        apart_[j].push_back(i);
        ++num_apart_;
      }
    }
  }

  Result<PoolBytes> Find(std::span<int64_t> offsets) {
    std::vector<size_t> as_given(bytes_.size());
    std::iota(as_given.begin(), as_given.end(), size_t{0});
    std::vector<size_t> order = as_given;
    // The largest first: small ones fit into what is left.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes_[a] > bytes_[b]; });
    HIR_TRY(Improve(order, offsets));
    // Those beside most bytes first: where they lie leaves the others the least choice.
    std::vector<double> beside(bytes_.size(), 0);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      for (const size_t other : apart_[i]) beside[i] += static_cast<double>(bytes_[other]);
    }
    order = as_given;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return beside[a] > beside[b]; });
    HIR_TRY(Improve(order, offsets));
    HIR_TRY(Improve(as_given, offsets));
    return PoolBytes{.reserved = total_, .live = std::min(least_, total_)};  // The last need not end aligned.
  }

 private:
  // A lower bound of the pool, up to an alignment: the most bytes that live when some alloc begins. Of two that began
  // no later than a third and are not over before it, neither is over before the other begins: it would be over before
  // the third, too; where the clocks contradict that, at most what fits 64 bits. REQUIRES: all were placed once.
  int64_t Least() const {
    int64_t least = 0;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      int64_t sum = Aligned(bytes_[i]);
      for (const size_t other : apart_[i]) {
        if (AtMost(lives_[other].after, lives_[i].after))
          sum = base::CheckedAdd(sum, Aligned(bytes_[other])).value_or(INT64_MAX);
      }
      least = std::max(least, sum);
    }
    return least;
  }

  bool MayImprove() const { return total_ < 0 || (total_ > least_ && num_seen_ + num_apart_ <= kPairsMax); }

  Status Improve(std::vector<size_t> order, std::span<int64_t> offsets) {
    if (!MayImprove()) return {};
    HIR_TRY(Try(order, offsets));
    if (least_ < 0) least_ = Least();
    for (int i = 0; i < kMovesMax && MayImprove(); ++i) {
      const auto end = [this](size_t a) { return offsets_[a] + bytes_[a]; };
      const auto highest =
          std::max_element(order.begin(), order.end(), [&end](size_t a, size_t b) { return end(a) < end(b); });
      std::rotate(order.begin(), highest, highest + 1);
      HIR_TRY(Try(order, offsets));
    }
    return {};
  }

  // Places all in `order`; sets `best` where that is better than all before.
  Status Try(std::span<const size_t> order, std::span<int64_t> best) {
    offsets_.assign(bytes_.size(), -1);  // Of what has no place yet.
    int64_t total = 0;
    for (const size_t i : order) {
      HIR_ASSIGN(offsets_[i], LowestFree(i));
      total = std::max(total, offsets_[i] + bytes_[i]);
    }
    num_seen_ += num_apart_;
    if (total_ >= 0 && total >= total_) return {};
    total_ = total;
    std::copy(offsets_.begin(), offsets_.end(), best.begin());
    return {};
  }

  Result<int64_t> LowestFree(size_t i) {
    neighbours_.clear();
    for (const size_t other : apart_[i]) {
      if (offsets_[other] >= 0) neighbours_.push_back(other);
    }
    std::sort(neighbours_.begin(), neighbours_.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    int64_t at = 0;
    for (const size_t other : neighbours_) {
      if (offsets_[other] - at >= bytes_[i]) break;
      at = std::max(at, Aligned(offsets_[other] + bytes_[other]));
    }
    const auto end = base::CheckedAdd(at, bytes_[i]);
    if (!end || *end > INT64_MAX / 4) return InvalidArgument("the program's buffers do not fit 64 bits");
    return at;
  }

  int64_t Aligned(int64_t bytes) const { return base::CeilDiv(bytes, alignment_) * alignment_; }

  std::span<const PoolLife> lives_;
  std::span<const int64_t> bytes_;
  int64_t alignment_;
  std::vector<std::vector<size_t>> apart_;  // Of each the others with which it shares no bytes.
  size_t num_apart_ = 0, num_seen_ = 0;     // Pairs of them; in all that was tried.
  std::vector<int64_t> offsets_;
  std::vector<size_t> neighbours_;
  int64_t least_ = -1;  // -1: not known yet.
  int64_t total_ = -1;  // Of the best.
};

}  // namespace

Result<PoolPlan> PoolPlan::Make(const ir::Graph& program, int64_t rank) {
  ir::ExprPool pool;
  HIR_ASSIGN(const std::vector<Step> steps, Unroll(program, ClassOfOne(program, rank), pool));
  std::unordered_map<const ir::Op*, PoolLife> lives;
  Order order;
  int group = -1;
  std::map<int, Clock> before_group;  // By stream: what all of the group comes after.
  for (const Step& step : steps) {
    if (order.Follow(step) || step.stream == nullptr) continue;
    Clock ahead = order.Ahead(step.stream);
    // The communications of a group start together: none is known to be over when another begins.
    if (step.group < 0 || step.group != group) before_group.clear();
    group = step.group;
    if (step.group >= 0) ahead = before_group.emplace(order.Id(step.stream), ahead).first->second;
    const Point point = order.Queue(step.stream);
    for (const AccessedRegion& access : step.accesses) {
      const ir::Op* const alloc = access.region.base->def;
      if (alloc == nullptr) continue;
      const auto [life, first] = lives.try_emplace(alloc, PoolLife{.alloc = alloc});
      Touch(life->second, first, point, ahead);
    }
  }
  std::vector<PoolLife> used;
  ir::ForEachOp(program.body, [&](ir::Op* op) {
    const auto life = lives.find(op);
    if (life != lives.end()) used.push_back(std::move(life->second));
  });
  return PoolPlan(std::move(used));
}

PoolPlan::PoolPlan(std::vector<PoolLife> lives) : lives_(std::move(lives)) {
  for (size_t i = 0; i < lives_.size(); ++i) {
    if (lives_[i].alloc != nullptr) index_.emplace(lives_[i].alloc, i);
  }
}

Result<PoolBytes> PoolPlan::Place(std::span<const int64_t> bytes, int64_t alignment, std::span<int64_t> offsets) const {
  return Placement(lives_, bytes, alignment).Find(offsets);
}

}  // namespace hir::host
