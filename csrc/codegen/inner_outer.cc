// Reductions over the columns of each row, and reductions over rows, of one set of tensors: the backward pass of a
// normalisation. Every tensor is read once (but for its second use within a row, which is in cache).
//
//   launch 1: the rows, in row-major order, are cut into parts of one length; each item of the grid is a part and goes
//             through its rows in order. Each row runs the phases of a normalisation; what is reduced over rows has one
//             accumulator a column, carried from row to row. A reduction that keeps some of the rows' axes (a sum for
//             each batch) begins anew where those change, in the middle of a part too.
//             On GPUs, where rows have one axis, a part takes every count'th row instead: parts that run at once read
//             rows side by side (RMS norm backward 16384x4096 5 % faster on an H200).
//   launch 2: for every element of such a reduction, the partial results that the parts left, and what is made of it.
//
// What the rows of a batch compute alike is computed once a part and batch (CPUs; KeepInvariants).
//
// Workspace: part p leaves its result for the rows whose kept index is b (row-major; 0 if none are kept) at p + b. Both
// grow along the rows and at least one of them where anything is left, so no two places are the same.
//
// Sums over all rows and sums for each batch are often made of the same sums for each batch, times what a batch has in
// common (a layer norm's scale, weight, bias). Only those are carried then: less to compute, to hold and to write.
//
// Bytes moved beside inputs and outputs: parts * columns * 4 to 8 bytes for each reduction over rows, twice.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "csrc/base/check.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/schedules.h"
#include "csrc/codegen/terms.h"

namespace hir::codegen {
namespace {

using fusion::Element;
using fusion::Prim;

// Columns of an item where no row has to be whole: 4 pages of float32, and their sums in the first-level cache.
constexpr int64_t kColumnsInItem = 4096;
// What all rows of a loop have in common is kept where it costs more than its load; in instructions.
constexpr int64_t kKeptCostMin = 5;
constexpr int64_t kRoundingCost = 4;  // To 16 bits.
constexpr int64_t kFunctionCost = 32;
constexpr size_t kKeptMax = 4;

// The rows' axes of a region being built, and how they are cut.
class RowParts {
 public:
  explicit RowParts(NestBuilder& builder)
      : builder_(builder),
        walks_(WalksOf(builder.target())),
        pool_(builder.nest().exprs),
        rows_(builder.structure().rows) {
    total_ = ExtentOf(0, rows_.size());
    const ir::Expr* least = pool_.Const(walks_.rows_min);
    length_ = pool_.Max(least, pool_.CeilDiv(total_, pool_.Const(PartsMax())));
    count_ = pool_.CeilDiv(total_, length_);
    is_strided_ = walks_.has_strided_parts && rows_.size() == 1;
    if (is_strided_) count_ = pool_.Min(pool_.Const(PartsMax()), pool_.CeilDiv(total_, least));
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
    if (is_strided_) {
      return {{builder_.Variable(rows_[0]), pool_.Symbol(VariableSymbol(part)), total_, count_}};
    }
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

  // The same for a loop whose trips do not depend on those rows: at most so many; the first part, and whether there is
  // one in trip `trip`, as elements.
  const ir::Expr* PartsMaxWith(int depth) {
    const ir::Expr* inner = ExtentOf(static_cast<size_t>(depth), rows_.size());
    return pool_.Min(pool_.Add(pool_.CeilDiv(inner, length_), pool_.Const(1)), count_);
  }
  struct Trip {
    const Element* first;
    const Element* exists;
  };
  Trip TripWith(int depth, int trip) {
    fusion::ElementBuilder& elements = builder_.nest().elements;
    const Loop loop = PartsWith(depth, trip);
    return {elements.Extent(loop.begin),
            elements.Apply(Prim::kLt, {elements.Index(trip), elements.Extent(pool_.Sub(loop.end, loop.begin))})};
  }

  // The partial results of a reduction that keeps `depth` rows' axes: [place, column...].
  std::vector<ir::Axis> AxesOf(int depth) {
    const ir::Expr* places = depth == 0 ? count_ : pool_.Add(count_, ExtentOf(0, static_cast<size_t>(depth)));
    std::vector<ir::Axis> axes = {{ir::AxisKind::kIteration, places}};
    for (const int axis : builder_.structure().columns) {
      axes.push_back({ir::AxisKind::kIteration, pool_.Import(builder_.classes().Extent(axis))});
    }
    return axes;
  }
  // `first`: what `part` counts from; null: 0.
  std::vector<const Element*> IndexOf(int depth, int part, const Element* first = nullptr) {
    fusion::ElementBuilder& elements = builder_.nest().elements;
    const Element* kept = elements.Int(DType::kInt64, 0);
    for (size_t i = 0; i < static_cast<size_t>(depth); ++i) {
      const Element* extent = elements.Extent(ExtentOf(i, i + 1));
      const Element* at = elements.Index(builder_.Variable(rows_[i]));
      kept = elements.Apply(Prim::kAdd, {elements.Apply(Prim::kMul, {kept, extent}), at});
    }
    const Element* at = elements.Index(part);
    if (first != nullptr) at = elements.Apply(Prim::kAdd, {first, at});
    std::vector<const Element*> index = {elements.Apply(Prim::kAdd, {kept, at})};
    for (const int axis : builder_.structure().columns) {
      index.push_back(elements.Index(builder_.Variable(axis)));
    }
    return index;
  }

 private:
  int64_t PartsMax() const {
    if (walks_.row_parts_max > 0) return walks_.row_parts_max;
    const ir::Expr* columns = pool_.Const(1);
    for (const int axis : builder_.structure().columns) {
      columns = pool_.Mul(columns, pool_.Import(builder_.classes().Extent(axis)));
    }
    SizeFacts& facts = builder_.facts();
    int64_t blocks = 1;
    const bool is_constant = columns->IsConst() && total_->IsConst();
    for (const auto& [columns_min, count] : is_constant ? kBlocksOfRows : kBlocksOfRowsOfAnySize) {
      blocks = count;
      if (facts.AtLeast(columns, columns_min, true)) break;
    }
    // Parts of few rows write much beside what they read.
    if (total_->IsConst()) blocks = BlocksThatFill(walks_, blocks, total_->value);
    return walks_.processors * blocks;
  }

  NestBuilder& builder_;
  const Walks walks_;
  ir::ExprPool& pool_;
  const std::vector<int>& rows_;
  const ir::Expr* total_ = nullptr;
  const ir::Expr* length_ = nullptr;  // Rows of a part, but the last.
  const ir::Expr* count_ = nullptr;
  bool is_strided_ = false;
};

// Where no phase needs all of a row: blocks of columns are items of the grid, too, so that few rows keep a machine
// busy.
void CutColumns(NestBuilder& builder, Region& region) {
  const int axis = builder.structure().columns.back();
  ir::ExprPool& pool = builder.nest().exprs;
  const ir::Expr* extent = pool.Import(builder.classes().Extent(axis));
  const bool whole = std::ranges::any_of(region.phases, [](const Phase& phase) { return !phase.accumulators.empty(); });
  if (whole || !WalksOf(builder.target()).cuts_columns || !builder.facts().AtLeast(extent, kColumnsInItem + 1, true)) {
    return;
  }
  const int block = builder.NewVariable();
  const ir::Expr* size = pool.Const(kColumnsInItem);
  const ir::Expr* begin = pool.Mul(pool.Symbol(VariableSymbol(block)), size);
  const auto cut = [&](Phase& phase) {
    for (Loop& loop : phase.loops) {
      if (loop.variable != builder.Variable(axis)) continue;
      loop.begin = begin;
      loop.end = pool.Min(pool.Add(begin, size), extent);
    }
  };
  std::ranges::for_each(region.phases, cut);
  cut(region.ahead);
  region.grid.push_back({block, pool.Const(0), pool.CeilDiv(extent, size)});
}

}  // namespace

bool RowsInOrderPay(NestBuilder& builder) {
  if (TakesRowsAbreast(builder)) return false;
  ir::ExprPool& pool = builder.nest().exprs;
  const ir::Expr* rows = pool.Const(1);
  for (const int axis : builder.structure().reductions.front().reduced) {
    rows = pool.Mul(rows, pool.Import(builder.classes().Extent(axis)));
  }
  return builder.facts().AtLeast(rows, kRowsThatPay, true);
}

namespace {

// Whether an element varies with rows' axes from number `depth` on. What is reduced over columns does.
std::function<bool(const Element*)> VariesWithRows(NestBuilder& builder, int depth) {
  std::set<int> variables;
  const std::vector<int>& rows = builder.structure().rows;
  for (size_t i = static_cast<size_t>(depth); i < rows.size(); ++i) variables.insert(builder.Variable(rows[i]));
  auto known = std::make_shared<std::unordered_map<const Element*, bool>>();
  const auto visit = [variables = std::move(variables), known](const auto& self, const Element* e) -> bool {
    if (const auto at = known->find(e); at != known->end()) return at->second;
    bool varies = e->kind == Element::Kind::kIndex && variables.contains(static_cast<int>(e->integer));
    for (const Element* arg : e->args) varies = self(self, arg) || varies;
    return (*known)[e] = varies;
  };
  return [visit](const Element* e) { return visit(visit, e); };
}

const Element* ProductOf(fusion::ElementBuilder& elements, std::vector<const Element*> factors) {
  std::ranges::sort(factors, {}, &Element::id);
  const Element* product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) product = elements.Apply(Prim::kMul, {product, factors[i]});
  return product;
}

// The depth of the sums that all reductions over rows are made of, where those are fewer than the reductions; else -1.
int DepthOfShared(NestBuilder& builder, const Region& region) {
  int deepest = -1;
  size_t count = 0;
  bool differ = false;
  std::vector<const Element*> bodies;
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators) {
      const int depth = builder.SourceOf(accumulator.value).reduction->depth;
      if (depth < 0) continue;
      if (accumulator.kind != fusion::ReduceKind::kSum || accumulator.dtype != DType::kFloat32) return -1;
      differ = differ || (deepest >= 0 && depth != deepest);
      deepest = std::max(deepest, depth);
      bodies.push_back(accumulator.body);
      ++count;
    }
  }
  if (!differ) return -1;
  const auto is_fast = VariesWithRows(builder, deepest);
  std::set<const Element*> products;
  for (const Element* body : bodies) {
    for (const Term& term : TermsOf(body, is_fast)) products.insert(ProductOf(builder.nest().elements, term.fast));
  }
  return products.size() < count ? deepest : -1;
}

int64_t CostOf(const Element* element, std::set<const Element*>& counted) {
  if (!counted.insert(element).second) return 0;
  int64_t cost = element->kind == Element::Kind::kPrim ? 1 : 0;
  if (element->kind == Element::Kind::kPrim && fusion::IsFunction(element->prim)) {
    cost = kFunctionCost;
  }
  if (element->kind == Element::Kind::kConvert) cost = DTypeBytes(element->dtype) == 2 ? kRoundingCost : 1;
  for (const Element* arg : element->args) cost += CostOf(arg, counted);
  return cost;
}

// What is computed along the columns and is the same for all rows of the innermost loop over rows, a batch's gain say,
// is computed ahead of that loop and kept: a row of a workspace for each part. (An adaptive layer norm's backward pass
// in bfloat16: a quarter of its instructions.)
void KeepInvariants(NestBuilder& builder, RowParts& parts, int part, Region& region, RowSums& sums) {
  const Structure& structure = builder.structure();
  if (!WalksOf(builder.target()).keeps_invariants || structure.columns.size() != 1) return;
  const int column = builder.Variable(structure.columns.front());
  fusion::ElementBuilder& elements = builder.nest().elements;
  IndexMath math(builder.nest().exprs);
  const auto varies = VariesWithRows(builder, static_cast<int>(structure.rows.size()) - 1);
  std::set<const Element*> along, seen;  // Elements that vary along the columns.
  bool is_guarded = false;               // Under a condition an element may not exist at every column.
  std::vector<const Element*> found;
  const auto visit = [&](const auto& self, const Element* e, bool is_inside) -> void {
    if (!seen.insert(e).second) return;
    const bool computes = e->kind == Element::Kind::kPrim || e->kind == Element::Kind::kConvert;
    if (e->kind == Element::Kind::kPrim && e->prim == Prim::kSelect) is_guarded = is_guarded || math.GuardsSides(e);
    // What is widened is kept narrow.
    const bool widens = e->kind == Element::Kind::kConvert && DTypeBytes(e->dtype) > DTypeBytes(e->args[0]->dtype);
    bool is_candidate = !is_inside && computes && !widens && IsFloat(e->dtype) && !varies(e);
    for (const Element* arg : e->args) self(self, arg, is_inside || is_candidate);
    const bool is_column = e->kind == Element::Kind::kIndex && static_cast<int>(e->integer) == column;
    if (is_column || std::ranges::any_of(e->args, [&](auto* arg) { return along.contains(arg); })) along.insert(e);
    std::set<const Element*> counted;
    if (is_candidate && along.contains(e) && CostOf(e, counted) >= kKeptCostMin) found.push_back(e);
  };
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body, false);
    for (const Carried& carried : phase.carried) visit(visit, carried.accumulator.body, false);
    for (const Store& store : phase.stores) visit(visit, store.value, false);
  }
  if (is_guarded || found.empty()) return;
  found.resize(std::min(found.size(), kKeptMax));
  std::map<const Element*, const Element*> kept;
  for (const Element* element : found) {
    const ir::Value* value = builder.MakeValue(element->dtype, parts.AxesOf(0), "kept");
    const std::vector<const Element*> index = parts.IndexOf(0, part);
    region.ahead.stores.push_back({builder.AddTensor(Tensor::Role::kWorkspace, value), index, element});
    sums.kept.push_back(value);
    kept[element] = elements.MakeLoad(value, index);
  }
  region.ahead.loops = {builder.LoopOver(structure.columns.front())};
  const auto read = [&](const Element*& body) {
    body = builder.Rewrite(body, [&](const Element* e) -> const Element* {
      const auto at = kept.find(e);
      return at == kept.end() ? nullptr : at->second;
    });
  };
  for (Phase& phase : region.phases) {
    for (Accumulator& accumulator : phase.accumulators) read(accumulator.body);
    for (Carried& carried : phase.carried) read(carried.accumulator.body);
    for (Store& store : phase.stores) read(store.value);
  }
}

}  // namespace

RowSums AddRowsInParts(NestBuilder& builder) {
  Region region = MakeReductionRegion(builder);
  RowSums sums;
  LeaveNested(builder, region, sums);
  const auto is_over_rows = [](const Reduction& reduction) { return reduction.depth >= 0; };
  if (std::ranges::none_of(builder.structure().reductions, is_over_rows)) {
    if (!region.phases.empty()) AddRegion(builder, std::move(region));
    return sums;
  }
  RowParts parts(builder);
  const int part = builder.NewVariable();
  region.serial = parts.LoopsOf(part);
  region.grid = {{part, builder.nest().exprs.Const(0), parts.count()}};
  const int shared_depth = DepthOfShared(builder, region);
  sums.shared = shared_depth >= 0;
  std::map<const Element*, size_t> made;  // Partials by what they add up, of those that are shared.
  for (Phase& phase : region.phases) {
    std::vector<Accumulator> of_rows;
    for (Accumulator& accumulator : phase.accumulators) {
      const NestBuilder::Source source = builder.SourceOf(accumulator.value);
      if (source.reduction->depth < 0) {
        of_rows.push_back(std::move(accumulator));
        continue;
      }
      const int depth = sums.shared ? shared_depth : source.reduction->depth;
      const auto add = [&](Accumulator own) {
        const ir::Value* value = builder.MakeValue(own.dtype, parts.AxesOf(depth), "partial");
        const int tensor = builder.AddTensor(Tensor::Role::kWorkspace, value);
        sums.partials.push_back({value, depth});
        phase.carried.push_back({std::move(own), depth, tensor, parts.IndexOf(depth, part)});
        return sums.partials.size() - 1;
      };
      if (!sums.shared) {
        sums.sources[source] = {add(std::move(accumulator))};
        continue;
      }
      for (const Term& term : TermsOf(accumulator.body, VariesWithRows(builder, depth))) {
        Accumulator own = accumulator;
        own.body = ProductOf(builder.nest().elements, term.fast);
        const auto known = made.find(own.body);
        if (known == made.end()) {
          const Element* body = own.body;
          own.value = builder.MakeValue(own.dtype, {}, "sum");
          made[body] = add(std::move(own));
          sums.sources[source].push_back(made[body]);
        } else {
          sums.sources[source].push_back(known->second);
        }
      }
    }
    phase.accumulators = std::move(of_rows);
  }
  if (region.phases.empty()) return sums;
  KeepInvariants(builder, parts, part, region, sums);
  CutColumns(builder, region);
  AddRegion(builder, std::move(region));
  return sums;
}

void AddSumsOfParts(NestBuilder& builder, const RowSums& sums) {
  const Structure& structure = builder.structure();
  fusion::ElementBuilder& elements = builder.nest().elements;
  std::vector<const ir::Value*> values;  // The workspaces, in their order.
  for (const RowSums::Partial& partial : sums.partials) {
    values.push_back(builder.MakeValue(partial.value->type->dtype, RowParts(builder).AxesOf(partial.depth), "partial"));
    builder.AddTensor(Tensor::Role::kWorkspace, values.back());
  }
  for (int depth = 0; depth <= static_cast<int>(structure.rows.size()); ++depth) {
    builder.StartRegion();
    Region region;
    Phase totals, stores;
    for (const OutputPlace& output : structure.outputs) {
      if (!output.late || structure.reductions[*output.late].depth != depth) continue;
      stores.stores.push_back({builder.AddTensor(Tensor::Role::kOutput, output.value),
                               builder.CanonicalIndex(output.value), builder.ElementOf(output.value)});
    }
    if (stores.stores.empty()) continue;
    RowParts parts(builder);
    for (int i = 0; i < depth; ++i) region.grid.push_back(builder.LoopOver(structure.rows[static_cast<size_t>(i)]));
    for (const int axis : structure.columns) region.grid.push_back(builder.LoopOver(axis));
    // Sums that keep more axes than these outputs: over those, too.
    const int own_depth = sums.shared ? sums.partials.front().depth : depth;
    for (int i = depth; i < own_depth; ++i)
      totals.loops.push_back(builder.LoopOver(structure.rows[static_cast<size_t>(i)]));
    const int trip = builder.NewVariable();
    RowParts::Trip at = {nullptr, nullptr};
    if (own_depth == depth) {
      totals.loops.push_back(parts.PartsWith(depth, trip));
    } else {
      totals.loops.push_back({trip, builder.nest().exprs.Const(0), parts.PartsMaxWith(own_depth)});
      at = parts.TripWith(own_depth, trip);
    }
    for (auto& [phase, accumulators] : builder.accumulators()) {
      for (Accumulator& accumulator : accumulators) {
        const auto source = sums.sources.find(builder.SourceOf(accumulator.value));
        if (source == sums.sources.end()) continue;  // Over columns: part of a body that ran before.
        const auto load = [&](size_t partial) {
          return elements.MakeLoad(values[partial], parts.IndexOf(own_depth, trip, at.first));
        };
        const Element* body = nullptr;
        if (!sums.shared) {
          body = load(source->second[0]);
        } else {
          const std::vector<Term> terms = TermsOf(accumulator.body, VariesWithRows(builder, own_depth));
          HIR_CHECK(terms.size() == source->second.size());  // The same body as in the first launch.
          for (size_t i = 0; i < terms.size(); ++i) {
            std::vector<const Element*> factors = terms[i].slow;
            factors.push_back(load(source->second[i]));
            const Element* product = ProductOf(elements, std::move(factors));
            body = body == nullptr ? product : elements.Apply(Prim::kAdd, {body, product});
          }
        }
        if (at.exists != nullptr) body = elements.Select(at.exists, body, elements.Float(accumulator.dtype, 0));
        accumulator.body = body;
        totals.accumulators.push_back(std::move(accumulator));
      }
    }
    region.phases = {std::move(totals), std::move(stores)};
    AddRegion(builder, std::move(region));
  }
}

}  // namespace hir::codegen
