#include "host_ir/lower/overlap.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "csrc/fusion/fusion_ops.h"
#include "host_ir/lower/storage.h"

namespace hir::host {
namespace {

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
  bool HasGaps(const Value* value) const { return program_.strides.contains(value); }

 private:
  const Segmented& program_;
  std::unordered_map<const Value*, std::vector<size_t>> readers_;  // Lookups only.
  std::set<const Value*> returned_;                                // Likewise.
};

bool IsConstant(const Value& value) {
  return std::ranges::all_of(ir::ValueAxes(*value.type), [](const ir::Axis& axis) { return axis.extent->IsConst(); });
}

int64_t WaysOf(const Op& op) { return op.MeshOf("mesh")->mesh.Size(*mesh::ParseParallelType(op.Name("dim"))); }

bool IsProduct(const Group& group) {
  return group.ops.size() == 1 && (group.ops[0]->info->effects & ir::kLibrary) != 0;
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
  if (axis < 0 || ir::ValueAxes(*rows.type)[static_cast<size_t>(axis)].extent->value / ways < rows_min) return false;
  return axis == RowAxis(*result.type, ways) && ir::ValueAxes(*rows.type).size() == rank &&
         static_cast<size_t>(axis) + 1 < rank && IsConstant(rows) && IsConstant(result) && is_shared(1, 2) &&
         is_shared(2, 1);
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
    if (!IsLarge(*op.operands[0], limits.gathered_bytes_min) || uses.HasGaps(op.operands[0])) continue;
    if (!CollectProducts(uses, op.results[0], overlap.ways, limits.rows_min, overlap.products)) continue;
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
    const bool large = IsConstant(*result) && segment::StorageBytes(*result) / ways >= limits.gathered_bytes_min;
    if (!large || !ComesApart(uses.OpAt(i), ways, limits.rows_min) || uses.HasGaps(op.results[0])) continue;
    found.push_back({.kind = Overlap::Kind::kSends, .communication = *communication, .products = {i}, .ways = ways});
  }
  return found;
}

}  // namespace hir::host
