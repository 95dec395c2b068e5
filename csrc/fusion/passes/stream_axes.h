// Stream axes: the loop axes of a layout that are parallel on stream, in normal form. The host goes through them in a
// loop, each iteration on a stream of its own, when it computes the value: one iteration computes one chunk.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// How one loop cuts the part of a value that a rank holds, or what the loops outside of it left.
struct StreamAxis {
  enum class Kind : uint8_t {
    kWhole,   // As many chunks as elements.
    kWays,    // `factor` chunks, one behind the other, ceil-sized: the last ones are short or empty.
    kChunks,  // Chunks of `factor` elements; the last one may be short.
    kDealt,   // `factor` chunks: chunk j has the elements j, j + factor, j + 2 * factor, ...
  };
  // LOGICAL axes: one, or those that one loop goes through together (a merge), outermost first, all of them kWhole.
  // On a reduction axis chunks are partial results, to be reduced in their order.
  std::vector<int> axes = {};
  Kind kind = Kind::kWhole;
  int64_t factor = 1;

  bool operator==(const StreamAxis&) const = default;
};

// "axis 0 in 4 chunks", "axis 1 in chunks of 128", "axes 0, 1, element by element".
std::string Describe(const StreamAxis& stream);

// Those of `value`, the outermost loop first; none without a layout.
// Errors: kUnimplemented for a stream axis that is none of these, naming value, axis and remedy.
Result<std::vector<StreamAxis>> StreamAxesOf(const ir::Value& value);

// Those of `streams`, of `value`, that cut elements of it, by VALUE axes: not those that make partial results.
std::vector<StreamAxis> StreamsOfElements(const ir::Value& value, std::vector<StreamAxis> streams);

// What a loop over `extent` elements does. In `pool`.
struct Chunks {
  const ir::Expr* full = nullptr;  // Iterations of `size` elements each.
  const ir::Expr* size = nullptr;  // 1 or more, but of kDealt.
  const ir::Expr* rest = nullptr;  // Elements of one more iteration, fewer than `size`; 0: there is none.
};
Chunks ChunksOf(ir::ExprPool& pool, const StreamAxis& stream, const ir::Expr* extent);

// How ops carry stream axes.
class StreamMap {
 public:
  explicit StreamMap(const ir::Op& op);

  // Whether a chunk of the result along `stream` can be computed from chunks, or all, of the operands.
  bool CanCompute(const StreamAxis& stream) const;
  // For each of stream.axes the VALUE axis of `operand` that is cut with it; -1: none is, all of it is needed.
  // REQUIRES: CanCompute(stream).
  std::vector<int> Needed(int operand, const StreamAxis& stream) const;
  bool IsReduced(int axis) const;

 private:
  // The VALUE axis of `operand` whose chunk belongs to the chunk of logical axis `axis` of the result.
  std::optional<int> OperandAxis(int operand, int axis) const;

  const ir::Op* op_;
  std::vector<AxisLink> links_;
};

}  // namespace hir::fusion
