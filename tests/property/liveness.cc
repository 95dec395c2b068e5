#include "tests/property/liveness.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/device/device.h"
#include "host_ir/pool_plan.h"
#include "host_ir/unroll.h"

namespace hir::testing {
namespace {

using host::HostOp;
using host::Step;
using host::Turn;
using Positions = std::vector<int>;  // By stream, as streams appear: up to which work counts.

void Unite(Positions& into, const Positions& from) {
  into.resize(std::max(into.size(), from.size()), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void Intersect(Positions& into, const Positions& from) {
  into.resize(std::min(into.size(), from.size()));
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::min(into[i], from[i]);
}

constexpr size_t kCourses = 256;

bool IsWork(const Step& step) {
  const HostOp code = host::CodeOf(*step.op);
  return step.stream != nullptr && step.turn == Turn::kNone && code != HostOp::kRecord && code != HostOp::kWait;
}

// An alloc in one course: where the work on it ends, and what is over before any of it.
struct Part {
  Positions work, over;
};

// One way in which the steps of a rank may go.
class Course {
 public:
  // `ends`: whether a loop is over at a turn.
  Course(const std::vector<Step>& steps, const std::function<bool(const Step&)>& ends) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool turn = steps[i].turn == Turn::kBegins || steps[i].turn == Turn::kMayEnd;
      if (turn && ends(steps[i])) {
        i = EndOf(steps, i);
      } else {
        Take(steps[i]);
      }
    }
  }

  // Whether all work on `a` is over before any on `b` begins; where there is none of one of them, too.
  bool Precedes(const ir::Op* a, const ir::Op* b) const {
    const auto earlier = parts_.find(a), later = parts_.find(b);
    if (earlier == parts_.end() || later == parts_.end()) return true;
    const Positions &work = earlier->second.work, &over = later->second.over;
    for (size_t i = 0; i < work.size(); ++i) {
      if (work[i] > (i < over.size() ? over[i] : 0)) return false;
    }
    return true;
  }

 private:
  using Event = std::pair<const ir::Value*, const ir::Expr*>;

  static size_t EndOf(const std::vector<Step>& steps, size_t turn) {
    int depth = steps[turn].turn == Turn::kBegins ? 0 : 1;
    for (size_t i = turn;; ++i) {
      if (steps[i].turn == Turn::kBegins) ++depth;
      if (steps[i].turn == Turn::kEnds && --depth == 0) return i;
    }
  }

  void Take(const Step& step) {
    const HostOp code = host::CodeOf(*step.op);
    if (code == HostOp::kRecord) {
      events_.insert_or_assign(EventOf(step), Known(step.stream));
    } else if (code == HostOp::kWait) {
      const auto event = events_.find(EventOf(step));
      if (event != events_.end()) Unite(Known(step.stream), event->second);  // Else of an iteration that was not made.
    } else if (IsWork(step)) {
      Queue(step);
    }
  }

  void Queue(const Step& step) {
    if (step.group < 0 || step.group != group_) before_group_.clear();
    group_ = step.group;
    Positions& known = Known(step.stream);
    const Positions before = group_ < 0 ? known : before_group_.try_emplace(step.stream, known).first->second;
    const size_t stream = ids_.try_emplace(step.stream, ids_.size()).first->second;
    Positions here(stream + 1, 0);
    here[stream] = ++queued_[step.stream];
    Unite(known, here);
    for (const host::AccessedRegion& access : step.accesses) {
      const auto [part, first] = parts_.try_emplace(access.region.base->def, Part{.work = {}, .over = before});
      Unite(part->second.work, here);
      Intersect(part->second.over, before);
    }
  }

  static Event EventOf(const Step& step) { return {step.op->operands[0], step.index}; }
  Positions& Known(const ir::Expr* stream) { return known_[stream]; }

  std::unordered_map<const ir::Op*, Part> parts_;  // That of null is of parameters.
  std::map<const ir::Expr*, Positions> known_;     // What is over before the next work on each.
  std::map<const ir::Expr*, size_t> ids_;
  std::map<const ir::Expr*, int> queued_;
  std::map<Event, Positions> events_;
  std::map<const ir::Expr*, Positions> before_group_;  // What no communication of the group is in.
  int group_ = -1;
};

// All iterations made; and, of each loop, none, all, or now and then as many as chance has it. More courses are
// possible: what is ordered in these may not be in all, and then the bound is too low, never too high.
std::vector<Course> CoursesOf(const std::vector<Step>& steps) {
  std::vector<Course> courses = {Course(steps, [](const Step&) { return false; })};
  if (std::none_of(steps.begin(), steps.end(), [](const Step& step) { return step.turn != Turn::kNone; })) {
    return courses;
  }
  base::Prng random(1);
  while (courses.size() < kCourses) {
    std::map<const ir::Op*, int64_t> choices;
    courses.emplace_back(steps, [&](const Step& step) {
      const int64_t choice = choices.try_emplace(step.op, random.Below(3)).first->second;
      if (choice == 2) return random.OneIn(3);
      return choice == 0 && step.turn == Turn::kBegins;
    });
  }
  return courses;
}

// An alloc in the program's order.
struct Life {
  const ir::Op* alloc = nullptr;
  int64_t first = 0, last = 0;  // Places; those of a group are one.
  int64_t bytes = 0;
};

std::unordered_map<const ir::Op*, Life> LivesOf(const std::vector<Step>& steps) {
  std::unordered_map<const ir::Op*, Life> lives;
  int64_t place = 0;
  int group = -1;
  for (const Step& step : steps) {
    if (!IsWork(step)) continue;
    if (step.group < 0 || step.group != group) ++place;
    group = step.group;
    for (const host::AccessedRegion& access : step.accesses) {
      const ir::Op* const alloc = access.region.base->def;
      if (alloc == nullptr) continue;
      lives.try_emplace(alloc, Life{.alloc = alloc, .first = place}).first->second.last = place;
    }
  }
  return lives;
}

int64_t InOrder(const std::vector<Life>& lives) {
  int64_t most = 0;
  for (const Life& at : lives) {  // It is reached where some life begins.
    int64_t sum = 0;
    for (const Life& life : lives) sum += life.first <= at.first && at.first <= life.last ? life.bytes : 0;
    most = std::max(most, sum);
  }
  return most;
}

// The most that flows from the last but one node to the last through `room`, which is used up; along shortest ways, of
// which there are few.
int64_t Flow(std::vector<std::vector<int64_t>> room) {
  const size_t sink = room.size() - 1, source = sink - 1;
  int64_t flow = 0;
  while (true) {
    std::vector<size_t> from(room.size(), room.size());
    std::queue<size_t> next({source});
    from[source] = source;
    while (!next.empty()) {
      const size_t at = next.front();
      next.pop();
      for (size_t to = 0; to < room.size(); ++to) {
        if (from[to] < room.size() || room[at][to] == 0) continue;
        from[to] = at;
        next.push(to);
      }
    }
    if (from[sink] == room.size()) return flow;
    int64_t step = std::numeric_limits<int64_t>::max();
    for (size_t at = sink; at != source; at = from[at]) step = std::min(step, room[from[at]][at]);
    for (size_t at = sink; at != source; at = from[at]) {
      room[from[at]][at] -= step;
      room[at][from[at]] += step;
    }
    flow += step;
  }
}

// [i][j]: whether i is over before j begins, in all courses.
using Before = std::vector<std::vector<bool>>;
Before OrderOf(const std::vector<Life>& lives, const std::vector<Course>& courses) {
  Before before(lives.size(), std::vector<bool>(lives.size(), false));
  for (size_t i = 0; i < lives.size(); ++i) {
    for (size_t j = 0; j < lives.size(); ++j) {
      const auto ordered = [&](const Course& course) { return course.Precedes(lives[i].alloc, lives[j].alloc); };
      before[i][j] = i != j && std::all_of(courses.begin(), courses.end(), ordered);
    }
  }
  return before;
}

// The heaviest set of which none precedes another. By Dilworth's theorem, with weights, it weighs as much as the least
// chains that cover each life as often as it has bytes: all bytes, less what flows from lives to those behind them.
int64_t SideBySide(const std::vector<Life>& lives, const Before& before) {
  const size_t n = lives.size(), source = 2 * n, sink = source + 1;
  std::vector<std::vector<int64_t>> room(sink + 1, std::vector<int64_t>(sink + 1, 0));
  int64_t all = 0;
  for (size_t i = 0; i < n; ++i) {
    all += lives[i].bytes;
    room[source][i] = room[n + i][sink] = lives[i].bytes;
    for (size_t j = 0; j < n; ++j) {
      if (before[i][j]) room[i][n + j] = INT64_MAX / 4;
    }
  }
  return all - Flow(std::move(room));
}

// What lives side by side must lie apart.
Status CheckApart(const std::vector<Life>& lives, const Before& before, const std::vector<int64_t>& bytes,
                  const std::vector<int64_t>& offsets) {
  for (size_t i = 0; i < lives.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (before[i][j] || before[j][i]) continue;
      if (offsets[i] + bytes[i] <= offsets[j] || offsets[j] + bytes[j] <= offsets[i]) continue;
      return Internal(base::Cat("%", lives[j].alloc->results[0]->name, " and %", lives[i].alloc->results[0]->name,
                                " share bytes, and neither is over before the other begins"));
    }
  }
  return {};
}

Result<int64_t> BytesOf(const ir::Graph& host, const ir::Type& type, int64_t rank, const fusion::SymbolValues& sizes) {
  int64_t bytes = DTypeBytes(type.dtype);
  for (const ir::Axis& axis : type.axes) {
    if (axis.kind != ir::AxisKind::kIteration) continue;
    HIR_ASSIGN(const int64_t extent, ir::Evaluate(axis.extent, [&](std::string_view symbol) -> std::optional<int64_t> {
                 const auto found = sizes.find(symbol);
                 return found != sizes.end() ? found->second : host::RankSymbol(host, symbol, rank);
               }));
    bytes *= extent;
  }
  return bytes;
}

int64_t Aligned(int64_t bytes) {
  return (bytes + device::kAlignmentBytes - 1) / device::kAlignmentBytes * device::kAlignmentBytes;
}

}  // namespace

Result<PoolBounds> BoundPool(const ir::Graph& host, int64_t rank, const fusion::SymbolValues& sizes) {
  ir::ExprPool pool;
  HIR_ASSIGN(const std::vector<Step> steps, host::Unroll(host, host::ClassOfOne(host, rank), pool));
  HIR_ASSIGN(const host::PoolPlan plan, host::PoolPlan::Make(host, rank));
  std::unordered_map<const ir::Op*, Life> by_alloc = LivesOf(steps);
  if (by_alloc.size() != plan.lives().size()) return Internal("the plan has not the allocs that are worked on");
  std::vector<int64_t> bytes;
  std::vector<Life> lives;
  for (const host::PoolLife& life : plan.lives()) {
    HIR_ASSIGN(bytes.emplace_back(), BytesOf(host, *life.alloc->results[0]->type, rank, sizes));
    lives.push_back(std::move(by_alloc.at(life.alloc)));
    lives.back().bytes = Aligned(bytes.back());
  }
  PoolBounds bounds;
  std::vector<int64_t> offsets(bytes.size());
  HIR_ASSIGN(const host::PoolBytes planned, plan.Place(bytes, device::kAlignmentBytes, offsets));
  bounds.peak = planned.reserved;
  bounds.in_order = InOrder(lives);
  const Before before = OrderOf(lives, CoursesOf(steps));
  HIR_TRY(CheckApart(lives, before, bytes, offsets));
  bounds.side_by_side = SideBySide(lives, before);
  return bounds;
}

Result<std::vector<PoolBounds>> BoundPools(const ir::Graph& host, int64_t num_ranks,
                                           const fusion::SymbolValues& sizes) {
  std::vector<PoolBounds> bounds;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    HIR_ASSIGN(const PoolBounds of_rank, BoundPool(host, rank, sizes));
    if (std::find(bounds.begin(), bounds.end(), of_rank) == bounds.end()) bounds.push_back(of_rank);
  }
  return bounds;
}

double RatioOf(const PoolBounds& bounds) {
  return bounds.side_by_side == 0 ? 1 : static_cast<double>(bounds.peak) / static_cast<double>(bounds.side_by_side);
}

}  // namespace hir::testing
