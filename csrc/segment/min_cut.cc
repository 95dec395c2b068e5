// Dinic's algorithm. The source side holds what memory gives: an edge from the source into a node is the price of
// computing it, the edge through the node that of reading it. A node is computed where its first vertex is on the side
// of the sink, read where only its second one is.
#include "csrc/segment/min_cut.h"

#include <algorithm>
#include <limits>

namespace hir::segment {
namespace {

constexpr int kSource = 0;
constexpr int kSink = 1;

int Into(int node) { return 2 + 2 * node; }
int OutOf(int node) { return 3 + 2 * node; }

}  // namespace

int MinCut::AddNode(int64_t read, int64_t compute) {
  const int node = static_cast<int>(edges_of_.size()) / 2 - 1;
  edges_of_.resize(edges_of_.size() + 2);
  AddEdge(kSource, Into(node), compute);
  AddEdge(Into(node), OutOf(node), read);
  return node;
}

void MinCut::AddOperand(int node, int operand) { AddEdge(OutOf(operand), Into(node), kNever); }

void MinCut::Need(int node) { AddEdge(OutOf(node), kSink, kNever); }

void MinCut::AddEdge(int from, int to, int64_t capacity) {
  edges_of_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, std::min(capacity, kNever)});
  edges_of_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::Layer() {
  layer_.assign(edges_of_.size(), -1);
  layer_[kSource] = 0;
  std::vector<int> reached = {kSource};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int index : edges_of_[static_cast<size_t>(reached[i])]) {
      const Edge& edge = edges_[static_cast<size_t>(index)];
      int& layer = layer_[static_cast<size_t>(edge.to)];
      if (edge.left == 0 || layer >= 0) continue;
      layer = layer_[static_cast<size_t>(reached[i])] + 1;
      reached.push_back(edge.to);
    }
  }
  return layer_[kSink] >= 0;
}

// Along one path of layers, as much as it takes; 0 where there is none left.
int64_t MinCut::Push() {
  std::vector<int> path;  // Edges. Not by recursion: chains of ops are long.
  int at = kSource;
  while (at != kSink) {
    const std::vector<int>& edges = edges_of_[static_cast<size_t>(at)];
    size_t& next = next_[static_cast<size_t>(at)];
    const auto leads_on = [&](int index) {
      const Edge& edge = edges_[static_cast<size_t>(index)];
      return edge.left > 0 && layer_[static_cast<size_t>(edge.to)] == layer_[static_cast<size_t>(at)] + 1;
    };
    while (next < edges.size() && !leads_on(edges[next])) ++next;
    if (next < edges.size()) {
      path.push_back(edges[next]);
      at = edges_[static_cast<size_t>(edges[next])].to;
      continue;
    }
    if (path.empty()) return 0;
    at = edges_[static_cast<size_t>(path.back() ^ 1)].to;
    path.pop_back();
    ++next_[static_cast<size_t>(at)];
  }
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const int index : path) most = std::min(most, edges_[static_cast<size_t>(index)].left);
  for (const int index : path) {
    edges_[static_cast<size_t>(index)].left -= most;
    edges_[static_cast<size_t>(index ^ 1)].left += most;
  }
  return most;
}

MinCut::Cut MinCut::Solve() {
  Cut cut;
  while (cut.cost < kNever && Layer()) {
    next_.assign(edges_of_.size(), 0);
    while (const int64_t pushed = Push()) {
      cut.cost += pushed;
      if (cut.cost >= kNever) break;
    }
  }
  // The sink's side is all that it can still be reached from: the smallest there is.
  std::vector<char> needed(edges_of_.size(), 0);
  needed[kSink] = 1;
  std::vector<int> reached = {kSink};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int index : edges_of_[static_cast<size_t>(reached[i])]) {
      const Edge& back = edges_[static_cast<size_t>(index)];
      char& is_needed = needed[static_cast<size_t>(back.to)];
      if (edges_[static_cast<size_t>(index ^ 1)].left == 0 || is_needed != 0) continue;
      is_needed = 1;
      reached.push_back(back.to);
    }
  }
  for (size_t node = 0; 2 + 2 * node < needed.size(); ++node) {
    const bool is_known = needed[static_cast<size_t>(OutOf(static_cast<int>(node)))] != 0;
    const bool is_computed = needed[static_cast<size_t>(Into(static_cast<int>(node)))] != 0;
    cut.choices.push_back(is_computed ? Choice::kComputed : is_known ? Choice::kRead : Choice::kUnused);
  }
  return cut;
}

}  // namespace hir::segment
