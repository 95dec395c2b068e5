// Orders the streams that the ops have: a record after an op, a
// wait before another, where the second touches bytes that the first touches, one of them writes,
// and nothing orders them yet.
//
// Before: launch(%x, %c) stream=0                                  launch(%c, %y) stream=1
// After:  launch(%x, %c) stream=0   record(e[0]) 0   wait(e[0]) 1   launch(%c, %y) stream=1
//
// Streams may change from iteration to iteration. What such a stream has done is recorded in the element of its number:
//
// Before: for %i { launch(%x_i, %y_i) stream=%i mod 3 + 2 }   launch(%y, %z) stream=0
// After:  for %i { launch(%x_i, %y_i) stream=%i mod 3 + 2   record(e[%i mod 3 + 2]) %i mod 3 + 2 }
//         wait(e[2]) 0   wait(e[3]) 0   wait(e[4]) 0   launch(%y, %z) stream=0
//
// Right because every conflict of every rank's run is looked at, in program order, loops unrolled:
// what is not ordered when the later op comes gets its edge there and then. Edges only add order,
// so those of one rank, or of a later iteration, spoil nothing for the others. As late as possible:
// an op waits for the latest conflicting op of each stream, which covers the earlier ones.
#include "host_ir/passes/order_streams.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"
#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

// Events cannot stand inside a group, so they go around it.
ir::Op* AnchorOf(ir::Op* op) {
  ir::Op* around = op->parent->owner;
  return around != nullptr && CodeOf(*around) == HostOp::kGroup ? around : op;
}

// A place between ops, on one stream: after `op` for a record, before it for a wait.
struct End {
  ir::Op* op = nullptr;              // An anchor.
  const ir::Expr* stream = nullptr;  // As the graph has it.
  bool operator==(const End&) const = default;
  auto operator<=>(const End&) const = default;  // For lookup alone.
};

End EndOf(ir::Op* op) { return {AnchorOf(op), op->ExprOf("stream")}; }

// A point to wait for: the latest record at `end` of one element of an event array. Those with a constant index share
// one array; others have one each.
struct Mark {
  End end;
  const ir::Expr* index = nullptr;  // As the graph has it.
};

struct Edge {
  int mark = 0;                     // Into Streams::marks_.
  const ir::Expr* index = nullptr;  // The element that is waited for; as the graph has it.
  bool operator==(const Edge&) const = default;
};

bool InScope(const ir::Expr* expr, const Symbols& symbols) {
  std::vector<std::string_view> named;
  ir::CollectSymbols(expr, named);
  return std::all_of(named.begin(), named.end(), [&symbols](std::string_view symbol) {
    return !symbol.starts_with('%') || symbols.contains(symbol);
  });
}

class Streams {
 public:
  explicit Streams(ir::Graph& graph) : graph_(graph) {
    ir::ForEachOp(graph.body, [this](ir::Op* op) {
      place_.emplace(op, place_.size());
      if (!IsQueued(*op) || op->ExprOf("stream")->IsConst()) return;
      const auto at = std::find(rotating_.begin(), rotating_.end(), op->ExprOf("stream"));
      if (at == rotating_.end()) rotating_.push_back(op->ExprOf("stream"));
    });
  }

  Status LookAt(const RankClass& ranks) {
    ir::ExprPool pool;
    HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph_, ranks, pool));
    Order order;                             // Its events are marks.
    std::map<int, std::vector<Past>> pasts;  // By the id of the base.
    for (const Step& step : steps) {
      if (order.Follow(step) || step.stream == nullptr) continue;
      const End end = EndOf(step.op);
      for (const Edge& edge : edges_[end]) Wait(edge, step, order, pool);
      HIR_TRY(Connect(step, order, pasts, pool));
      const Point point = order.Queue(step.stream);
      for (int mark : MarksOf(end, *step.symbols)) {
        order.Record(mark, ValueOf(marks_[At(mark)].index, step, pool), step.stream);
      }
      for (const AccessedRegion& access : step.accesses) {
        Remember({step.op, step.stream, point, step.iteration, step.runs, step.symbols, access},
                 pasts[access.region.base->id]);
      }
    }
    return {};
  }

  void Insert() {
    std::vector<int> used;  // Marks, in program order.
    std::vector<std::pair<End, Edge>> edges;
    for (const auto& [to, list] : edges_) {
      for (const Edge& edge : list) {
        edges.emplace_back(to, edge);
        used.push_back(edge.mark);
      }
    }
    std::sort(used.begin(), used.end(), [this](int a, int b) { return Compare(marks_[At(a)], marks_[At(b)]) < 0; });
    used.erase(std::unique(used.begin(), used.end()), used.end());
    const std::vector<Element> elements = MakeEvents(used);
    for (auto mark = used.rbegin(); mark != used.rend(); ++mark) {  // The last first: they go right behind the op.
      const End& from = marks_[At(*mark)].end;
      ir::Builder(graph_, *from.op->parent, from.op->next)
          .Make("record", {elements[At(*mark)].event}, {{"index", elements[At(*mark)].index}, {"stream", from.stream}});
    }
    std::sort(edges.begin(), edges.end(), [this](const auto& a, const auto& b) {
      const int from = Compare(marks_[At(a.second.mark)], marks_[At(b.second.mark)]);
      if (from != 0) return from < 0;
      const int to = Compare(a.first, b.first);
      return to != 0 ? to < 0 : ir::Compare(a.second.index, b.second.index) < 0;
    });
    for (const auto& [to, edge] : edges) {
      const bool shared = IsShared(marks_[At(edge.mark)]);
      ir::Builder(graph_, *to.op->parent, to.op)
          .Make("wait", {elements[At(edge.mark)].event},
                {{"index", shared ? elements[At(edge.mark)].index : edge.index}, {"stream", to.stream}});
    }
  }

 private:
  struct Past {
    ir::Op* op = nullptr;
    const ir::Expr* stream = nullptr;
    Point point;
    int iteration = 0;
    std::vector<int> runs;
    std::shared_ptr<const Symbols> symbols;
    AccessedRegion access;
  };
  // Of an event array.
  struct Element {
    ir::Value* event = nullptr;
    const ir::Expr* index = nullptr;
  };

  static size_t At(int mark) { return static_cast<size_t>(mark); }
  static bool IsShared(const Mark& mark) { return mark.index->IsConst(); }
  static const ir::Expr* ValueOf(const ir::Expr* expr, const Step& step, ir::ExprPool& pool) {
    return pool.Substitute(expr, *step.symbols);
  }
  static void Wait(const Edge& edge, const Step& step, Order& order, ir::ExprPool& pool) {
    order.Wait(edge.mark, ValueOf(edge.index, step, pool), step.stream);
  }

  // What is recorded behind `end`, should something wait for it. On a stream that changes with the iteration, element k
  // is for stream k: its latest record is behind all that the stream has done. On one stream the latest record is
  // behind all; or, for who waits on streams that change, element k is for the iterations in which it waits on stream
  // k: in its turn to use a slot of a buffer it then waits for the slot's last use, and not for the last use of any.
  const std::vector<int>& MarksOf(const End& end, const Symbols& symbols) {
    const auto [found, added] = marks_of_.try_emplace(end);
    std::vector<int>& marks = found->second;
    if (!added) return marks;
    const auto add = [&](const ir::Expr* index) {
      marks.push_back(static_cast<int>(marks_.size()));
      marks_.push_back({end, index});
    };
    if (!end.stream->IsConst()) {
      add(end.stream);
      return marks;
    }
    add(graph_.exprs().Const(0));
    for (const ir::Expr* index : rotating_) {
      if (InScope(index, symbols)) add(index);
    }
    return marks;
  }

  Status Connect(const Step& step, Order& order, const std::map<int, std::vector<Past>>& pasts, ir::ExprPool& pool) {
    std::vector<const Past*> conflicts;
    for (const AccessedRegion& access : step.accesses) {
      const auto of_base = pasts.find(access.region.base->id);
      if (of_base == pasts.end()) continue;
      for (const Past& past : of_base->second) {
        if (!Writes(access.access) && !Writes(past.access.access)) continue;
        if (order.Before(past.point, step.stream)) continue;
        const Region& before = SeenFrom(step.runs, past.runs, past.access);
        if (!ProveDisjoint(pool, before, SeenFrom(past.runs, step.runs, access))) conflicts.push_back(&past);
      }
    }
    // The latest first: it is likely to be behind the others.
    std::stable_sort(conflicts.begin(), conflicts.end(),
                     [](const Past* a, const Past* b) { return a->point.position > b->point.position; });
    const End to = EndOf(step.op);
    for (const Past* past : conflicts) {
      if (order.Before(past->point, step.stream)) continue;
      const End from = EndOf(past->op);
      if (from.op == to.op && from.op != step.op)
        continue;  // In one group: no event can help, and the verifier says so.
      const Edge edge = EdgeFrom(*past, step, order, pool);
      Wait(edge, step, order, pool);
      if (!order.Before(past->point, step.stream)) {
        return Unimplemented(base::Cat("the ", past->op->info->name, " of line ", past->op->line, " is on stream ",
                                       ToString(past->stream),
                                       ", and which one that is is not known here: let its "
                                       "loop begin at a constant, or give the program events"));
      }
      std::vector<Edge>& edges = edges_[to];
      if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
    }
    return {};
  }

  // What orders `step` after `past`, and after as little else as there is.
  Edge EdgeFrom(const Past& past, const Step& step, Order& order, ir::ExprPool& pool) {
    const std::vector<int>& marks = marks_of_.at(EndOf(past.op));
    const Edge first = {marks[0], ElementOf(marks[0], past, step, pool)};
    if (!IsShared(marks_[At(first.mark)])) return first;
    const Clock latest = *order.Recorded(first.mark, pool.Const(0));
    for (size_t i = 1; i < marks.size(); ++i) {
      if (!InScope(marks_[At(marks[i])].index, *step.symbols)) continue;
      const Edge edge = {marks[i], ElementOf(marks[i], past, step, pool)};
      const Clock* const recorded = order.Recorded(edge.mark, ValueOf(edge.index, step, pool));
      if (recorded == nullptr || !Holds(*recorded, past.point)) continue;
      Clock known = order.Ahead(step.stream);
      Join(known, *recorded);
      if (!AtMost(latest, known)) return edge;
    }
    return first;
  }

  // The element of the mark that `past` recorded: from within the same loops as it goes with their indices, else the
  // constant.
  const ir::Expr* ElementOf(int mark, const Past& past, const Step& step, ir::ExprPool& pool) {
    const ir::Expr* const index = marks_[At(mark)].index;
    const ir::Expr* const wanted = pool.Substitute(index, *past.symbols);
    if (InScope(index, *step.symbols)) {
      const ir::Expr* const here = ValueOf(index, step, pool);
      if (here == wanted) return index;
      if (here->IsConst() && wanted->IsConst()) {
        const ir::Expr* const shifted = Shifted(index, wanted->value - here->value);
        if (ValueOf(shifted, step, pool) == wanted) return shifted;
      }
    }
    return wanted->IsConst() ? graph_.exprs().Const(wanted->value) : index;
  }

  // `e mod c`, perhaps plus something, with an e that is larger by `by`. Other expressions as they are.
  const ir::Expr* Shifted(const ir::Expr* index, int64_t by) {
    ir::ExprPool& pool = graph_.exprs();
    const ir::Expr* const turn = index->kind == ir::ExprKind::kAdd ? index->args[0] : index;
    if (turn->kind != ir::ExprKind::kMod) return index;
    const ir::Expr* const other = pool.Mod(pool.Add(turn->args[0], pool.Const(by)), turn->args[1]);
    return pool.Add(pool.Sub(index, turn), other);
  }

  // By now everything that conflicts with a write is before it: who is after it is after those, if it is there: not
  // when the loop ends before.
  static void Remember(Past past, std::vector<Past>& pasts) {
    if (Writes(past.access.access) && AnchorOf(past.op) == past.op) {
      std::erase_if(pasts, [&](const Past& p) {
        const bool there = past.iteration == 0 || past.iteration == p.iteration;
        return there && Replaces(past.access, p.access);
      });
    }
    pasts.push_back(std::move(past));
  }

  // One a mark, filled in for those that are used.
  std::vector<Element> MakeEvents(const std::vector<int>& used) {
    std::vector<Element> elements(marks_.size());
    ir::Builder at_start(graph_, graph_.body, graph_.body.first);
    const auto make = [&](int64_t count) {
      const std::string_view names[] = {"sync"};
      const ir::Type* const types[] = {graph_.Event(count)};
      const Result<ir::Op*> made = at_start.Add({.name = "event", .result_names = names, .declared = types});
      HIR_CHECK(made.ok());
      return (*made)->results[0];
    };
    const auto num_shared =
        std::count_if(used.begin(), used.end(), [this](int mark) { return IsShared(marks_[At(mark)]); });
    ir::Value* const shared = num_shared > 0 ? make(num_shared) : nullptr;
    int64_t next = 0;
    for (int mark : used) {
      const ir::Expr* const index = marks_[At(mark)].index;
      elements[At(mark)] = IsShared(marks_[At(mark)]) ? Element{shared, graph_.exprs().Const(next++)}
                                                      : Element{make(StreamsEnd(index).value_or(kStreamsMax)), index};
    }
    return elements;
  }

  // In program order, then by stream.
  int Compare(const End& a, const End& b) const {
    const size_t x = place_.at(a.op), y = place_.at(b.op);
    return x != y ? (x < y ? -1 : 1) : ir::Compare(a.stream, b.stream);
  }
  int Compare(const Mark& a, const Mark& b) const {
    const int end = Compare(a.end, b.end);
    return end != 0 ? end : ir::Compare(a.index, b.index);
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Op*, size_t> place_;  // In program order.
  std::vector<const ir::Expr*> rotating_;            // The streams of ops that are no constants.
  std::vector<Mark> marks_;
  std::map<End, std::vector<int>> marks_of_;
  std::map<End, std::vector<Edge>> edges_;  // By their later end; sorted before use.
};

}  // namespace

Status OrderStreams(ir::Graph& graph) {
  Streams streams(graph);
  for (const RankClass& ranks : RankClasses(graph)) HIR_TRY(streams.LookAt(ranks));
  streams.Insert();
  return {};
}

}  // namespace hir::host
