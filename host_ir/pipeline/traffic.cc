#include "host_ir/pipeline/traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/fusion/axes.h"
#include "csrc/segment/min_cut.h"
#include "csrc/segment/segment.h"

namespace hir::host {
namespace {

using ir::Op;
using ir::Value;
using segment::MinCut;

const ir::Expr* StoredBytes(ir::ExprPool& pool, const Value& value) {
  if (!IsTensor(value)) return pool.Const(0);
  const ir::Expr* bytes = pool.Const(DTypeBytes(value.type->dtype));
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) bytes = pool.Mul(bytes, pool.Import(axis.extent));
  }
  return bytes;
}

// Whether `op` reads operand `index` at indices that are data: an element for each of its own at most.
bool IsGathered(const Op& op, int index) {
  return std::ranges::any_of(fusion::AxesOf(op), [index](const fusion::AxisLink& link) {
    return link.operand == index && link.relation == fusion::AxisRelation::kGathered;
  });
}

// At most so many bytes of `value` does `op` read; null: all of it.
const ir::Expr* PartRead(ir::ExprPool& pool, const Value& value, const Op& op) {
  if (segment::IsSlice(op)) return StoredBytes(pool, *op.results[0]);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == &value && !IsGathered(op, static_cast<int>(i))) return nullptr;
  }
  const ir::Expr* bytes = pool.Const(DTypeBytes(value.type->dtype));
  for (const ir::Axis& axis : op.results[0]->type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) bytes = pool.Mul(bytes, pool.Import(axis.extent));
  }
  return bytes;
}

// Bytes that `ops` read of `value`.
const ir::Expr* ReadBytes(ir::ExprPool& pool, const Value& value, std::span<Op* const> ops) {
  const ir::Expr* const whole = StoredBytes(pool, value);
  const ir::Expr* parts = pool.Const(0);
  for (const Op* op : ops) {
    if (std::ranges::find(op->operands, &value) == op->operands.end()) continue;
    const ir::Expr* const part = PartRead(pool, value, *op);
    if (part == nullptr) return whole;
    parts = pool.Add(parts, part);
  }
  return pool.Min(whole, parts);
}

// The floor of one graph without loops.
class Floor {
 public:
  Floor(const ProgramPlan& plan, const codegen::Sizes& sizes) : plan_(plan), sizes_(sizes) {
    for (const LoweredSegment& segment : plan.segments) {
      for (const Op* op : segment.group->ops) kind_[op] = segment.kind;
    }
    for (Op* op = plan.local.graph->body.first; op != nullptr; op = op->next) Visit(*op);
    for (const ir::Output& output : plan.local.graph->outputs) Need(output.value);
  }

  int64_t Bytes() const {
    std::map<int, std::vector<const Value*>> needed;  // By pass.
    int64_t bytes = of_calls_;
    for (const Value* value : needed_) {
      needed[MadeIn(value)].push_back(value);
      bytes += StorageBytes(value);
    }
    for (const auto& [pass, values] : needed) bytes += Read(pass, values);
    return bytes;
  }

 private:
  int64_t StorageBytes(const Value* value) const { return segment::StorageBytes(*value, sizes_); }
  SegmentKind KindOf(const Op& op) const { return kind_.at(&op); }

  bool IsView(const Value* value) const { return value->def != nullptr && KindOf(*value->def) == SegmentKind::kView; }

  // The memory that `value` is all of, under another shape perhaps.
  const Value* Root(const Value* value) const {
    while (IsView(value) && StorageBytes(value) == StorageBytes(value->def->operands[0]))
      value = value->def->operands[0];
    return value;
  }

  // The memory that `value` is a part of.
  const Value* MemoryOf(const Value* value) const {
    while (IsView(value)) value = value->def->operands[0];
    return value;
  }

  bool IsComputed(const Value* value) const {
    return value->def != nullptr && KindOf(*value->def) == SegmentKind::kKernel;
  }

  int PassOf(const Value* value) const {
    const auto found = pass_.find(MemoryOf(value));
    return found == pass_.end() ? 0 : found->second;
  }

  // The pass that computes it. A sum that ends a pass can be read in the next one.
  int MadeIn(const Value* value) const { return PassOf(value) - (ends_pass_.contains(value) ? 1 : 0); }

  // `value` is in memory when all is over.
  void Need(const Value* value) {
    const Value* const memory = MemoryOf(value);
    if (IsComputed(memory) && IsTensor(*memory)) needed_.insert(memory);
  }

  void Visit(Op& op) {
    const SegmentKind kind = KindOf(op);
    if (kind == SegmentKind::kView) return;
    int pass = 0;
    std::set<const Value*> roots;
    for (const Value* operand : op.operands) {
      if (!IsTensor(*operand)) continue;
      pass = std::max(pass, PassOf(operand));
      roots.insert(Root(operand));
    }
    if (kind != SegmentKind::kKernel) {
      for (const Value* root : roots) Need(root);
      if (kind == SegmentKind::kLibrary) {
        for (const Value* root : roots) of_calls_ += StorageBytes(root);
        for (const Value* result : op.results) of_calls_ += StorageBytes(result);
      }
      for (const Value* result : op.results) pass_[result] = pass + 1;
      return;
    }
    for (const Value* root : roots) read_in_[root].insert(pass);
    for (Value* operand : op.operands) {
      if (IsTensor(*operand)) readers_[operand].push_back(&op);
    }
    const bool ends_pass = Terms(op) > kPassElements;
    for (const Value* result : op.results) {
      pass_[result] = pass + (ends_pass ? 1 : 0);
      if (!ends_pass) continue;
      ends_pass_.insert(result);
      needed_.insert(result);
    }
  }

  // Elements that a reduction makes each one of the result of.
  int64_t Terms(const Op& op) const {
    double terms = 1;
    for (const fusion::AxisLink& link : fusion::AxesOf(op)) {
      if (link.relation != fusion::AxisRelation::kReduced && link.relation != fusion::AxisRelation::kContracted)
        continue;
      const auto axes = ir::ValueAxes(*op.operands[static_cast<size_t>(link.operand)]->type);
      const auto extent =
          ir::Evaluate(axes[static_cast<size_t>(link.operand_axis)].extent, [this](std::string_view symbol) {
            const auto found = sizes_.find(std::string(symbol));
            return found == sizes_.end() ? segment::kUnknownExtent : found->second;
          });
      if (link.operand == 0) terms *= static_cast<double>(extent.ok() ? *extent : segment::kUnknownExtent);
    }
    return static_cast<int64_t>(std::min(terms, 0x1p62));
  }

  // The least that a pass reads to make `values`, with the writes of others that are kept for it.
  int64_t Read(int pass, const std::vector<const Value*>& values) const {
    MinCut cut;
    std::unordered_map<const Value*, int> nodes;
    std::vector<const Value*> known;
    const auto node_of = [&](const Value* value) {
      const auto found = nodes.find(value);
      if (found != nodes.end()) return found->second;
      const int node = cut.AddNode(PriceOfReading(value, pass), IsComputed(value) ? 0 : MinCut::kNever);
      known.push_back(value);
      return nodes[value] = node;
    };
    for (const Value* value : values) cut.Need(node_of(value));
    for (size_t i = 0; i < known.size(); ++i) {
      if (!IsComputed(known[i])) continue;
      for (const Value* operand : known[i]->def->operands) {
        if (IsTensor(*operand)) cut.AddOperand(nodes.at(known[i]), node_of(Root(operand)));
      }
    }
    return cut.Solve().cost;
  }

  int64_t PriceOfReading(const Value* value, int pass) const {
    const int64_t bytes = StorageBytes(value);
    if (!IsComputed(value)) return std::min(bytes, PartsRead(value));
    const Op& op = *value->def;
    if (segment::IsSlice(op) && !IsComputed(Root(op.operands[0]))) return bytes;
    if (MadeIn(value) >= pass) return MinCut::kNever;
    if (needed_.contains(value)) return bytes;
    const auto readers = read_in_.find(value);
    int64_t later = 0;
    if (readers != read_in_.end()) {
      later = std::ranges::count_if(readers->second, [&](int reader) { return reader > MadeIn(value); });
    }
    return bytes + bytes / std::max<int64_t>(later, 1);
  }

  // Bytes that all kernels together read of what is in memory before any of them.
  int64_t PartsRead(const Value* value) const {
    const auto readers = readers_.find(value);
    if (readers == readers_.end()) return StorageBytes(value);  // Views of it are read.
    ir::ExprPool pool;
    const auto bytes = ir::Evaluate(ReadBytes(pool, *value, readers->second), [this](std::string_view symbol) {
      const auto found = sizes_.find(std::string(symbol));
      return found == sizes_.end() ? segment::kUnknownExtent : found->second;
    });
    return bytes.ok() ? *bytes : StorageBytes(value);
  }

  const ProgramPlan& plan_;
  const codegen::Sizes& sizes_;
  std::unordered_map<const Value*, std::vector<Op*>> readers_;  // Kernels' ops. Lookups only, as all of these.
  std::unordered_map<const Op*, SegmentKind> kind_;
  std::unordered_map<const Value*, int> pass_;
  std::unordered_set<const Value*> ends_pass_;
  std::unordered_map<const Value*, std::set<int>> read_in_;  // Passes.
  std::unordered_set<const Value*> needed_;                  // Computed, and in memory in any case.
  int64_t of_calls_ = 0;
};

}  // namespace

const ir::Expr* BytesOf(ir::ExprPool& pool, const ProgramPlan& plan, const LoweredSegment& segment) {
  const segment::Group& group = *segment.group;
  const ir::Expr* bytes = pool.Const(0);
  if (segment.kind == SegmentKind::kView || segment.kind == SegmentKind::kLoop) return bytes;
  if (segment.kind != SegmentKind::kKernel) {
    for (const Value* value : group.inputs) bytes = pool.Add(bytes, StoredBytes(pool, *value));
    for (const Value* value : group.outputs) bytes = pool.Add(bytes, StoredBytes(pool, *value));
    return bytes;
  }
  const codegen::KernelPlan& kernel = plan.kernels[static_cast<size_t>(segment.kernel)];
  for (const codegen::Launch& launch : kernel.launches) {
    for (const Value* value : launch.inputs) bytes = pool.Add(bytes, ReadBytes(pool, *value, group.ops));
    for (const Value* value : launch.outputs) bytes = pool.Add(bytes, StoredBytes(pool, *value));
    for (const int workspace : launch.workspaces)
      bytes = pool.Add(bytes, pool.Import(kernel.workspaces[static_cast<size_t>(workspace)].bytes));
  }
  return bytes;
}

std::optional<Traffic> TrafficOf(const ProgramPlan& plan, const codegen::Sizes& sizes) {
  if (!plan.segmented->loops.empty()) return std::nullopt;
  Traffic traffic;
  ir::ExprPool pool;
  for (const LoweredSegment& segment : plan.segments) {
    if (segment.kind == SegmentKind::kCommunication) continue;
    const auto bytes =
        ir::Evaluate(BytesOf(pool, plan, segment), [&sizes](std::string_view symbol) -> std::optional<int64_t> {
          const auto found = sizes.find(std::string(symbol));
          return found == sizes.end() ? std::nullopt : std::optional(found->second);
        });
    const std::optional<int64_t> sum = bytes.ok() ? base::CheckedAdd(traffic.bytes, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
    traffic.bytes = *sum;
  }
  // Outputs count in the pass that makes them first; a plan may make them in a later one with less.
  traffic.floor = std::min(Floor(plan, sizes).Bytes(), traffic.bytes);
  return traffic;
}

}  // namespace hir::host
