#include "host_ir/pool_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "csrc/base/checked.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

void Touch(PoolLife& life, bool first, const Point& point, const Clock& ahead) {
  const auto stream = static_cast<size_t>(point.stream);
  if (life.ends.size() <= stream) life.ends.resize(stream + 1, 0);
  life.ends[stream] = std::max(life.ends[stream], point.position);
  const auto num_streams = static_cast<size_t>(ahead.empty() ? 0 : ahead.back().stream + 1);
  if (first) life.after.assign(num_streams, std::numeric_limits<int>::max());
  life.after.resize(std::min(life.after.size(), num_streams));
  for (size_t i = 0; i < life.after.size(); ++i) {
    life.after[i] = std::min(life.after[i], KnownUpTo(ahead, static_cast<int>(i)));
  }
}

// Whether all of a is over before b begins.
bool Precedes(const PoolLife& a, const PoolLife& b) {
  for (size_t i = 0; i < a.ends.size(); ++i) {
    if (a.ends[i] > (i < b.after.size() ? b.after[i] : 0)) return false;
  }
  return true;
}

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

bool PoolPlan::MayShare(size_t a, size_t b) const {
  return Precedes(lives_[a], lives_[b]) || Precedes(lives_[b], lives_[a]);
}

Result<int64_t> PoolPlan::Place(std::span<const int64_t> bytes, int64_t alignment, std::span<int64_t> offsets) const {
  std::vector<size_t> by_size(bytes.size());  // The largest first: small ones fit into what is left.
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (size_t i : by_size) {
    std::vector<size_t> neighbours;
    for (size_t other : placed) {
      if (!MayShare(i, other)) neighbours.push_back(other);
    }
    std::sort(neighbours.begin(), neighbours.end(), [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    int64_t at = 0;
    for (size_t other : neighbours) {
      if (offsets[other] - at >= bytes[i]) break;
      const int64_t end = offsets[other] + bytes[other];
      at = std::max(at, base::CeilDiv(end, alignment) * alignment);
    }
    const auto end = base::CheckedAdd(at, bytes[i]);
    if (!end || *end > INT64_MAX / 4) return InvalidArgument("the program's buffers do not fit 64 bits");
    offsets[i] = at;
    total = std::max(total, *end);
    placed.push_back(i);
  }
  return total;
}

}  // namespace hir::host
