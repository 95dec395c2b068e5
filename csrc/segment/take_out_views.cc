#include "csrc/segment/take_out_views.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"
#include "csrc/segment/group.h"

namespace hir::segment {
namespace {

using ir::Op;
using ir::Value;

class TakingOut {
 public:
  TakingOut(ir::Graph& graph, std::vector<Group>& groups, const ViewRules& rules)
      : graph_(graph),
        groups_(groups),
        rules_(rules),
        uses_(ir::UsesOf(graph)),
        before_(groups.size()),
        behind_(groups.size()),
        taken_(groups.size()),
        written_(groups.size()) {
    for (const ir::Output& output : graph.outputs) returned_.insert(output.value);
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Op* op : groups[i].ops) group_of_[op] = i;
    }
  }

  Status Run() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto is_pure = [](const Op* op) { return op->info->effects == ir::kPure; };
      if (!std::ranges::all_of(groups_[i].ops, is_pure) || IsViews(i)) continue;
      HIR_TRY(TakeOutOf(i));
    }
    if (!changed_) return {};
    EraseUnread();
    Regroup();
    return {};
  }

 private:
  bool IsReturned(const Value* value) const { return returned_.contains(value); }
  bool IsOf(size_t group, const Op* op) const {
    const auto found = group_of_.find(op);
    return found != group_of_.end() && found->second == group;
  }

  bool IsReadIn(size_t group, const Value* value) const {
    return std::ranges::any_of(uses_[static_cast<size_t>(value->id)],
                               [&](const Op* reader) { return IsOf(group, reader); });
  }

  // Whether it is nothing but views of what others make.
  bool IsViews(size_t group) const {
    const auto is_view = [this](const Op* op) { return rules_.is_strided_view(*op); };
    if (!std::ranges::all_of(groups_[group].ops, is_view)) return false;
    return std::ranges::all_of(groups_[group].outputs, [&](const Value* output) {
      const std::vector<Op*> views = ViewsBehind(group, output);
      if (views.empty()) return false;
      const Op* const first = views.back()->operands[0]->def;
      return first == nullptr || !IsOf(group, first);
    });
  }

  // The ops from `output` back to what is no view, not of this group, or returned: that has memory of its own.
  std::vector<Op*> ViewsBehind(size_t group, const Value* output, const std::function<bool(const Op&)>& is_view) const {
    std::vector<Op*> views;
    for (const Value* value = output; value->def != nullptr && IsOf(group, value->def) && is_view(*value->def);
         value = value->def->operands[0]) {
      if (IsReturned(value)) break;
      views.push_back(value->def);
    }
    return views;
  }

  // Those in any order where all readers take them so.
  std::vector<Op*> ViewsBehind(size_t group, const Value* output) const {
    std::vector<Op*> plain = ViewsBehind(group, output, rules_.is_view);
    std::vector<Op*> strided = ViewsBehind(group, output, rules_.is_strided_view);
    if (strided.size() == plain.size()) return plain;
    std::vector<Op*> readers = uses_[static_cast<size_t>(output->id)];
    std::erase_if(readers, [&](const Op* reader) { return IsOf(group, reader); });
    const std::vector<Op*> forward(strided.rbegin(), strided.rend());
    return rules_.are_read_in_place(forward, readers) ? strided : plain;
  }

  // Whether `output` is returned, and a view of what is computed for itself. On its own such a view costs nothing: the
  // value is written into the output's memory.
  bool IsReturnedView(const Value* output) const {
    if (!IsReturned(output) || !rules_.is_view(*output->def)) return false;
    const Value* const root = output->def->operands[0];
    return root->def != nullptr && !rules_.is_view(*root->def) && !IsReturned(root) &&
           !written_elsewhere_.contains(root);
  }

  void SetApart(size_t group, const Value* output, std::vector<Op*>& where) {
    Op* const op = output->def;
    written_elsewhere_.insert(op->operands[0]);
    std::erase(groups_[group].ops, op);
    group_of_.erase(op);
    where.push_back(op);
    changed_ = true;
  }

  // The views between `output` and a value that nothing else reads, the first one first; none where that cannot be
  // written as `output` has it, or the group computes with `output`.
  std::vector<Op*> WrittenInPlace(size_t group, const Value* output) const {
    if (IsReadIn(group, output)) return {};
    std::vector<Op*> views;
    for (const Value* value = output; value->def != nullptr && IsOf(group, value->def);
         value = value->def->operands[0]) {
      if (!rules_.is_strided_view(*value->def)) return {};
      const bool is_between = value != output;
      if (is_between && (IsReturned(value) || uses_[static_cast<size_t>(value->id)].size() != 1)) return {};
      views.insert(views.begin(), value->def);
    }
    if (std::ranges::all_of(views, [this](const Op* view) { return rules_.is_view(*view); })) return {};
    const Value* const root = views[0]->operands[0];
    const bool is_ours = root->def != nullptr && !IsReturned(root) && uses_[static_cast<size_t>(root->id)].size() == 1;
    return is_ours && rules_.are_written_in_place(views) ? views : std::vector<Op*>();
  }

  Status TakeOutOf(size_t group) {
    const std::vector<Value*> outputs = groups_[group].outputs;
    for (const Value* output : outputs) {
      const std::vector<Op*> views = WrittenInPlace(group, output);
      if (views.empty() || views.size() == groups_[group].ops.size()) continue;
      for (Op* view : views) {
        std::erase(groups_[group].ops, view);
        group_of_.erase(view);
      }
      written_[group].push_back(views);
      changed_ = true;
    }
    const auto is_made_here = [&](const Value* root) { return root->def != nullptr && IsOf(group, root->def); };
    std::vector<std::pair<Value*, std::vector<Op*>>> found;
    std::unordered_map<const Value*, int64_t> bytes_of_views;  // Lookups only.
    for (Value* output : outputs) {
      if (!IsOf(group, output->def)) continue;
      if (IsReturnedView(output)) {
        const Value* const root = output->def->operands[0];
        if (!is_made_here(root)) {
          SetApart(group, output, before_[group]);
        } else if (!IsReadIn(group, output)) {  // As a group of its own it is behind this one.
          bytes_of_views[root] += StorageBytes(*output);
        }
        continue;
      }
      std::vector<Op*> views = ViewsBehind(group, output);
      if (views.empty()) continue;
      bytes_of_views[views.back()->operands[0]] += StorageBytes(*output);
      found.emplace_back(output, std::move(views));
    }
    // A value that nobody else has in memory is written in place of views that are more together.
    const auto is_written = [&](const Value* root) {
      return !is_made_here(root) || bytes_of_views[root] > StorageBytes(*root) ||
             std::ranges::find(outputs, root) != outputs.end();
    };
    // So is one that the group computes with, or makes of such a one, in place of what is returned of it.
    const auto is_read_beside = [&](const Value* value, const Op* op) {
      return std::ranges::any_of(uses_[static_cast<size_t>(value->id)], [&](const Op* reader) {
        return reader != op && IsOf(group, reader) && !rules_.is_view(*reader);
      });
    };
    const auto is_computed_with = [&](const Value* root) {
      return is_read_beside(root, nullptr) || std::ranges::any_of(root->def->operands, [&](const Value* operand) {
               return IsTensor(*operand) && is_made_here(operand) && is_read_beside(operand, root->def);
             });
    };
    for (const Value* output : outputs) {
      if (!IsOf(group, output->def) || !IsReturnedView(output) || IsReadIn(group, output)) continue;
      const Value* const root = output->def->operands[0];
      if (is_written(root) || is_computed_with(root)) SetApart(group, output, behind_[group]);
    }
    for (const auto& [output, views] : found) {
      if (is_written(views.back()->operands[0])) HIR_TRY(TakeOut(group, output, views));
    }
    return {};
  }

  Status TakeOut(size_t group, Value* output, const std::vector<Op*>& views) {
    Value* const root = views.back()->operands[0];
    std::unordered_map<const Value*, Value*> values = {{root, root}};  // Lookups only.
    ir::Builder builder(graph_, graph_.body, views.front()->next);
    for (auto it = views.rbegin(); it != views.rend(); ++it) {
      HIR_ASSIGN(Op * copy, ir::CloneOp(**it, builder, values));
      copy->results[0]->layout = (*it)->results[0]->layout;
      taken_[group].push_back(copy);
    }
    for (Op* reader : uses_[static_cast<size_t>(output->id)]) {
      if (!IsOf(group, reader)) std::ranges::replace(reader->operands, output, values.at(output));
    }
    replaced_.insert(views.begin(), views.end());
    changed_ = true;
    return {};
  }

  void EraseUnread() {
    const std::vector<std::vector<Op*>> uses = ir::UsesOf(graph_);
    std::unordered_set<const Op*> gone;  // Lookups only.
    for (Op* op = graph_.body.last; op != nullptr;) {
      Op* const candidate = std::exchange(op, op->prev);
      if (!replaced_.contains(candidate)) continue;
      const std::vector<Op*>& readers = uses[static_cast<size_t>(candidate->results[0]->id)];
      if (!std::ranges::all_of(readers, [&](const Op* reader) { return gone.contains(reader); })) continue;
      gone.insert(candidate);
      std::erase(groups_[group_of_.at(candidate)].ops, candidate);
      graph_.body.Erase(candidate);
    }
  }

  // Groups that nothing is left of go.
  void Regroup() {
    Groups all(graph_);
    std::vector<Group> regrouped;
    const auto add = [&](const std::vector<Op*>& ops) {
      if (ops.empty()) return;
      std::vector<int> positions;
      for (const Op* op : ops) positions.push_back(all.PositionOf(op));
      std::ranges::sort(positions);
      regrouped.push_back(all.Of(positions));
    };
    for (size_t i = 0; i < groups_.size(); ++i) {
      for (const std::vector<Op*>& views : written_[i]) add(views);
      for (Op* op : before_[i]) add({op});
      add(groups_[i].ops);
      for (Op* op : behind_[i]) add({op});
      add(taken_[i]);
    }
    groups_ = std::move(regrouped);
  }

  ir::Graph& graph_;
  std::vector<Group>& groups_;
  const ViewRules& rules_;
  const std::vector<std::vector<Op*>> uses_;        // By value id, before anything was taken out.
  std::unordered_map<const Op*, size_t> group_of_;  // Lookups only, as is the next.
  std::unordered_set<const Op*> replaced_;
  std::unordered_set<const Value*> returned_, written_elsewhere_;
  std::vector<std::vector<Op*>> before_, behind_;  // By the group that they come in front of, or behind; each a group.
  std::vector<std::vector<Op*>> taken_;            // By the group that they come behind.
  std::vector<std::vector<std::vector<Op*>>> written_;  // Each a group, by the one that they come in front of.
  bool changed_ = false;
};

}  // namespace

Status TakeOutViews(ir::Graph& graph, std::vector<Group>& groups, const ViewRules& rules) {
  return TakingOut(graph, groups, rules).Run();
}

}  // namespace hir::segment
