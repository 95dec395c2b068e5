#include "host_ir/lower/overlap.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "host_ir/lower/storage.h"

namespace hir::host {
namespace {

using base::Cat;
using fusion::FusionOp;
using ir::Op;
using ir::Value;
using segment::Group;

// The makers and readers of each value of a program.
class Uses {
 public:
  explicit Uses(const Segmented& program) : program_(program) {
    for (size_t i = 0; i < program.groups.size(); ++i) {
      for (const Value* input : program.groups[i].inputs) readers_[input].push_back(i);
      for (const Value* output : program.groups[i].outputs) makers_[output] = i;
    }
    for (const ir::Output& output : program.graph->outputs) returned_.insert(output.value);
  }

  const std::vector<size_t>& ReadersOf(const Value* value) const {
    static const std::vector<size_t> none;
    const auto found = readers_.find(value);
    return found == readers_.end() ? none : found->second;
  }
  bool IsReturned(const Value* value) const { return returned_.contains(value); }
  const Group& At(size_t index) const { return program_.groups[index]; }
  const Op& OpAt(size_t index) const { return *At(index).ops[0]; }

  // One op that shows the same elements in the same order under another shape.
  bool IsView(size_t index) const {
    const Group& group = At(index);
    const bool views =
        group.outputs.size() == 1 && group.inputs.size() == 1 && std::ranges::all_of(group.ops, [](const Op* op) {
          return (op->info->effects & ir::kLoop) == 0 && host::IsView(*op);
        });
    return views && !program_.strides.contains(group.inputs[0]) && !program_.strides.contains(group.outputs[0]);
  }
  // The product that makes `value`, perhaps in another shape.
  std::optional<size_t> ProductOf(const Value* value) const;
  bool HasGaps(const Value* value) const { return program_.strides.contains(value); }

 private:
  const Segmented& program_;
  std::unordered_map<const Value*, std::vector<size_t>> readers_;  // Lookups only.
  std::unordered_map<const Value*, size_t> makers_;                // Likewise.
  std::set<const Value*> returned_;                                // Likewise.
};

bool IsConstant(const Value& value) {
  return std::ranges::all_of(ir::ValueAxes(*value.type), [](const ir::Axis& axis) { return axis.extent->IsConst(); });
}

mesh::ParallelType DimOf(const Op& op) { return *mesh::ParseParallelType(op.Name("dim")); }

int64_t WaysOf(const Op& op) { return op.MeshOf("mesh")->mesh.Size(DimOf(op)); }

const plan::OverlapLimits::Team& LimitsOf(const Op& op, const plan::OverlapLimits& limits) {
  return limits.Of(op.MeshOf("mesh")->mesh, DimOf(op));
}

// Whose rows are the first operand's.
bool IsProduct(const Group& group) {
  if (group.ops.size() != 1) return false;
  const Op& op = *group.ops[0];
  return fusion::IsProduct(fusion::CodeOf(op)) && !fusion::TransposedOf(op).x;
}

std::optional<size_t> Uses::ProductOf(const Value* value) const {
  for (;;) {
    const auto maker = makers_.find(value);
    if (maker == makers_.end()) return std::nullopt;
    if (IsProduct(At(maker->second))) return maker->second;
    if (!IsView(maker->second)) return std::nullopt;
    value = At(maker->second).inputs[0];
  }
}

// The product of all extents but the last: rows may be two axes, [ranks, rows of a rank].
int64_t RowsOf(const Value& value) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < axes.size(); ++i)
    rows = base::CheckedMul(rows, axes[i].extent->value).value_or(INT64_MAX);  // Columns may be none.
  return rows;
}

// Rows of the result are rows of the first operand, and nothing else has rows.
bool ComesApart(const Op& op, int64_t ways, int64_t rows_min) {
  const Value& rows = *op.operands[0];
  const Value& result = *op.results[0];
  const size_t rank = ir::ValueAxes(*result.type).size();
  const auto is_shared = [&](size_t operand, size_t rank_max) {
    return op.operands.size() <= operand || ir::ValueAxes(*op.operands[operand]->type).size() <= rank_max;
  };
  const int axis = RowAxis(*rows.type, ways);
  return axis >= 0 && axis == RowAxis(*result.type, ways) && ir::ValueAxes(*rows.type).size() == rank &&
         static_cast<size_t>(axis) + 1 < rank && IsConstant(rows) && IsConstant(result) && is_shared(1, 2) &&
         is_shared(2, 1) && RowsOf(rows) / ways >= rows_min;
}

bool IsLarge(const Value& chunk, int64_t bytes_min) {
  return IsConstant(chunk) && segment::StorageBytes(chunk) >= bytes_min;
}

// The products that read what `communication` gathered, if those and views are all that do.
bool CollectProducts(const Uses& uses, const Value* value, int64_t ways, int64_t rows_min,
                     std::vector<size_t>& products) {
  if (uses.IsReturned(value) || uses.HasGaps(value)) return false;
  for (const size_t reader : uses.ReadersOf(value)) {
    if (uses.IsView(reader)) {
      if (!CollectProducts(uses, uses.At(reader).outputs[0], ways, rows_min, products)) return false;
      continue;
    }
    const Op& op = uses.OpAt(reader);
    const bool once = std::ranges::count(op.operands, value) == 1;
    if (!IsProduct(uses.At(reader)) || op.operands[0] != value || !once) return false;
    if (!ComesApart(op, ways, rows_min)) return false;
    products.push_back(reader);
  }
  return true;
}

// The communication that `product` makes everything for: behind views, the one reader.
std::optional<size_t> SendsAll(const Uses& uses, const Value* value) {
  for (;;) {
    const std::vector<size_t>& readers = uses.ReadersOf(value);
    if (uses.IsReturned(value) || uses.HasGaps(value) || readers.size() != 1) return std::nullopt;
    if (!uses.IsView(readers[0])) {
      const Op& op = uses.OpAt(readers[0]);
      const bool sends = (op.info->effects & ir::kComm) != 0 && fusion::CodeOf(op) == FusionOp::kAllToAll;
      return sends ? std::optional(readers[0]) : std::nullopt;
    }
    value = uses.At(readers[0]).outputs[0];
  }
}

}  // namespace

int RowAxis(const ir::Type& type, int64_t ways) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(type);
  for (size_t i = 0; i < axes.size(); ++i) {
    const ir::Axis& axis = axes[i];
    if (axis.extent->IsConst(1)) continue;
    const bool divides = axis.kind == ir::AxisKind::kIteration && axis.extent->IsConst() && axis.extent->value > 0 &&
                         axis.extent->value % ways == 0;
    return divides ? static_cast<int>(i) : -1;
  }
  return -1;
}

std::vector<Overlap> FindOverlaps(const Segmented& program, const plan::OverlapLimits& limits) {
  std::vector<Overlap> found;
  const Uses uses(program);
  std::set<size_t> taken;  // Products.
  for (size_t i = 0; i < program.groups.size(); ++i) {
    const Op& op = uses.OpAt(i);
    if ((op.info->effects & ir::kComm) == 0 || fusion::CodeOf(op) != FusionOp::kAllgather) continue;
    Overlap overlap = {.kind = Overlap::Kind::kGathers, .communication = i, .ways = WaysOf(op)};
    const std::optional<plan::OverlapLimits::Least>& least = LimitsOf(op, limits).exchanged;
    if (!least) continue;
    if (!IsLarge(*op.operands[0], least->bytes) || uses.HasGaps(op.operands[0])) continue;
    if (!CollectProducts(uses, op.results[0], overlap.ways, least->rows, overlap.products)) continue;
    if (overlap.products.empty()) continue;
    taken.insert(overlap.products.begin(), overlap.products.end());
    found.push_back(std::move(overlap));
  }
  for (size_t i = 0; i < program.groups.size(); ++i) {
    if (!IsProduct(program.groups[i]) || taken.contains(i)) continue;
    const Value* const result = uses.OpAt(i).results[0];
    const std::optional<size_t> communication = SendsAll(uses, result);
    if (!communication) continue;
    const Op& op = uses.OpAt(*communication);
    const int64_t ways = WaysOf(op);
    const std::optional<plan::OverlapLimits::Least>& least = LimitsOf(op, limits).exchanged;
    if (!least) continue;
    const bool large = IsConstant(*result) && segment::StorageBytes(*result) / ways >= least->bytes;
    if (!large || !ComesApart(uses.OpAt(i), ways, least->rows) || uses.HasGaps(op.results[0])) continue;
    found.push_back({.kind = Overlap::Kind::kSends, .communication = *communication, .products = {i}, .ways = ways});
  }
  return found;
}

std::vector<std::string> DescribeOverlaps(const Segmented& program, const plan::OverlapLimits& limits) {
  const Uses uses(program);
  std::vector<std::string> notes;
  std::set<size_t> told;  // Products.
  const auto other = [&](size_t communication) {
    const Op& op = uses.OpAt(communication);
    return Cat(op.info->name, " ", op.results[0]->name);
  };
  const auto name_of = [&](size_t product) { return uses.OpAt(product).results[0]->name; };
  const auto rows_of = [&](size_t product, int64_t ways) { return RowsOf(*uses.OpAt(product).operands[0]) / ways; };
  for (const Overlap& overlap : FindOverlaps(program, limits)) {
    for (const size_t product : overlap.products) {
      if (!told.insert(product).second) continue;
      notes.push_back(Cat(name_of(product), ": ", overlap.ways, " parts of ", rows_of(product, overlap.ways),
                          " rows beside ", other(overlap.communication)));
    }
  }
  using Team = plan::OverlapLimits::Team;
  using Least = plan::OverlapLimits::Least;
  const auto tell_whole = [&](size_t product, size_t communication, int64_t bytes, std::optional<Least> Team::*of,
                              std::string_view where) {
    if (!told.insert(product).second) return;
    const Op& op = uses.OpAt(communication);
    const int64_t ways = WaysOf(op);
    const std::optional<Least>& some = LimitsOf(op, limits).*of;
    const Least least = some.value_or(Least());
    std::string note = Cat(name_of(product), ": whole ", where, " ", other(communication), ": ");
    const int64_t rows = rows_of(product, ways);
    const int64_t terms = ir::ValueAxes(*uses.OpAt(product).operands[0]->type).back().extent->value;
    std::vector<std::string> short_of;
    if (rows < least.rows) short_of.push_back(Cat("parts of ", rows, " rows (from ", least.rows, " on)"));
    if (bytes < least.bytes) short_of.push_back(Cat(bytes / 1024, " KiB a rank (from ", least.bytes / 1024, " on)"));
    if (terms < least.terms) short_of.push_back(Cat("sums of ", terms, " terms (from ", least.terms, " on)"));
    if (!some) short_of = {std::string(limits.WhyNone(op.MeshOf("mesh")->mesh, DimOf(op)))};
    // As a sum that is not even, or would take more than the bound of memory.
    if (short_of.empty()) short_of = {"it is no exchange that can be made in parts"};
    notes.push_back(note + base::Join(short_of, ", "));
  };
  for (const Overlap& overlap : FindOverlaps(program, plan::OverlapLimits::Unlimited())) {
    const bool gathers = overlap.kind == Overlap::Kind::kGathers;
    const Value& moved =
        gathers ? *uses.OpAt(overlap.communication).operands[0] : *uses.OpAt(overlap.products[0]).results[0];
    const int64_t bytes = segment::StorageBytes(moved) / (gathers ? 1 : overlap.ways);
    for (const size_t product : overlap.products)
      tell_whole(product, overlap.communication, bytes, &Team::exchanged, gathers ? "behind" : "before");
  }
  // Sums that the communicator makes.
  for (size_t i = 0; i < program.groups.size(); ++i) {
    const Op& op = uses.OpAt(i);
    if ((op.info->effects & ir::kComm) == 0) continue;
    const bool scatters = fusion::CodeOf(op) == FusionOp::kReduceScatter;
    if (!scatters && fusion::CodeOf(op) != FusionOp::kAllreduce) continue;
    const std::optional<size_t> product = uses.ProductOf(op.operands[0]);
    if (!product || !ComesApart(uses.OpAt(*product), WaysOf(op), 0)) continue;
    const int64_t bytes = segment::StorageBytes(*uses.OpAt(*product).results[0]) / WaysOf(op);
    tell_whole(*product, i, bytes, scatters ? &Team::scattered : &Team::summed, "before");
  }
  return notes;
}

}  // namespace hir::host
