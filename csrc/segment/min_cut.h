// A minimum cut: of values that can be read from memory or computed from other values, which to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hir::segment {

// Each node is a value. It is known by being read, for `read`, or by being computed, for `compute` and all of its
// operands being known. Finds the least cost at which all needed nodes are known, each cost paid once.
class MinCut {
 public:
  static constexpr int64_t kNever = int64_t{1} << 60;  // A node that cannot be read, or not be computed.

  int AddNode(int64_t read, int64_t compute);
  // `node` is computed from `operand`.
  void AddOperand(int node, int operand);
  void Need(int node);

  enum class Choice : uint8_t { kUnused, kRead, kComputed };
  struct Cut {
    int64_t cost = 0;  // From kNever on: there is none.
    std::vector<Choice> choices;
  };
  // The one that computes least, of equal cuts.
  Cut Solve();

 private:
  struct Edge {
    int to = 0;
    int64_t left = 0;
  };
  void AddEdge(int from, int to, int64_t capacity);
  bool Layer();
  int64_t Push();

  // Vertices: the source, the sink, and two for each node: computed values flow into the first, all that is known out
  // of the second.
  std::vector<std::vector<int>> edges_of_ = std::vector<std::vector<int>>(2);
  std::vector<Edge> edges_;  // Each followed by its reverse.
  std::vector<int> layer_;
  std::vector<size_t> next_;
};

}  // namespace hir::segment
