// Stream loops: ops of a local program whose results have a stream axis (csrc/fusion/passes/stream_axes.h) become the
// iterations of loops that the host runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/fusion/passes/stream_axes.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"
#include "multidevice/plan/localize.h"

namespace hir::host {

// Along one axis of a tensor the elements [begin, begin + size), or every step-th from begin on.
struct Cut {
  int axis = 0;  // A value axis.
  // Of the body's pool; `begin` may name the loop's index.
  const ir::Expr* begin = nullptr;
  const ir::Expr* size = nullptr;
  int64_t step = 1;
  // Not null: the axis is seen as [ways, size] (with a step as [size, ways]), of which the chunk is number `index`. So
  // that chunks are known to cover the axis, of which only a guard says that it is a multiple of `ways`.
  const ir::Expr* index = nullptr;
  int64_t ways = 0;
  // More than 1: `axis` and those behind it, so many, are seen as one axis, and the chunk has one element of each.
  int merged = 1;
};

// What a parameter or output of a body is: a chunk of an operand or result of the stream_loop, or all of it.
struct LoopPart {
  size_t number = 0;  // Of the operand or result.
  std::vector<Cut> cuts = {};
  // The result holds what each iteration made, to be reduced by who reads it: the chunk is its element `select` along a
  // leading axis of its own.
  const ir::Expr* select = nullptr;
};

struct StreamLoop;

// A local program, cut into groups.
struct Segmented {
  ir::Graph* graph = nullptr;
  std::vector<segment::Group> groups;
  std::vector<StreamLoop> loops;    // Of its stream_loop ops, by their attribute.
  codegen::Strides strides;         // Of parameters and outputs that have gaps.
  bool calls_take_strides = false;  // Library calls read and write permutes and slices where they lie.
};

// The program of one iteration: a local program of its own, over sizes and the loop's index ("%i0").
struct LoopBody {
  std::unique_ptr<ir::Graph> graph;
  std::vector<LoopPart> inputs, outputs;  // One a parameter, one an output.
  Segmented segments;
};

struct StreamLoop {
  std::string name;                      // "loop0"
  std::string index;                     // "i0": the body's symbol is "%i0".
  fusion::StreamAxis axis;               // Of the first op that has it, for people.
  const ir::Expr* iterations = nullptr;  // Of the body; of the graph's pool.
  const ir::Expr* rest = nullptr;        // 0 or 1: of `rest_body`, behind them. Null: there is none.
  LoopBody body = {};
  LoopBody rest_body = {};
};

struct LoopOptions {
  codegen::Sizes sizes = {};  // At hand: chunks are even where they say so, or where nothing is at hand.
};

// Puts a stream_loop in the place of all ops that are to run in one loop: those whose stream axes map onto each other,
// wherever they stand. An op joins the loop of another when each iteration of its own needs what that iteration of the
// other made, or when both cut one value alike. What has no stream axis stays outside. Bodies are formed alike, for
// the stream axes that are left: loops in loops.
// `communications`: those of the plan; they follow their ops into bodies, where their bytes are one iteration's.
// `evenness`: gets the guards that even chunks need.
// Errors: kUnimplemented naming op, axis and remedy for a stream axis that the op cannot be cut along.
Status FormStreamLoops(Segmented& program, const LoopOptions& options, std::vector<plan::Communication>& communications,
                       std::vector<ir::Guard>& evenness);

}  // namespace hir::host
