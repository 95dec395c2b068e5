#include "csrc/segment/forward.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/fusion/axes.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"
#include "csrc/segment/group.h"

namespace hir::segment {
namespace {

using ir::Op;
using ir::Value;

// Every element of the result comes from one element of the operand, in place or broadcast.
bool KeepsElements(const Op& op) {
  const fusion::FusionOp code = fusion::CodeOf(op);
  if (code == fusion::FusionOp::kSegmentSet || code == fusion::FusionOp::kSet) return false;
  const auto links = fusion::AxesOf(op);
  return std::all_of(links.begin(), links.end(), [](const fusion::AxisLink& link) {
    return link.relation == fusion::AxisRelation::kSame || link.relation == fusion::AxisRelation::kBroadcast;
  });
}

// The length of the chain of forwardable ops that ends in `op`; 0 when it is not forwardable.
int ChainLength(const Op& op, const std::unordered_map<const Value*, int>& lengths, const Sizes& sizes) {
  if (op.info->effects != ir::kPure || op.results.size() != 1) return 0;
  int length = 1;
  int tensors = 0;
  int64_t bytes_read = 0;
  for (const Value* operand : op.operands) {
    if (operand->def != nullptr) {
      const auto found = lengths.find(operand);
      if (found == lengths.end()) return 0;
      length = std::max(length, found->second + 1);
    }
    if (operand->type->kind != ir::TypeKind::kTensor) continue;
    ++tensors;
    bytes_read += StorageBytes(*operand, sizes);
  }
  if (tensors > 1 || length > kForwardDepthMax) return 0;
  if (tensors == 1 && (!KeepsElements(op) || bytes_read > StorageBytes(*op.results[0], sizes))) return 0;
  return length;
}

bool IsReturned(const ir::Graph& graph, const Value* value) {
  return std::any_of(graph.outputs.begin(), graph.outputs.end(),
                     [value](const ir::Output& output) { return output.value == value; });
}

bool SameValues(std::span<Value* const> a, std::span<Value* const> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

Status Forward(ir::Graph& graph, bool tensors, const Sizes& sizes) {
  std::vector<Op*> forwardable;
  std::unordered_map<const Value*, int> lengths;  // Lookup only.
  for (Op* op = graph.body.first; op != nullptr; op = op->next) {
    const int length = ChainLength(*op, lengths, sizes);
    if (length == 0 || IsReturned(graph, op->results[0])) continue;
    if (!tensors && op->results[0]->type->kind == ir::TypeKind::kTensor) continue;
    lengths[op->results[0]] = length;
    forwardable.push_back(op);
  }
  // Readers before what they read: a copied reader is a reader of its own.
  std::vector<std::vector<Op*>> uses = ir::UsesOf(graph);
  for (auto it = forwardable.rbegin(); it != forwardable.rend(); ++it) {
    Op* op = *it;
    Value* result = op->results[0];
    std::vector<Op*> readers = uses[static_cast<size_t>(result->id)];
    readers.erase(std::unique(readers.begin(), readers.end()),
                  readers.end());  // One that reads it twice.
    // Library calls and communications read it from memory, as what is behind a boundary does: one serves them all.
    const auto computes = [](const Op* reader) {
      return reader->info->effects == ir::kPure && fusion::CodeOf(*reader) != fusion::FusionOp::kSegmentSet;
    };
    const auto last = std::stable_partition(readers.begin(), readers.end(), computes);
    const bool is_shared = last != readers.end();
    readers.erase(last, readers.end());
    for (size_t i = is_shared ? 0 : 1; i < readers.size(); ++i) {
      ir::Builder builder(graph, graph.body, readers[i]);
      std::unordered_map<const Value*, Value*> values;
      for (Value* operand : op->operands) values[operand] = operand;
      HIR_ASSIGN(Op * copy, ir::CloneOp(*op, builder, values));
      copy->results[0]->layout = result->layout;
      std::replace(readers[i]->operands.begin(), readers[i]->operands.end(), result, copy->results[0]);
      for (Value* operand : op->operands) uses[static_cast<size_t>(operand->id)].push_back(copy);
    }
  }
  return {};
}

namespace {

// The copies of a group, when each reader reads the first one of its like. Undone by Restore.
class Merging {
 public:
  explicit Merging(const Group& group) {
    for (Op* op : group.ops) {
      for (Value*& operand : op->operands) {
        const auto found = replacement_.find(operand);
        if (found == replacement_.end()) continue;
        redirected_.emplace_back(&operand, operand);
        operand = found->second;
      }
      const auto same = std::find_if(kept.begin(), kept.end(), [&](const Op* other) { return AreCopies(*other, *op); });
      const bool read_outside =
          std::find(group.outputs.begin(), group.outputs.end(), op->results[0]) != group.outputs.end();
      if (same == kept.end() || read_outside) {
        kept.push_back(op);
        continue;
      }
      replacement_[op->results[0]] = (*same)->results[0];
      copies.push_back(op);
    }
  }

  void Restore() {
    for (auto it = redirected_.rbegin(); it != redirected_.rend(); ++it) *it->first = it->second;
  }

  std::vector<Op*> kept;
  std::vector<Op*> copies;

 private:
  static bool AreCopies(const Op& a, const Op& b) {
    return a.info == b.info && a.info->effects == ir::kPure && SameValues(a.operands, b.operands) &&
           ir::EqualAttrs(a, b);
  }

  std::unordered_map<const Value*, Value*> replacement_;  // Lookup only.
  std::vector<std::pair<Value**, Value*>> redirected_;    // A place, and what it held.
};

}  // namespace

void MergeCopies(ir::Graph& graph, std::vector<Group>& groups, const std::function<bool(const GroupView&)>& fits) {
  std::vector<std::pair<size_t, std::vector<Op*>>> changed;  // A group, and what it keeps.
  for (size_t i = 0; i < groups.size(); ++i) {
    Merging merging(groups[i]);
    if (merging.copies.empty()) continue;
    if (!fits({&graph, merging.kept, groups[i].inputs, groups[i].outputs})) {
      merging.Restore();
      continue;
    }
    for (Op* copy : merging.copies) graph.body.Erase(copy);
    changed.emplace_back(i, std::move(merging.kept));
  }
  Groups all(graph);
  for (const auto& [index, kept] : changed) {
    std::vector<int> positions;
    for (const Op* op : kept) positions.push_back(all.PositionOf(op));
    std::ranges::sort(positions);
    groups[index] = all.Of(positions);
  }
}

}  // namespace hir::segment
