// LoopNest: one kernel, between the schedule that chose it and the backend that writes its code. It says what
// is computed in
// which loops; vectors, threads and registers are the backend's business.
//
// A kernel is a list of regions; each runs once for every item of its own grid, and the launch's grid is their sum:
//
//   for item in the part of region.grid that this call computes:       // parallel
//     for region.serial:                     // in order; before the last of them region.ahead
//       phase 0, phase 1, ...: for phase.loops [for region.columns]: accumulate, carry, store
//
// Accumulators begin anew in every iteration of the serial loops; carried ones, one a column, live across them:
// the sums over rows of a kernel that goes through its rows in order.
//
// All scalar code is fusion elements in which `Index(n)` is loop variable n, and `MakeLoad(value, {})` of an
// accumulator's
// value is its result, rounded to the value's dtype (in a later phase than the one that accumulates).
//
// Indices of loads are arithmetic on loop variables and extents, or data: elements that load themselves, of which
// IndexMath::ToExpr knows nothing. Stores are never at data.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/fusion/element.h"

namespace hir::codegen {

// Runs `variable` over [begin, end), in steps where it has one (loops of `serial`, on GPUs alone). Begin and end may
// depend on variables of loops outside this one, as symbols (VariableSymbol).
struct Loop {
  int variable = -1;
  const ir::Expr* begin = nullptr;
  const ir::Expr* end = nullptr;
  const ir::Expr* step = nullptr;  // Null: 1.
};

// A tensor in memory: an address slot. The element at `index` lies at the sum of index[k] * strides[k] elements.
struct Tensor {
  enum class Role : uint8_t { kInput, kOutput, kWorkspace };
  Role role = Role::kInput;
  const ir::Value* value = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<const ir::Expr*> strides;  // One per value axis; 0 for broadcast ones.
};

// The reduction of `body` (of `dtype`) over the phase's loops. With columns, one result a column.
struct Accumulator {
  const ir::Value* value = nullptr;
  fusion::ReduceKind kind = fusion::ReduceKind::kSum;
  DType dtype = DType::kFloat32;
  const fusion::Element* body = nullptr;
};

struct Store {
  int tensor = 0;  // Index into LoopNest::tensors.
  std::vector<const fusion::Element*> index;
  const fusion::Element* value = nullptr;
};

// An accumulator with a result for every trip of its phase's loops (a "column"), each combined with one `body` an
// iteration of the serial loops from number `depth` on. Before the first of those iterations it is neutral; after
// the last its results are elements of a workspace: `tensor`, at `index` (of variables of the grid, of serial loops
// before `depth`, and of the phase's loops). Where those loops have no iteration the elements are neutral. No other
// access to them is in the region: a backend may keep them in registers, or add up in the workspace.
struct Carried {
  Accumulator accumulator;
  int depth = 0;   // In [0, serial.size()); 0: over all of a grid item.
  int tensor = 0;  // Index into LoopNest::tensors; of the accumulator's dtype.
  std::vector<const fusion::Element*> index;
};

// An accumulator with a result for every trip of its phase's outermost loops, of the rest of them: the sums of each
// channel, while a row of several channels is read. Each result is an element of a workspace: `tensor`, at `index` (of
// variables of the grid, of serial loops and of those outermost loops). Nothing else in the region reads it.
struct Nested {
  Accumulator accumulator;
  int tensor = 0;  // Index into LoopNest::tensors; of the accumulator's dtype.
  std::vector<const fusion::Element*> index;
};

// Loops, the last one innermost (and contiguous in most tensors, unless the region has columns). Without loops the
// accumulators are empty and the stores run once (a column).
struct Phase {
  std::vector<Loop> loops;
  std::vector<Accumulator> accumulators;
  std::vector<Carried> carried;  // Only where the region has serial loops and no columns.
  std::vector<Nested> nested;    // Only where the region has no columns, and the phase nothing carried.
  size_t nested_loops = 0;       // How many loops each result of those is for; not 0 and not all, where there are any.
  std::vector<Store> stores;
};

struct Region {
  // The grid item is the row-major index of these loops, which begin at 0 and whose ends depend on no variable.
  std::vector<Loop> grid;
  // Outermost first. Begin and end may depend on variables of the grid and of serial loops before.
  std::vector<Loop> serial;
  // The innermost loop of every phase, inside its loops: neighbouring columns are neighbours in most tensors.
  // At most
  // `columns_max` trips.
  std::optional<Loop> columns;
  int64_t columns_max = 0;
  // Not 0: the one loop of `serial`, of at most so many trips, and the columns are a tile of a transposition. Some
  // tensors are contiguous along that loop and not along the columns: a backend reads them tile by tile.
  int64_t tile_rows_max = 0;
  std::vector<Phase> phases;
  // What all trips of the last serial loop have in common: stores of workspaces alone, ahead of that loop, which its
  // phases read at the same places. Without loops: nothing.
  Phase ahead;
};

struct LoopNest {
  ir::ExprPool exprs;               // Owns the expressions below; symbols are those of the graph, and loop variables.
  fusion::ElementBuilder elements;  // Owns the elements below.
  std::deque<ir::Value> values;     // Owns the values of workspaces,
  std::deque<ir::Type> types;       // their types,
  std::deque<std::vector<ir::Axis>> axes;  // and the axes of those.

  // The argument slots, in this order: addresses, symbols (i64), scalars (the bits of the f64, or the int64).
  std::vector<Tensor> tensors;  // Inputs, outputs, workspaces.
  std::vector<std::string_view> symbols;
  std::vector<const ir::Value*> scalars;
  std::vector<Region> regions;
  int num_variables = 0;
};

// The symbol that stands for loop variable `variable` in the expressions of a nest, and back (-1: another symbol).
std::string VariableSymbol(int variable);
int VariableOf(std::string_view symbol);
// Whether one of those is in `expr`.
bool HasVariable(const ir::Expr* expr);

// The variables that `element` itself names, not those below it: an index names one, and an extent some, which loops
// that became one have made of several indices.
std::vector<int> VariablesOf(const fusion::Element& element);

// By the sizes that are known, and in the first iteration of loops; `otherwise` where a symbol is not known.
int64_t SizeOf(const ir::Expr* expr, const Sizes& sizes, int64_t otherwise);

// The number of grid items: of a region, and of a launch.
const ir::Expr* GridOf(ir::ExprPool& pool, const Region& region);
const ir::Expr* GridOf(ir::ExprPool& pool, const LoopNest& nest);

// For people and tests: what a nest computes, in one page.
std::string Print(const LoopNest& nest);

}  // namespace hir::codegen
