#include "host_ir/pool_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "csrc/base/checked.h"
#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

// What is known of the work on one alloc: where it ends, and what all of it comes after.
struct Life {
  Clock ends;
  Clock after;
  bool touched = false;

  void Touch(const Point& point, const Clock& ahead) {
    const auto stream = static_cast<size_t>(point.stream);
    if (ends.size() <= stream) ends.resize(stream + 1, 0);
    ends[stream] = std::max(ends[stream], point.position);
    if (!touched) after = ahead;
    after.resize(std::min(after.size(), ahead.size()));
    for (size_t i = 0; i < after.size(); ++i) after[i] = std::min(after[i], ahead[i]);
    touched = true;
  }
};

}  // namespace

Result<PoolPlan> PoolPlan::Make(const ir::Graph& program, int64_t rank) {
  ir::ExprPool pool;
  HIR_ASSIGN(const std::vector<Step> steps, Unroll(program, ClassOfOne(program, rank), pool));
  std::unordered_map<const ir::Op*, Life> lives;
  Order order;
  int group = -1;
  std::map<int, Clock> before_group;  // By stream: what all of the group comes after.
  for (const Step& step : steps) {
    const HostOp code = CodeOf(*step.op);
    if (code == HostOp::kRecord) order.Record(step.op->operands[0], step.index, step.stream);
    if (code == HostOp::kWait) order.Wait(step.op->operands[0], step.index, step.stream);
    if (code == HostOp::kHostWait) order.HostWait(step.op->operands[0], step.index);
    if (step.stream == nullptr || code == HostOp::kRecord || code == HostOp::kWait) continue;
    Clock ahead = order.Ahead(step.stream);
    // The communications of a group start together: none is known to be over when another begins.
    if (step.group < 0 || step.group != group) before_group.clear();
    group = step.group;
    if (step.group >= 0) ahead = before_group.emplace(order.Id(step.stream), ahead).first->second;
    const Point point = order.Queue(step.stream);
    for (const AccessedRegion& access : step.accesses) {
      if (access.region.base->def != nullptr) lives[access.region.base->def].Touch(point, ahead);
    }
  }
  PoolPlan plan;
  std::vector<const Life*> used;
  ir::ForEachOp(program.body, [&](ir::Op* op) {
    const auto life = lives.find(op);
    if (life == lives.end()) return;
    plan.index_.emplace(op, used.size());
    used.push_back(&life->second);
  });
  plan.apart_.assign(used.size(), std::vector<bool>(used.size(), false));
  for (size_t a = 0; a < used.size(); ++a) {
    for (size_t b = 0; b < used.size(); ++b) {
      plan.apart_[a][b] =
          !AtMost(used[a]->ends, used[b]->after) && !AtMost(used[b]->ends, used[a]->after);
    }
  }
  return plan;
}

Result<int64_t> PoolPlan::Place(std::span<const int64_t> bytes, int64_t alignment,
                                std::span<int64_t> offsets) const {
  std::vector<size_t> by_size(
      bytes.size());  // The largest first: small ones fit into what is left.
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (size_t i : by_size) {
    std::vector<size_t> neighbours;
    for (size_t other : placed) {
      if (apart_[i][other]) neighbours.push_back(other);
    }
    std::sort(neighbours.begin(), neighbours.end(),
              [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    int64_t at = 0;
    for (size_t other : neighbours) {
      if (offsets[other] - at >= bytes[i]) break;
      const int64_t end = offsets[other] + bytes[other];
      at = std::max(at, base::CeilDiv(end, alignment) * alignment);
    }
    const auto end = base::CheckedAdd(at, bytes[i]);
    if (!end || *end > INT64_MAX / 4)
      return InvalidArgument("the program's buffers do not fit 64 bits");
    offsets[i] = at;
    total = std::max(total, *end);
    placed.push_back(i);
  }
  return total;
}

}  // namespace hir::host
