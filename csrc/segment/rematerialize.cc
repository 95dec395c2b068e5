// A minimum cut between what is in memory and what the reader needs would be exact for one value; summing the cost
// of the operands counts a shared leaf once a use, and so errs towards reading. In practice the leaves are few and
// paid once: what one decision reads is free for the next.
#include "csrc/segment/rematerialize.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"

namespace hir::segment {
namespace {

using ir::Op;
using ir::Value;

// Arithmetic that costs no more than the memory it saves.
bool IsCheap(fusion::Prim prim) {
  using fusion::Prim;
  return prim <= Prim::kAbs || (prim >= Prim::kFloor && prim <= Prim::kSelect);
}

bool IsCheap(const fusion::Element* element) {
  if (element->kind == fusion::Element::Kind::kReduce) return false;
  if (element->kind == fusion::Element::Kind::kPrim && !IsCheap(element->prim)) return false;
  return std::all_of(element->args.begin(), element->args.end(), [](const auto* arg) { return IsCheap(arg); });
}

bool IsElementwise(const Op& op) {
  const auto links = fusion::AxesOf(op);
  return std::all_of(links.begin(), links.end(), [](const fusion::AxisLink& link) {
    return link.relation == fusion::AxisRelation::kSame || link.relation == fusion::AxisRelation::kBroadcast ||
           link.relation == fusion::AxisRelation::kSliced;
  });
}

bool CanRecompute(const Op& op) {
  if (op.info->effects != ir::kPure || fusion::CodeOf(op) == fusion::FusionOp::kSegmentSet) return false;
  if (!IsElementwise(op)) return false;
  fusion::ElementBuilder builder;
  std::vector<const fusion::Element*> index;
  for (size_t i = 0; i < ir::ValueAxes(*op.results[0]->type).size(); ++i)
    index.push_back(builder.Index(static_cast<int>(i)));
  return IsCheap(fusion::Define(builder, op, 0, index));
}

bool IsReturned(const ir::Graph& graph, const Value* value) {
  return std::ranges::any_of(graph.outputs, [value](const ir::Output& output) { return output.value == value; });
}

// The decisions for one group.
class Reader {
 public:
  Reader(ir::Graph& graph, const std::vector<Group>& groups, size_t index,
         std::unordered_map<const Op*, bool>& can_recompute)
      : graph_(graph), groups_(groups), group_(groups[index]), can_recompute_(can_recompute) {
    read_.insert(group_.inputs.begin(), group_.inputs.end());
    for (const Group& group : groups) in_memory_.insert(group.outputs.begin(), group.outputs.end());
  }

  // Replaces what is worth it, the largest first. True when something changed.
  Result<bool> Run() {
    std::vector<Value*> candidates;
    for (Value* input : group_.inputs) {
      if (input->def != nullptr && CanRecomputeOp(*input->def) && !IsBoundary(input)) candidates.push_back(input);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Value* a, const Value* b) { return StorageBytes(*a) > StorageBytes(*b); });
    for (Value* value : candidates) {
      read_.erase(value);
      ops_left_ = kRematerializedOpsMax;
      if (CostOfOperands(*value->def) < StorageBytes(*value) + WriteShare(value) && ops_left_ > 0) {
        HIR_TRY(Replace(value));
      } else {
        read_.insert(value);
      }
    }
    return !copies_.empty();
  }

  void Undo() {
    for (const auto& [op, operand, old] : replaced_) op->operands[operand] = old;
    for (auto it = copies_.rbegin(); it != copies_.rend(); ++it) graph_.body.Erase(*it);
  }
  const std::vector<Op*>& copies() const { return copies_; }

 private:
  bool CanRecomputeOp(const Op& op) {
    const auto found = can_recompute_.find(&op);
    if (found != can_recompute_.end()) return found->second;
    return can_recompute_.emplace(&op, CanRecompute(op)).first->second;
  }

  // Whether a segment_set reads `value` here: the user wants it in memory.
  bool IsBoundary(const Value* value) const {
    return std::ranges::any_of(group_.ops, [&](const Op* op) {
      return fusion::CodeOf(*op) == fusion::FusionOp::kSegmentSet && op->operands[0] == value;
    });
  }

  // The write that goes away when every reader recomputes, shared among them.
  int64_t WriteShare(const Value* value) const {
    int64_t readers = 0;
    for (const Group& group : groups_)
      readers += std::find(group.inputs.begin(), group.inputs.end(), value) != group.inputs.end();
    if (IsReturned(graph_, value)) return 0;
    return StorageBytes(*value) / std::max<int64_t>(readers, 1);
  }

  int64_t CostInMemory(const Value* value) const {
    const bool stored = value->def == nullptr || in_memory_.contains(value);
    return StorageBytes(*value) * (stored ? 1 : 2);
  }

  // Bytes that reading or remaking `value` moves.
  int64_t Cost(const Value* value) {
    if (value->type->kind != ir::TypeKind::kTensor && value->def == nullptr) return 0;
    if (read_.contains(value)) return 0;
    const int64_t in_memory = CostInMemory(value);
    if (value->def == nullptr || !CanRecomputeOp(*value->def) || --ops_left_ <= 0) return in_memory;
    return std::min(in_memory, CostOfOperands(*value->def));
  }

  int64_t CostOfOperands(const Op& op) {
    int64_t cost = 0;
    for (const Value* operand : op.operands) cost += Cost(operand);
    return cost;
  }

  // In the group, and in the copies made so far.
  Status Replace(Value* value) {
    std::vector<Op*> readers = group_.ops;
    readers.insert(readers.end(), copies_.begin(), copies_.end());
    HIR_ASSIGN(Value * remade, Remake(value));
    for (Op* reader : readers) {
      for (size_t i = 0; i < reader->operands.size(); ++i) {
        if (reader->operands[i] != value) continue;
        replaced_.push_back({reader, i, value});
        reader->operands[i] = remade;
      }
    }
    return {};
  }

  // Copies the op that makes `value`, and what it needs. A copy stands behind its original: there its operands are
  // known, and every reader of the original comes later.
  Result<Value*> Remake(Value* value) {
    if (const auto found = remade_.find(value); found != remade_.end()) return found->second;
    const Op& op = *value->def;
    std::unordered_map<const Value*, Value*> values;
    for (Value* operand : op.operands) {
      values[operand] = operand;
      const bool tensor = operand->type->kind == ir::TypeKind::kTensor;  // A host scalar has no memory to be read from.
      const bool remake = !read_.contains(operand) && operand->def != nullptr && CanRecomputeOp(*operand->def) &&
                          (!tensor || CostOfOperands(*operand->def) < CostInMemory(operand));
      if (remake) {
        HIR_ASSIGN(values[operand], Remake(operand));
      } else {
        read_.insert(operand);
      }
    }
    ir::Builder builder(graph_, graph_.body, op.next);
    HIR_ASSIGN(Op * copy, ir::CloneOp(op, builder, values));
    copy->results[0]->layout = value->layout;
    copies_.push_back(copy);
    return remade_[value] = copy->results[0];
  }

  struct Replaced {
    Op* op;
    size_t operand;
    Value* old;
  };

  ir::Graph& graph_;
  const std::vector<Group>& groups_;
  const Group& group_;
  std::unordered_map<const Op*, bool>& can_recompute_;
  std::unordered_set<const Value*> read_;       // Free for this group.
  std::unordered_set<const Value*> in_memory_;  // Crosses some boundary.
  std::unordered_map<const Value*, Value*> remade_;
  std::vector<Op*> copies_;
  std::vector<Replaced> replaced_;
  int ops_left_ = 0;
};

// The ops that something needs: whatever is not pure, and what the program returns, lead to them.
std::unordered_set<const Op*> LiveOps(const ir::Graph& graph) {
  std::unordered_set<const Value*> needed;
  for (const ir::Output& output : graph.outputs) needed.insert(output.value);
  std::unordered_set<const Op*> live;
  for (const Op* op = graph.body.last; op != nullptr; op = op->prev) {
    const bool read = std::ranges::any_of(op->results, [&](const Value* result) { return needed.contains(result); });
    if (op->info->effects == ir::kPure && !read) continue;
    live.insert(op);
    needed.insert(op->operands.begin(), op->operands.end());
  }
  return live;
}

// `groups` without the ops that nothing needs, with what they then read and write. Some may have no ops.
std::vector<Group> Live(const ir::Graph& graph, const std::vector<Group>& groups) {
  const std::unordered_set<const Op*> live = LiveOps(graph);
  constexpr size_t kSeveral = SIZE_MAX;
  std::unordered_map<const Value*, size_t> reader;  // The group; kSeveral: several.
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const Op* op : groups[i].ops) {
      if (!live.contains(op)) continue;
      for (const Value* operand : op->operands) {
        const auto [known, first] = reader.emplace(operand, i);
        if (!first && known->second != i) known->second = kSeveral;
      }
    }
  }
  for (const ir::Output& output : graph.outputs) reader[output.value] = kSeveral;
  std::vector<Group> result(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    Group& group = result[i];
    std::ranges::copy_if(groups[i].ops, std::back_inserter(group.ops), [&](const Op* op) { return live.contains(op); });
    std::unordered_set<const Value*> known;  // Made inside, or among the inputs already.
    for (const Op* op : group.ops) known.insert(op->results.begin(), op->results.end());
    for (const Op* op : group.ops) {
      for (Value* operand : op->operands) {
        if (known.insert(operand).second) group.inputs.push_back(operand);
      }
      for (Value* value : op->results) {
        const auto found = reader.find(value);
        if (found != reader.end() && found->second != i) group.outputs.push_back(value);
      }
    }
  }
  return result;
}

bool Same(const Group& a, const Group& b) { return a.ops == b.ops && a.inputs == b.inputs && a.outputs == b.outputs; }

// `ops` and `copies`, as they stand in the graph.
std::vector<Op*> InOrder(const ir::Graph& graph, std::vector<Op*> ops, const std::vector<Op*>& copies) {
  ops.insert(ops.end(), copies.begin(), copies.end());
  const std::unordered_set<const Op*> wanted(ops.begin(), ops.end());
  ops.clear();
  for (Op* op = graph.body.first; op != nullptr; op = op->next) {
    if (wanted.contains(op)) ops.push_back(op);
  }
  return ops;
}

}  // namespace

Status Rematerialize(ir::Graph& graph, std::vector<Group>& groups, const std::function<bool(const GroupView&)>& fits) {
  groups = Live(graph, groups);
  std::unordered_map<const Op*, bool> can_recompute;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].ops.empty() || groups[i].ops[0]->info->effects != ir::kPure) continue;
    Reader reader(graph, groups, i, can_recompute);
    HIR_ASSIGN(const bool changed, reader.Run());
    if (!changed) continue;
    // Not only this group: those it reads of write other values then, and some ops are needed no more.
    std::vector<Group> with_copies = groups;
    with_copies[i].ops = InOrder(graph, groups[i].ops, reader.copies());
    with_copies = Live(graph, with_copies);
    bool all_fit = true;
    for (size_t k = 0; k < groups.size() && all_fit; ++k) {
      const Group& group = with_copies[k];
      all_fit = group.ops.empty() || Same(group, groups[k]) || fits(group.View(graph));
    }
    if (all_fit) {
      groups = std::move(with_copies);
    } else {
      reader.Undo();
    }
  }
  const std::unordered_set<const Op*> live = LiveOps(graph);
  for (Op* op = graph.body.last; op != nullptr;) {
    Op* const previous = op->prev;
    if (!live.contains(op)) graph.body.Erase(op);
    op = previous;
  }
  std::erase_if(groups, [](const Group& group) { return group.ops.empty(); });
  return {};
}

}  // namespace hir::segment
