// Reductions over the columns of each row, and reductions over rows, of one set of tensors: the backward pass of a
// normalisation. Every tensor is read once (but for its second use within a row, which is in cache).
//
//   launch 1: the rows, in row-major order, are cut into parts of one length; each item of the grid is a part and goes
//             through its rows in order. Each row runs the phases of a normalisation; what is reduced over rows has one
//             accumulator a column, carried from row to row. A reduction that keeps some of the rows' axes (a sum for
//             each batch) begins anew where those change, in the middle of a part too.
//   launch 2: for every element of such a reduction, the partial results that the parts left, and what is made of it.
//
// Workspace: part p leaves its result for the rows whose kept index is b (row-major; 0 if none are kept) at p + b. Both
// grow along the rows and at least one of them where anything is left, so no two places are the same.
//
// Bytes moved beside inputs and outputs: parts * columns * 4 to 8 bytes for each reduction over rows, twice.
#include <algorithm>

#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using fusion::Element;
using fusion::Prim;

// Rows of a part: fewer would write as much as they read.
constexpr int64_t kRowsMin = 16;
constexpr int64_t kRowsMinGpu = 4;
constexpr int64_t kCpuParts = 64;
constexpr int64_t kRowsThatPay = 64;
// Columns of an item where no row has to be whole: 4 pages of float32, and their sums in the first-level cache.
constexpr int64_t kColumnsInItem = 4096;
// Blocks that one multiprocessor of a GPU holds at a time, by the length of a row: all parts run at once.
constexpr int64_t kLongRow = 2048;  // 4 KiB of 16-bit elements.
constexpr int64_t kLongRowBlocks = 2;
constexpr int64_t kShortRowBlocks = 5;

// The rows' axes of a region being built, and how they are cut.
class RowParts {
 public:
  explicit RowParts(NestBuilder& builder)
      : builder_(builder), pool_(builder.nest().exprs), rows_(builder.structure().rows) {
    total_ = ExtentOf(0, rows_.size());
    const bool is_cpu = builder.target().kind == Target::Kind::kCpu;
    const ir::Expr* least = pool_.Const(is_cpu ? kRowsMin : kRowsMinGpu);
    length_ = pool_.Max(least, pool_.CeilDiv(total_, pool_.Const(PartsMax())));
    count_ = pool_.CeilDiv(total_, length_);
  }

  const ir::Expr* count() const { return count_; }

  // The product of the extents of rows [from, to).
  const ir::Expr* ExtentOf(size_t from, size_t to) {
    const ir::Expr* product = pool_.Const(1);
    for (size_t i = from; i < to; ++i) {
      product = pool_.Mul(product, pool_.Import(builder_.classes().Extent(rows_[i])));
    }
    return product;
  }

  // The loops over the rows of part `part`: each over what is left of the part within the ones before it.
  std::vector<Loop> LoopsOf(int part) {
    const ir::Expr* begin = pool_.Mul(pool_.Symbol(VariableSymbol(part)), length_);
    const ir::Expr* end = pool_.Min(pool_.Add(begin, length_), total_);
    std::vector<Loop> loops;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int variable = builder_.Variable(rows_[i]);
      const ir::Expr* extent = ExtentOf(i, i + 1);
      const ir::Expr* inner = ExtentOf(i + 1, rows_.size());
      if (inner->IsConst(0)) inner = pool_.Const(1);  // There are no rows.
      const ir::Expr* last = inner->IsConst(1) ? end : pool_.Min(pool_.CeilDiv(end, inner), extent);
      loops.push_back({variable, pool_.FloorDiv(begin, inner), last});
      const ir::Expr* passed = pool_.Mul(pool_.Symbol(VariableSymbol(variable)), inner);
      begin = pool_.Max(pool_.Const(0), pool_.Sub(begin, passed));
      end = pool_.Min(inner, pool_.Sub(end, passed));
    }
    return loops;
  }

  // The parts that hold rows whose first `depth` axes are those of the region.
  Loop PartsWith(int depth, int part) {
    if (depth == 0) return {part, pool_.Const(0), count_};
    const ir::Expr* kept = pool_.Const(0);
    for (size_t i = 0; i < static_cast<size_t>(depth); ++i) {
      const ir::Expr* at = pool_.Symbol(VariableSymbol(builder_.Variable(rows_[i])));
      kept = pool_.Add(pool_.Mul(kept, ExtentOf(i, i + 1)), at);
    }
    const ir::Expr* inner = ExtentOf(static_cast<size_t>(depth), rows_.size());
    const ir::Expr* begin = pool_.Mul(kept, inner);
    return {part, pool_.FloorDiv(begin, length_), pool_.CeilDiv(pool_.Add(begin, inner), length_)};
  }

  // The partial results of a reduction that keeps `depth` rows' axes: [place, column...].
  std::vector<ir::Axis> AxesOf(int depth) {
    const ir::Expr* places =
        depth == 0 ? count_ : pool_.Add(count_, ExtentOf(0, static_cast<size_t>(depth)));
    std::vector<ir::Axis> axes = {{ir::AxisKind::kIteration, places}};
    for (const int axis : builder_.structure().columns) {
      axes.push_back({ir::AxisKind::kIteration, pool_.Import(builder_.classes().Extent(axis))});
    }
    return axes;
  }
  std::vector<const Element*> IndexOf(int depth, int part) {
    fusion::ElementBuilder& elements = builder_.nest().elements;
    const Element* kept = elements.Int(DType::kInt64, 0);
    for (size_t i = 0; i < static_cast<size_t>(depth); ++i) {
      const Element* extent = elements.Extent(ExtentOf(i, i + 1));
      const Element* at = elements.Index(builder_.Variable(rows_[i]));
      kept = elements.Apply(Prim::kAdd, {elements.Apply(Prim::kMul, {kept, extent}), at});
    }
    std::vector<const Element*> index = {elements.Apply(Prim::kAdd, {kept, elements.Index(part)})};
    for (const int axis : builder_.structure().columns) {
      index.push_back(elements.Index(builder_.Variable(axis)));
    }
    return index;
  }

 private:
  int64_t PartsMax() const {
    const Target& target = builder_.target();
    if (target.kind == Target::Kind::kCpu) return kCpuParts;
    if (target.rows_in_order.ctas_per_sm > 0)
      return int64_t{std::max(target.multiprocessors, 1)} * target.rows_in_order.ctas_per_sm;
    const ir::Expr* columns = pool_.Const(1);
    for (const int axis : builder_.structure().columns) {
      columns = pool_.Mul(columns, pool_.Import(builder_.classes().Extent(axis)));
    }
    const bool is_long = builder_.facts().AtLeast(columns, kLongRow, true);
    return std::max(target.multiprocessors, 1) * (is_long ? kLongRowBlocks : kShortRowBlocks);
  }

  NestBuilder& builder_;
  ir::ExprPool& pool_;
  const std::vector<int>& rows_;
  const ir::Expr* total_ = nullptr;
  const ir::Expr* length_ = nullptr;  // Rows of a part, but the last.
  const ir::Expr* count_ = nullptr;
};

// Where no phase needs all of a row: blocks of columns are items of the grid, too, so that few rows keep a machine
// busy.
void CutColumns(NestBuilder& builder, Region& region) {
  const int axis = builder.structure().columns.back();
  ir::ExprPool& pool = builder.nest().exprs;
  const ir::Expr* extent = pool.Import(builder.classes().Extent(axis));
  const bool whole = std::ranges::any_of(
      region.phases, [](const Phase& phase) { return !phase.accumulators.empty(); });
  if (whole || builder.target().kind != Target::Kind::kCpu ||
      !builder.facts().AtLeast(extent, kColumnsInItem + 1, true)) {
    return;
  }
  const int block = builder.NewVariable();
  const ir::Expr* size = pool.Const(kColumnsInItem);
  const ir::Expr* begin = pool.Mul(pool.Symbol(VariableSymbol(block)), size);
  for (Phase& phase : region.phases) {
    for (Loop& loop : phase.loops) {
      if (loop.variable != builder.Variable(axis)) continue;
      loop.begin = begin;
      loop.end = pool.Min(pool.Add(begin, size), extent);
    }
  }
  region.grid.push_back({block, pool.Const(0), pool.CeilDiv(extent, size)});
}

}  // namespace

bool RowsInOrderPay(NestBuilder& builder) {
  ir::ExprPool& pool = builder.nest().exprs;
  const ir::Expr* rows = pool.Const(1);
  for (const int axis : builder.structure().reductions.front().reduced) {
    rows = pool.Mul(rows, pool.Import(builder.classes().Extent(axis)));
  }
  return builder.facts().AtLeast(rows, kRowsThatPay, true);
}

std::vector<Partial> AddRowsInParts(NestBuilder& builder) {
  Region region = MakeReductionRegion(builder);
  RowParts parts(builder);
  const int part = builder.NewVariable();
  region.serial = parts.LoopsOf(part);
  region.grid = {{part, builder.nest().exprs.Const(0), parts.count()}};
  std::vector<Partial> partials;
  for (Phase& phase : region.phases) {
    std::vector<Accumulator> of_rows;
    for (Accumulator& accumulator : phase.accumulators) {
      const NestBuilder::Source source = builder.SourceOf(accumulator.value);
      const int depth = source.reduction->depth;
      if (depth < 0) {
        of_rows.push_back(std::move(accumulator));
        continue;
      }
      const ir::Value* value = builder.MakeValue(accumulator.dtype, parts.AxesOf(depth), "partial");
      const int tensor = builder.AddTensor(Tensor::Role::kWorkspace, value);
      partials.push_back({source, value});
      phase.carried.push_back({std::move(accumulator), depth, tensor, parts.IndexOf(depth, part)});
    }
    phase.accumulators = std::move(of_rows);
  }
  if (region.phases.empty()) return partials;
  CutColumns(builder, region);
  AddRegion(builder, std::move(region));
  return partials;
}

void AddSumsOfParts(NestBuilder& builder, const std::vector<Partial>& partials) {
  const Structure& structure = builder.structure();
  std::vector<const ir::Value*> values;  // The workspaces, in their order.
  for (const Partial& partial : partials) {
    const int depth = partial.source.reduction->depth;
    values.push_back(
        builder.MakeValue(partial.value->type->dtype, RowParts(builder).AxesOf(depth), "partial"));
    builder.AddTensor(Tensor::Role::kWorkspace, values.back());
  }
  for (int depth = 0; depth <= static_cast<int>(structure.rows.size()); ++depth) {
    builder.StartRegion();
    Region region;
    Phase sums, stores;
    for (const OutputPlace& output : structure.outputs) {
      if (output.depth != depth) continue;
      stores.stores.push_back({builder.AddTensor(Tensor::Role::kOutput, output.value),
                               builder.CanonicalIndex(output.value),
                               builder.ElementOf(output.value)});
    }
    if (stores.stores.empty()) continue;
    RowParts parts(builder);
    for (int i = 0; i < depth; ++i)
      region.grid.push_back(builder.LoopOver(structure.rows[static_cast<size_t>(i)]));
    for (const int axis : structure.columns) region.grid.push_back(builder.LoopOver(axis));
    const int part = builder.NewVariable();
    sums.loops = {parts.PartsWith(depth, part)};
    for (auto& [phase, accumulators] : builder.accumulators()) {
      for (Accumulator& accumulator : accumulators) {
        const auto partial =
            std::ranges::find(partials, builder.SourceOf(accumulator.value), &Partial::source);
        if (partial == partials.end()) continue;  // Over columns: part of a body that ran before.
        accumulator.body = builder.nest().elements.MakeLoad(
            values[static_cast<size_t>(partial - partials.begin())], parts.IndexOf(depth, part));
        sums.accumulators.push_back(std::move(accumulator));
      }
    }
    region.phases = {std::move(sums), std::move(stores)};
    AddRegion(builder, std::move(region));
  }
}

}  // namespace hir::codegen
