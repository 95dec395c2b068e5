// Goal and method: see concrete_order.h.
#include "tests/host_ir/pipeline/concrete_order.h"

#include <algorithm>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/ir/expr.h"
#include "host_ir/host_ops.h"
#include "host_ir/unroll.h"

namespace hir::host {

using base::Cat;

namespace {

constexpr size_t kEventsMax = 20000;
constexpr size_t kRunsMax = 1 << 20;  // Of elements side by side, of one access.

struct Dim {
  int64_t extent = 0;
  int64_t stride = 0;
  bool once = false;  // A broadcast axis, of which one element is stored.
};

struct View {
  int base = 0;
  int64_t offset = 0;
  std::vector<Dim> dims;
};

Status CannotBe(const ir::Op& op, std::string_view what) { return InvalidArgument(Cat(op.info->name, ": ", what)); }

}  // namespace

class ConcreteWalk {
 public:
  ConcreteWalk(const ir::Graph& graph, int64_t rank, const ConcreteSizes& sizes)
      : graph_(graph), rank_(rank), sizes_(sizes) {}

  Status Run() {
    for (const ir::Guard& guard : graph_.guards) {
      HIR_ASSIGN(const int64_t left, ValueOf(guard.left));
      HIR_ASSIGN(const int64_t right, ValueOf(guard.right));
      const bool holds = guard.kind == ir::Guard::Kind::kEqual ? left == right : left <= right;
      if (!holds) return InvalidArgument(Cat("a guard does not hold: ", guard.reason));
    }
    for (const ir::Value* param : graph_.params) {
      if (param->type->kind == ir::TypeKind::kTensor) HIR_TRY(AddWhole(*param));
    }
    return RunBlock(graph_.body);
  }

  ConcreteRun run;

 private:
  Result<int64_t> ValueOf(const ir::Expr* expr) {
    return ir::Evaluate(expr, [this](std::string_view symbol) -> std::optional<int64_t> {
      if (const auto index = indices_.find(symbol); index != indices_.end()) return index->second;
      if (symbol.starts_with('%')) return std::nullopt;
      if (const auto of_rank = RankSymbol(graph_, symbol, rank_)) return of_rank;
      run.has_sizes_ = true;
      const auto known = sizes_.known.find(symbol);
      return known != sizes_.known.end() ? known->second : sizes_.others;
    });
  }

  // The axes of `type` as stored, row-major.
  Result<std::vector<Dim>> DimsOf(const ir::Type& type) {
    std::vector<Dim> dims;
    for (const ir::Axis& axis : type.axes) {
      if (axis.kind == ir::AxisKind::kReduction) continue;
      const bool once = axis.kind == ir::AxisKind::kBroadcast;
      HIR_ASSIGN(const int64_t extent, ValueOf(axis.extent));
      dims.push_back({once ? 1 : extent, 0, once});
    }
    int64_t stride = 1;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      if (dim->extent < 0) return InvalidArgument("an extent below 0");
      dim->stride = stride;
      stride *= dim->extent;
    }
    return dims;
  }

  Status AddWhole(const ir::Value& value) {
    HIR_ASSIGN(std::vector<Dim> dims, DimsOf(*value.type));
    views_[&value] = {value.id, 0, std::move(dims)};
    return {};
  }

  Status RunBlock(const ir::Block& block) {
    for (const ir::Op* op = block.first; op != nullptr; op = op->next) HIR_TRY(RunOp(*op));
    return {};
  }

  Status RunOp(const ir::Op& op) {
    const std::string_view name = op.info->name;
    if (name == "event" || name == "dealloc") return {};
    if (name == "alloc") return AddWhole(*op.results[0]);
    if (name == "if") {
      HIR_ASSIGN(const int64_t cond, ValueOf(op.ExprOf("cond")));
      return cond == 0 ? Status() : RunBlock(*op.blocks[0]);
    }
    if (name == "for") return RunFor(op);
    if (name == "group") {
      group_ = ++num_groups_;
      const Status status = RunBlock(*op.blocks[0]);
      group_ = -1;
      return status;
    }
    if (name == "view_slice" || name == "view_select") return Take(op);
    if (name == "view_reshape") return Reshape(op);
    if (name == "view_permute") {
      View view = views_.at(op.operands[0]);
      const std::vector<Dim> dims = view.dims;
      for (size_t i = 0; i < dims.size(); ++i) view.dims[i] = dims[static_cast<size_t>(op.Ints("dims")[i])];
      views_[op.results[0]] = std::move(view);
      return {};
    }
    if (!IsQueued(op)) return Unimplemented(Cat(name, " is not followed"));
    return AddEvent(op);
  }

  Status RunFor(const ir::Op& op) {
    HIR_ASSIGN(const int64_t begin, ValueOf(op.ExprOf("begin")));
    HIR_ASSIGN(const int64_t end, ValueOf(op.ExprOf("end")));
    HIR_ASSIGN(const int64_t step, ValueOf(op.ExprOf("step")));
    const std::string index = Cat("%", op.blocks[0]->args[0]->name);
    for (int64_t i = begin; i < end; i += step) {
      indices_[index] = i;
      HIR_TRY(RunBlock(*op.blocks[0]));
    }
    indices_.erase(index);
    return {};
  }

  // A slice, or one index without its axis.
  Status Take(const ir::Op& op) {
    View view = views_.at(op.operands[0]);
    const bool selects = op.info->name == std::string_view("view_select");
    const auto at = view.dims.begin() + op.Int("axis");
    HIR_ASSIGN(const int64_t from, ValueOf(op.ExprOf(selects ? "index" : "from")));
    int64_t to = from + 1;
    if (!selects) {
      HIR_ASSIGN(to, ValueOf(op.ExprOf("to")));
    }
    if (!at->once) {
      if (from < 0 || to < from || to > at->extent) return CannotBe(op, "outside");
      view.offset += from * at->stride;
      at->extent = to - from;
    }
    if (selects) view.dims.erase(at);
    views_[op.results[0]] = std::move(view);
    return {};
  }

  // Each axis, or several that lie without gaps, become one or several.
  Status Reshape(const ir::Op& op) {
    const View& from = views_.at(op.operands[0]);
    HIR_ASSIGN(std::vector<Dim> dims, DimsOf(*op.results[0]->type));
    int64_t had = 1, has = 1;
    for (const Dim& dim : from.dims) had *= dim.extent;
    for (const Dim& dim : dims) has *= dim.extent;
    if (had != has) return CannotBe(op, "of another number of elements");
    size_t in = 0, out = 0;
    while (has > 0 && out < dims.size()) {
      if (dims[out].extent == 1) {
        ++out;
        continue;
      }
      while (from.dims[in].extent == 1) ++in;
      size_t in_end = in + 1, out_end = out + 1;
      int64_t taken = from.dims[in].extent, made = dims[out].extent;
      while (taken != made) {
        if (taken < made) {
          const Dim& next = from.dims[in_end++];
          if (next.extent == 1) continue;
          taken *= next.extent;
        } else {
          made *= dims[out_end++].extent;
        }
      }
      HIR_TRY(CheckWithoutGaps(op, from, in, in_end));
      int64_t stride = 0;
      for (size_t i = in; i < in_end; ++i) {
        if (from.dims[i].extent != 1) stride = from.dims[i].stride;
      }
      for (size_t i = out_end; i-- > out;) {
        dims[i].stride = stride;
        stride *= dims[i].extent;
      }
      in = in_end, out = out_end;
    }
    views_[op.results[0]] = {from.base, from.offset, std::move(dims)};
    return {};
  }

  static Status CheckWithoutGaps(const ir::Op& op, const View& view, size_t from, size_t to) {
    const Dim* inner = nullptr;
    for (size_t i = to; i-- > from;) {
      const Dim& dim = view.dims[i];
      if (dim.extent == 1) continue;
      if (inner != nullptr && dim.stride != inner->stride * inner->extent) return CannotBe(op, "not contiguous");
      inner = &dim;
    }
    return {};
  }

  Status AddEvent(const ir::Op& op) {
    if (run.events_.size() == kEventsMax) return CannotBe(op, "too many iterations to follow");
    ConcreteRun::Event event = {.op = &op, .group = group_};
    HIR_ASSIGN(event.stream, ValueOf(op.ExprOf("stream")));
    const HostOp code = CodeOf(op);
    if (code == HostOp::kRecord || code == HostOp::kWait) {
      HIR_ASSIGN(event.index, ValueOf(op.ExprOf("index")));
    }
    const bool communicates = code == HostOp::kCommunication;
    const Part part = communicates ? PartOf(op, rank_) : Part{true, true};
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Access access = AccessOf(op, static_cast<int>(i));
      const bool touches = Reads(access) || Writes(access);
      if (!touches || (communicates && !(i == 0 ? part.sends : part.receives))) continue;
      const View& view = views_.at(op.operands[i]);
      HIR_ASSIGN(ConcreteRun::Elements elements, ElementsOf(op, view));
      event.touches.push_back({view.base, Writes(access), std::move(elements)});
    }
    run.events_.push_back(std::move(event));
    return {};
  }

  static Result<ConcreteRun::Elements> ElementsOf(const ir::Op& op, const View& view) {
    std::vector<Dim> dims;
    for (const Dim& dim : view.dims) {
      if (dim.extent == 0) return ConcreteRun::Elements();
      if (dim.extent != 1) dims.push_back(dim);
    }
    std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
    int64_t length = 1;
    for (; !dims.empty() && dims.back().stride == length; dims.pop_back()) length *= dims.back().extent;
    std::vector<int64_t> starts = {view.offset};
    for (const Dim& dim : dims) {
      if (starts.size() * static_cast<size_t>(dim.extent) > kRunsMax)
        return CannotBe(op, "too many elements to follow");
      std::vector<int64_t> all;
      for (const int64_t start : starts) {
        for (int64_t i = 0; i < dim.extent; ++i) all.push_back(start + i * dim.stride);
      }
      starts = std::move(all);
    }
    std::sort(starts.begin(), starts.end());
    ConcreteRun::Elements elements;
    for (const int64_t start : starts) elements.emplace_back(start, start + length);
    return elements;
  }

  const ir::Graph& graph_;
  const int64_t rank_;
  const ConcreteSizes& sizes_;
  std::map<std::string, int64_t, std::less<>> indices_;
  std::unordered_map<const ir::Value*, View> views_;
  int group_ = -1;
  int num_groups_ = 0;
};

Result<ConcreteRun> ConcreteRun::Make(const ir::Graph& graph, int64_t rank, const ConcreteSizes& sizes) {
  ConcreteWalk walk(graph, rank, sizes);
  HIR_TRY(walk.Run());
  walk.run.FindConflicts();
  return std::move(walk.run);
}

bool ConcreteRun::Share(const Elements& a, const Elements& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].first < b[j].second && b[j].first < a[i].second) return true;
    ++(a[i].second <= b[j].second ? i : j);
  }
  return false;
}

void ConcreteRun::FindConflicts() {
  struct Past {
    size_t event;
    const Touch* touch;
  };
  std::map<int, std::vector<Past>> pasts;  // By base.
  for (size_t i = 0; i < events_.size(); ++i) {
    for (const Touch& touch : events_[i].touches) {
      for (const Past& past : pasts[touch.base]) {
        if (past.event == i || (!touch.writes && !past.touch->writes)) continue;
        if (Share(past.touch->elements, touch.elements)) conflicts_.emplace_back(past.event, i);
      }
    }
    for (const Touch& touch : events_[i].touches) pasts[touch.base].push_back({i, &touch});
  }
}

std::optional<std::string> ConcreteRun::FindRace(const DroppedOps& dropped) const {
  using Clock = std::vector<size_t>;  // One a stream: so much of its work is over.
  const auto join = [](Clock& into, const Clock& from) {
    for (size_t s = 0; s < from.size(); ++s) into[s] = std::max(into[s], from[s]);
  };
  int64_t last = 0;
  for (const Event& event : events_) last = std::max(last, event.stream);
  const auto num_streams = static_cast<size_t>(last) + 1;
  std::vector<Clock> streams(num_streams, Clock(num_streams));
  std::map<std::pair<int, int64_t>, Clock> recorded;
  std::vector<Clock> before(events_.size());     // What each piece of work starts after.
  std::vector<size_t> position(events_.size());  // On its stream.
  std::vector<size_t> queued(num_streams);
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    const auto stream = static_cast<size_t>(event.stream);
    const HostOp code = CodeOf(*event.op);
    if (code == HostOp::kRecord || code == HostOp::kWait) {
      if (dropped.contains(event.op)) continue;
      const std::pair name(event.op->operands[0]->id, event.index);
      if (code == HostOp::kRecord) {
        recorded[name] = streams[stream];
      } else if (const auto found = recorded.find(name); found != recorded.end()) {
        join(streams[stream], found->second);
      }
      continue;
    }
    position[i] = ++queued[stream];
    before[i] = streams[stream];
    if (event.group < 0) {
      streams[stream][stream] = queued[stream];
    } else if (i + 1 == events_.size() || events_[i + 1].group != event.group) {
      for (size_t j = i + 1; j-- > 0 && events_[j].group == event.group;) {  // All started together.
        const auto of_member = static_cast<size_t>(events_[j].stream);
        streams[of_member][of_member] = queued[of_member];
      }
    }
  }
  for (const auto& [first, second] : conflicts_) {
    const Event &a = events_[first], &b = events_[second];
    if (before[second][static_cast<size_t>(a.stream)] >= position[first]) continue;
    return Cat("the ", b.op->info->name, " of line ", b.op->line, " on stream ", b.stream, " is not after the ",
               a.op->info->name, " of line ", a.op->line, " on stream ", a.stream, " (events ", first, " and ", second,
               ")");
  }
  return std::nullopt;
}

}  // namespace hir::host
