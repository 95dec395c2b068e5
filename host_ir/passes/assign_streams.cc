// Moves every communication to stream 1 and orders the streams by events: a record after an op, a wait before another, where the
// second touches bytes that the first touches, one of them writes, and nothing orders them yet. A program that has
// events or a stream other than 0 is left alone.
//
// Before: launch(%x, %c) stream=0   communication(%c, %y) stream=0                       launch(%y, %z) stream=0
// After:  launch(%x, %c) stream=0   record(e[0]) 0   wait(e[0]) 1   communication stream=1   record(e[1]) 1
//         wait(e[1]) 0   launch(%y, %z) stream=0
//
// Right because every conflict of every rank's run is looked at, in program order, loops unrolled: what is not ordered
// when the later op comes gets its edge there and then. Edges only add order, so those of one rank, or of a later
// iteration, spoil nothing for the others. As late as possible: an op waits for the latest conflicting op of each
// stream, which covers the earlier ones.
#include "host_ir/passes/assign_streams.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

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

struct Edge {
  ir::Op* from = nullptr;  // Anchors.
  ir::Op* to = nullptr;
  const ir::Expr* from_stream = nullptr;  // Of the graph.
  const ir::Expr* to_stream = nullptr;
};

class Streams {
 public:
  explicit Streams(ir::Graph& graph) : graph_(graph) {
    ir::ForEachOp(graph.body, [this](ir::Op* op) { place_.emplace(op, place_.size()); });
  }

  Status LookAt(const RankClass& ranks) {
    ir::ExprPool pool;
    HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph_, ranks, pool));
    Order order;
    std::map<int, std::vector<Past>> pasts;  // By the id of the base.
    std::unordered_map<const ir::Op*, Clock> latest;
    for (const Step& step : steps) {
      if (step.stream == nullptr) continue;
      ir::Op* anchor = AnchorOf(step.op);
      for (const Edge& edge : edges_[anchor]) {
        if (const auto found = latest.find(edge.from); found != latest.end()) order.After(step.stream, found->second);
      }
      Connect(step, order, pasts, pool);
      const Point point = order.Queue(step.stream);
      latest[anchor] = order.Ahead(step.stream);
      for (const AccessedRegion& access : step.accesses) {
        Remember({step.op, point, order.Ahead(step.stream), access}, pasts[access.region.base->id]);
      }
    }
    return {};
  }

  void Insert() {
    std::vector<Edge> edges;
    for (const auto& [to, list] : edges_) edges.insert(edges.end(), list.begin(), list.end());
    if (edges.empty()) return;
    const auto earlier = [this](const Edge& a, const Edge& b) {
      return std::pair(place_.at(a.from), place_.at(a.to)) < std::pair(place_.at(b.from), place_.at(b.to));
    };
    std::sort(edges.begin(), edges.end(), earlier);
    std::vector<ir::Op*> sources;
    for (const Edge& edge : edges) {
      if (sources.empty() || sources.back() != edge.from) sources.push_back(edge.from);
    }
    const std::string_view names[] = {"sync"};
    const ir::Type* const types[] = {graph_.Event(std::ssize(sources))};
    ir::Builder at_start(graph_, graph_.body, graph_.body.first);
    const Result<ir::Op*> made = at_start.Add({.name = "event", .result_names = names, .declared = types});
    HIR_CHECK(made.ok());
    ir::Value* const event = (*made)->results[0];
    ir::Op* recorded = nullptr;
    int64_t index = -1;
    for (const Edge& edge : edges) {
      if (edge.from != recorded) {
        recorded = edge.from;
        const ir::Expr* number = graph_.exprs().Const(++index);
        ir::Builder(graph_, *recorded->parent, recorded->next)
            .Make("record", {event}, {{"index", number}, {"stream", edge.from_stream}});
      }
      ir::Builder(graph_, *edge.to->parent, edge.to)
          .Make("wait", {event}, {{"index", graph_.exprs().Const(index)}, {"stream", edge.to_stream}});
    }
  }

 private:
  struct Past {
    ir::Op* op = nullptr;
    Point point;
    Clock after;
    AccessedRegion access;
  };

  void Connect(const Step& step, Order& order, const std::map<int, std::vector<Past>>& pasts, ir::ExprPool& pool) {
    std::vector<const Past*> conflicts;
    for (const AccessedRegion& access : step.accesses) {
      const auto of_base = pasts.find(access.region.base->id);
      if (of_base == pasts.end()) continue;
      for (const Past& past : of_base->second) {
        if (!Writes(access.access) && !Writes(past.access.access)) continue;
        if (order.Before(past.point, step.stream)) continue;
        if (!ProveDisjoint(pool, past.access.region, access.region)) conflicts.push_back(&past);
      }
    }
    // The latest first: it is likely to be behind the others.
    std::stable_sort(conflicts.begin(), conflicts.end(),
                     [](const Past* a, const Past* b) { return a->point.position > b->point.position; });
    ir::Op* const to = AnchorOf(step.op);
    for (const Past* past : conflicts) {
      if (order.Before(past->point, step.stream)) continue;
      ir::Op* const from = AnchorOf(past->op);
      order.After(step.stream, past->after);
      std::vector<Edge>& edges = edges_[to];
      const auto known = [from](const Edge& edge) { return edge.from == from; };
      if (from == to || std::any_of(edges.begin(), edges.end(), known)) continue;
      edges.push_back({from, to, past->op->ExprOf("stream"), step.op->ExprOf("stream")});
    }
  }

  // By now everything that conflicts with a write is before it: who is after it is after those.
  static void Remember(Past past, std::vector<Past>& pasts) {
    if (Writes(past.access.access) && AnchorOf(past.op) == past.op) {
      std::erase_if(pasts, [&](const Past& p) { return Identical(p.access.region, past.access.region); });
    }
    pasts.push_back(std::move(past));
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Op*, size_t> place_;             // In program order.
  std::unordered_map<const ir::Op*, std::vector<Edge>> edges_;  // By their later end; sorted before use.
};

bool IsAssigned(const ir::Graph& graph) {
  bool assigned = false;
  ir::ForEachOp(graph.body, [&assigned](ir::Op* op) {
    assigned |= CodeOf(*op) == HostOp::kEvent || (IsQueued(*op) && !op->ExprOf("stream")->IsConst(0));
  });
  return assigned;
}

}  // namespace

Status AssignStreams(ir::Graph& graph) {
  if (IsAssigned(graph)) return {};
  ir::ForEachOp(graph.body, [&graph](ir::Op* op) {
    if (CodeOf(*op) != HostOp::kCommunication) return;
    for (ir::Attr& attr : op->attrs) {
      if (attr.name == "stream") attr.value = graph.exprs().Const(1);
    }
  });
  Streams streams(graph);
  for (const RankClass& ranks : RankClasses(graph)) HIR_TRY(streams.LookAt(ranks));
  streams.Insert();
  return {};
}

}  // namespace hir::host
