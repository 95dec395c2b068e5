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
  return std::all_of(element->args.begin(), element->args.end(),
                     [](const auto* arg) { return IsCheap(arg); });
}

bool IsElementwise(const Op& op) {
  const auto links = fusion::AxesOf(op);
  return std::all_of(links.begin(), links.end(), [](const fusion::AxisLink& link) {
    return link.relation == fusion::AxisRelation::kSame ||
           link.relation == fusion::AxisRelation::kBroadcast ||
           link.relation == fusion::AxisRelation::kSliced;
  });
}

bool CanRecompute(const Op& op) {
  if (op.info->effects != ir::kPure || fusion::CodeOf(op) == fusion::FusionOp::kSegmentSet)
    return false;
  if (!IsElementwise(op)) return false;
  fusion::ElementBuilder builder;
  std::vector<const fusion::Element*> index;
  for (size_t i = 0; i < ir::ValueAxes(*op.results[0]->type).size(); ++i)
    index.push_back(builder.Index(static_cast<int>(i)));
  return IsCheap(fusion::Define(builder, op, 0, index));
}

// The decisions for one group.
class Reader {
 public:
  Reader(ir::Graph& graph, std::vector<Group>& groups, size_t index,
         std::unordered_map<const Op*, bool>& can_recompute)
      : graph_(graph), groups_(groups), group_(groups[index]), can_recompute_(can_recompute) {
    read_.insert(group_.inputs.begin(), group_.inputs.end());
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Value* output : groups[i].outputs) in_memory_.insert(output);
    }
  }

  // Replaces what is worth it, the largest first. True when something changed.
  Result<bool> Run() {
    std::vector<Value*> candidates;
    for (Value* input : group_.inputs) {
      if (input->def != nullptr && CanRecomputeOp(*input->def)) candidates.push_back(input);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const Value* a, const Value* b) {
      return StorageBytes(*a) > StorageBytes(*b);
    });
    for (Value* value : candidates) {
      read_.erase(value);
      ops_left_ = kRematerializedOpsMax;
      if (CostOfOperands(*value->def) < StorageBytes(*value) + WriteShare(value) && ops_left_ > 0) {
        HIR_TRY(Replace(value));
      } else {
        read_.insert(value);
      }
    }
    return changed_;
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

  // The write that goes away when every reader recomputes, shared among them.
  int64_t WriteShare(const Value* value) const {
    int64_t readers = 0;
    for (const Group& group : groups_)
      readers += std::find(group.inputs.begin(), group.inputs.end(), value) != group.inputs.end();
    const bool returned =
        std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                    [value](const ir::Output& output) { return output.value == value; });
    return returned ? 0 : StorageBytes(*value) / std::max<int64_t>(readers, 1);
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

  Status Replace(Value* value) {
    for (Op* reader : group_.ops) {
      for (size_t i = 0; i < reader->operands.size(); ++i) {
        if (reader->operands[i] != value) continue;
        if (!remade_.contains(value)) HIR_TRY(Remake(value, reader));
        replaced_.push_back({reader, i, value});
        reader->operands[i] = remade_.at(value);
      }
    }
    // Copies made for earlier values may read this one, too.
    for (Op* copy : copies_) {
      for (size_t i = 0; i < copy->operands.size(); ++i) {
        if (copy->operands[i] == value) HIR_TRY(RemakeBefore(value, copy, i));
      }
    }
    changed_ = true;
    return {};
  }

  Status RemakeBefore(Value* value, Op* copy, size_t operand) {
    remade_.erase(value);  // The earlier copy may stand behind this reader.
    const size_t known = copies_.size();
    HIR_TRY(Remake(value, copy));
    copy->operands[operand] = remade_.at(value);
    return known <= copies_.size() ? Status() : Internal("rematerialization lost a copy");
  }

  // Copies the op that makes `value`, and what it needs, in front of `position`.
  Status Remake(Value* value, Op* position) {
    const Op& op = *value->def;
    std::unordered_map<const Value*, Value*> values;
    for (Value* operand : op.operands) {
      values[operand] = operand;
      const bool tensor = operand->type->kind ==
                          ir::TypeKind::kTensor;  // A host scalar has no memory to be read from.
      const bool remake = !read_.contains(operand) && operand->def != nullptr &&
                          CanRecomputeOp(*operand->def) &&
                          (!tensor || CostOfOperands(*operand->def) < CostInMemory(operand));
      if (remake) {
        if (!remade_.contains(operand)) HIR_TRY(Remake(operand, position));
        values[operand] = remade_.at(operand);
      } else {
        read_.insert(operand);
      }
    }
    ir::Builder builder(graph_, graph_.body, position);
    HIR_ASSIGN(Op * copy, ir::CloneOp(op, builder, values));
    copy->results[0]->layout = value->layout;
    copies_.push_back(copy);
    remade_[value] = copy->results[0];
    return {};
  }

  struct Replaced {
    Op* op;
    size_t operand;
    Value* old;
  };

  ir::Graph& graph_;
  const std::vector<Group>& groups_;
  const Group group_;  // As it was.
  std::unordered_map<const Op*, bool>& can_recompute_;
  std::unordered_set<const Value*> read_;       // Free for this group.
  std::unordered_set<const Value*> in_memory_;  // Crosses some boundary.
  std::unordered_map<const Value*, Value*> remade_;
  std::vector<Op*> copies_;
  std::vector<Replaced> replaced_;
  int ops_left_ = 0;
  bool changed_ = false;
};

// Drops ops that nothing reads, and brings the groups up to date.
void Refresh(ir::Graph& graph, std::vector<Group>& groups) {
  std::vector<int> readers(graph.values().size(), 0);
  for (const ir::Output& output : graph.outputs) ++readers[static_cast<size_t>(output.value->id)];
  for (const Op* op = graph.body.first; op != nullptr; op = op->next) {
    for (const Value* operand : op->operands) ++readers[static_cast<size_t>(operand->id)];
  }
  for (Op* op = graph.body.last; op != nullptr;) {
    Op* const previous = op->prev;
    if (op->info->effects == ir::kPure && readers[static_cast<size_t>(op->results[0]->id)] == 0) {
      for (const Value* operand : op->operands) --readers[static_cast<size_t>(operand->id)];
      graph.body.Erase(op);
    }
    op = previous;
  }
  for (Group& group : groups) {
    std::erase_if(group.ops, [](const Op* op) { return op->parent == nullptr; });
    group = MakeGroup(graph, std::move(group.ops));
  }
  std::erase_if(groups, [](const Group& group) { return group.ops.empty(); });
}

}  // namespace

Status Rematerialize(ir::Graph& graph, std::vector<Group>& groups,
                     const std::function<bool(const GroupView&)>& fits) {
  std::unordered_map<const Op*, bool> can_recompute;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].ops[0]->info->effects != ir::kPure) continue;
    Reader reader(graph, groups, i, can_recompute);
    HIR_ASSIGN(const bool changed, reader.Run());
    if (!changed) continue;
    std::vector<Op*> ops = groups[i].ops;
    ops.insert(ops.end(), reader.copies().begin(), reader.copies().end());
    Group with_copies = MakeGroup(graph, std::move(ops));
    if (fits(with_copies.View(graph))) {
      groups[i] = std::move(with_copies);
    } else {
      reader.Undo();
    }
  }
  Refresh(graph, groups);
  return {};
}

}  // namespace hir::segment
