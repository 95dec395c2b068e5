#include "csrc/segment/rematerialize.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"
#include "csrc/segment/min_cut.h"
#include "csrc/segment/price.h"

namespace hir::segment {
namespace {

using ir::Op;
using ir::Value;
using Choice = MinCut::Choice;

bool IsOfReshape(fusion::AxisRelation relation) {
  return relation >= fusion::AxisRelation::kSplitOuter && relation <= fusion::AxisRelation::kMergedInner;
}

bool IsElementwise(const Op& op) {
  const auto links = fusion::AxesOf(op);
  return std::all_of(links.begin(), links.end(), [](const fusion::AxisLink& link) {
    return link.relation == fusion::AxisRelation::kSame || link.relation == fusion::AxisRelation::kBroadcast ||
           link.relation == fusion::AxisRelation::kSliced || IsOfReshape(link.relation);
  });
}

// Arithmetic of one element of the result, as bytes; nothing where it is not computed again.
std::optional<int64_t> PriceOfComputing(const Op& op) {
  if (op.info->effects != ir::kPure || fusion::CodeOf(op) == fusion::FusionOp::kSegmentSet) return std::nullopt;
  return IsElementwise(op) ? PriceOfElement(op) : std::nullopt;
}

// Which values are in memory, as groups stand.
struct Memory {
  bool IsReturned(const Value* value) const { return returned.contains(value); }
  int64_t ReadersOf(const Value* value) const {
    const auto found = readers.find(value);
    return found == readers.end() ? 0 : found->second;
  }
  // Whether a group writes it for others.
  bool IsWritten(const Value* value) const { return ReadersOf(value) > 0 || IsReturned(value); }
  bool Has(const Value* value) const { return value->def == nullptr || IsWritten(value); }

  std::unordered_map<const Value*, int64_t> readers;  // Groups that have it among their inputs.
  std::unordered_set<const Value*> returned;
  std::unordered_map<const Op*, size_t> group_of;  // Of ops that something needs. Lookups only, as is the next.
  std::unordered_map<const Op*, std::pair<int64_t, int64_t>> place;  // Where it stands; copies behind what they copy.
};

// Facts of ops, whatever the groups.
class Prices {
 public:
  explicit Prices(const Sizes& sizes) : sizes_(sizes) {}

  int64_t Bytes(const Value* value) const { return StorageBytes(*value, sizes_); }

  // To compute the result of `op` again; kNever.
  int64_t OfComputing(const Op& op) {
    const auto [known, first] = of_element_.try_emplace(&op);
    if (first) known->second = PriceOfComputing(op);
    if (!known->second) return MinCut::kNever;
    const Value& result = *op.results[0];
    return *known->second * Bytes(&result) / std::max<int64_t>(DTypeBytes(result.type->dtype), 1);
  }

 private:
  const Sizes& sizes_;
  std::unordered_map<const Op*, std::optional<int64_t>> of_element_;
};

// The decisions for one group: which values it reads, which it computes again.
class Reader {
 public:
  Reader(ir::Graph& graph, const Memory& memory, Prices& prices, const Group& group)
      : graph_(graph), memory_(memory), prices_(prices), group_(group) {}

  // Values that the group reads and might compute, the largest first.
  std::vector<Value*> Candidates() const {
    std::vector<Value*> candidates;
    for (Value* input : group_.inputs) {
      if (input->def != nullptr && IsTensor(*input) && prices_.OfComputing(*input->def) < MinCut::kNever &&
          !IsBoundary(input))
        candidates.push_back(input);
    }
    std::ranges::stable_sort(candidates,
                             [this](const Value* a, const Value* b) { return prices_.Bytes(a) > prices_.Bytes(b); });
    return candidates;
  }

  // Computes those of `candidates` again that are cheaper so. Their number; ops of the group read the copies.
  Result<size_t> Run(const std::vector<Value*>& candidates) {
    for (const Value* input : group_.inputs) {
      if (std::ranges::find(candidates, input) == candidates.end()) is_read_.insert(input);
    }
    for (const Value* candidate : candidates) cut_.Need(NodeOf(candidate));
    for (size_t i = 0; i < values_.size(); ++i) AddOperands(static_cast<int>(i));
    const MinCut::Cut cut = cut_.Solve();
    if (cut.cost >= MinCut::kNever) return 0;
    std::vector<Value*> computed;
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool is_read_as_part = cut.choices[i] == Choice::kRead && IsPart(values_[i]);
      if (cut.choices[i] == Choice::kComputed || is_read_as_part) computed_.insert(values_[i]);
    }
    std::ranges::copy_if(candidates, std::back_inserter(computed),
                         [this](const Value* value) { return computed_.contains(value); });
    for (Value* value : computed) {
      HIR_ASSIGN(Value * remade, Remake(value));
      for (Op* reader : group_.ops) {
        for (size_t i = 0; i < reader->operands.size(); ++i) {
          if (reader->operands[i] != value) continue;
          replaced_.push_back({reader, i, value});
          reader->operands[i] = remade;
        }
      }
    }
    return computed.size();
  }

  void Undo() {
    for (const auto& [op, operand, old] : replaced_) op->operands[operand] = old;
    for (auto it = copies_.rbegin(); it != copies_.rend(); ++it) graph_.body.Erase(it->first);
  }
  // Each with what it is a copy of, in the order in which they read each other.
  const std::vector<std::pair<Op*, const Op*>>& copies() const { return copies_; }

 private:
  // Whether a segment_set reads `value` here: the user wants it in memory.
  bool IsBoundary(const Value* value) const {
    return std::ranges::any_of(group_.ops, [&](const Op* op) {
      return fusion::CodeOf(*op) == fusion::FusionOp::kSegmentSet && op->operands[0] == value;
    });
  }

  // Whether it is read as a part of something in memory: no more than itself.
  bool IsPart(const Value* value) const {
    return value->def != nullptr && !memory_.Has(value) && IsSlice(*value->def) && memory_.Has(value->def->operands[0]);
  }

  // A constant of the host has a copy in each group, and a number that nobody makes any more is made again. Other
  // numbers are taken from where they are: a chain of them is not copied to every reader.
  bool IsCopied(const Value* value) const {
    if (value->def == nullptr || IsTensor(*value)) return false;
    return value->def->operands.empty() || !memory_.group_of.contains(value->def);
  }

  // Bytes that this group's reading of `value` moves. The write goes away when no reader is left: each has its share.
  int64_t PriceOfReading(const Value* value) const {
    if (is_read_.contains(value)) return 0;
    if (IsCopied(value)) return MinCut::kNever;
    const int64_t bytes = prices_.Bytes(value);  // None of a number of the host: kernels compute it wherever it is.
    if (value->def == nullptr || memory_.IsReturned(value) || IsPart(value)) return bytes;
    if (!memory_.group_of.contains(value->def)) return MinCut::kNever;  // Nobody makes it any more.
    if (!memory_.IsWritten(value)) return 2 * bytes;
    if (std::ranges::find(group_.inputs, value) == group_.inputs.end() || value->def->info->effects != ir::kPure)
      return bytes;
    return bytes + bytes / memory_.ReadersOf(value);
  }

  int NodeOf(const Value* value) {
    const auto found = node_of_.find(value);
    if (found != node_of_.end()) return found->second;
    const bool may_be =
        IsCopied(value) || (value->def != nullptr && IsTensor(*value) && std::ssize(values_) < kRematerializedOpsMax);
    const int64_t compute = may_be ? prices_.OfComputing(*value->def) : MinCut::kNever;
    const int node = cut_.AddNode(PriceOfReading(value), compute);
    node_of_[value] = node;
    values_.push_back(value);
    is_computable_.push_back(compute < MinCut::kNever);
    return node;
  }

  void AddOperands(int node) {
    if (!is_computable_[static_cast<size_t>(node)]) return;
    for (const Value* operand : values_[static_cast<size_t>(node)]->def->operands)
      cut_.AddOperand(node, NodeOf(operand));
  }

  // Copies the op that makes `value`, and what it computes of its operands. A copy stands behind its original: there
  // its operands are known, and every reader of the original comes later.
  Result<Value*> Remake(const Value* value) {
    if (const auto found = remade_.find(value); found != remade_.end()) return found->second;
    const Op& op = *value->def;
    std::unordered_map<const Value*, Value*> values;
    for (Value* operand : op.operands) {
      values[operand] = operand;
      if (!computed_.contains(operand)) continue;
      HIR_ASSIGN(values[operand], Remake(operand));
    }
    ir::Builder builder(graph_, graph_.body, op.next);
    HIR_ASSIGN(Op * copy, ir::CloneOp(op, builder, values));
    copy->results[0]->layout = value->layout;
    copies_.emplace_back(copy, &op);
    return remade_[value] = copy->results[0];
  }

  struct Replaced {
    Op* op;
    size_t operand;
    Value* old;
  };

  ir::Graph& graph_;
  const Memory& memory_;
  Prices& prices_;
  const Group& group_;
  std::unordered_set<const Value*> is_read_;  // Whatever is decided.
  MinCut cut_;
  std::vector<const Value*> values_;  // By node.
  std::vector<char> is_computable_;
  std::unordered_map<const Value*, int> node_of_;
  std::unordered_set<const Value*> computed_;
  std::unordered_map<const Value*, Value*> remade_;
  std::vector<std::pair<Op*, const Op*>> copies_;
  std::vector<Replaced> replaced_;
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

// The decisions for all groups. What a change of one makes of others is followed from group to group: those that it
// reads of write other values then, and some of their ops are needed no more.
class Rematerializer {
 public:
  Rematerializer(ir::Graph& graph, std::vector<Group>& groups, const RematerializeOptions& options)
      : graph_(graph), groups_(groups), options_(options), prices_(options.sizes) {
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Value* input : groups[i].inputs) ++memory_.readers[input];
      for (const Op* op : groups[i].ops) memory_.group_of[op] = i;
    }
    for (const ir::Output& output : graph.outputs) memory_.returned.insert(output.value);
    for (const Op* op = graph.body.first; op != nullptr; op = op->next)
      memory_.place[op] = {static_cast<int64_t>(memory_.place.size()), 0};
  }

  Status Run(size_t index) {
    const Group& group = groups_[index];
    if (group.ops.empty() || group.ops[0]->info->effects != ir::kPure) return {};
    const auto has_tensor = [](const Op* op) {
      return std::ranges::any_of(op->results, [](const Value* value) { return IsTensor(*value); });
    };
    if (std::ranges::none_of(group.ops, has_tensor)) return {};
    if (options_.is_view(group)) return {};
    const std::vector<Value*> candidates = Reader(graph_, memory_, prices_, group).Candidates();
    if (candidates.empty()) return {};
    HIR_ASSIGN(const size_t refused, Try(index, candidates));
    if (refused < 2) return {};
    for (Value* candidate : candidates) HIR_TRY(Try(index, {candidate}).status());
    return {};
  }

 private:
  // The number of `candidates` that the group would compute, and cannot: it is as before. 0: what could be done was.
  Result<size_t> Try(size_t index, const std::vector<Value*>& candidates) {
    Reader reader(graph_, memory_, prices_, groups_[index]);
    HIR_ASSIGN(const size_t computed, reader.Run(candidates));
    if (computed == 0) return 0;
    before_.clear();
    before_.emplace(index, groups_[index]);
    std::vector<Op*>& ops = groups_[index].ops;
    for (const auto& [copy, original] : reader.copies()) {
      memory_.place[copy] = {memory_.place.at(original).first, ++copies_};
      memory_.group_of[copy] = index;
      ops.push_back(copy);
    }
    std::ranges::sort(ops, {}, [this](const Op* op) { return memory_.place.at(op); });
    Follow(index);
    for (const auto& [k, group] : before_) {
      if (groups_[k].ops.empty() || Same(group, groups_[k]) || options_.fits(groups_[k].View(graph_))) continue;
      Restore();
      reader.Undo();
      return computed;
    }
    return 0;
  }

  // Brings `index`, whose ops changed, and all that it bears on, up to date.
  void Follow(size_t index) {
    std::set<size_t> pending = {index};
    while (!pending.empty()) {
      const size_t at = *pending.rbegin();  // Producers stand before their readers.
      pending.erase(at);
      Group next = UpToDate(groups_[at]);
      before_.emplace(at, groups_[at]);
      for (const Op* op : groups_[at].ops) memory_.group_of.erase(op);
      for (const Op* op : next.ops) memory_.group_of[op] = at;
      Count(groups_[at].inputs, -1, pending);
      Count(next.inputs, 1, pending);
      groups_[at] = std::move(next);
    }
  }

  void Count(const std::vector<Value*>& inputs, int64_t by, std::set<size_t>& pending) {
    for (const Value* input : inputs) {
      const bool was_written = memory_.IsWritten(input);
      memory_.readers[input] += by;
      if (input->def == nullptr || was_written == memory_.IsWritten(input)) continue;
      const auto maker = memory_.group_of.find(input->def);
      if (maker != memory_.group_of.end() && input->def->info->effects == ir::kPure) pending.insert(maker->second);
    }
  }

  // Without the ops that nothing needs, with what it then reads and writes.
  Group UpToDate(const Group& group) const {
    std::unordered_set<const Value*> needed, made;
    Group next;
    for (auto it = group.ops.rbegin(); it != group.ops.rend(); ++it) {
      const auto is_needed = [&](const Value* result) { return needed.contains(result) || memory_.IsWritten(result); };
      if (!std::ranges::any_of((*it)->results, is_needed)) continue;
      next.ops.push_back(*it);
      needed.insert((*it)->operands.begin(), (*it)->operands.end());
    }
    std::ranges::reverse(next.ops);
    for (const Op* op : next.ops) made.insert(op->results.begin(), op->results.end());
    for (const Op* op : next.ops) {
      for (Value* operand : op->operands) {
        if (made.insert(operand).second) next.inputs.push_back(operand);
      }
      for (Value* value : op->results) {
        if (memory_.IsWritten(value)) next.outputs.push_back(value);
      }
    }
    return next;
  }

  void Restore() {
    for (auto& [k, group] : before_) {
      for (const Op* op : groups_[k].ops) memory_.group_of.erase(op);
      for (const Value* input : groups_[k].inputs) --memory_.readers[input];
      for (const Value* input : group.inputs) ++memory_.readers[input];
      groups_[k] = std::move(group);
      for (const Op* op : groups_[k].ops) memory_.group_of[op] = k;
    }
  }

  ir::Graph& graph_;
  std::vector<Group>& groups_;
  const RematerializeOptions& options_;
  Prices prices_;
  Memory memory_;
  std::map<size_t, Group> before_;  // Of the change at hand: groups as they were.
  int64_t copies_ = 0;
};

}  // namespace

Status Rematerialize(ir::Graph& graph, std::vector<Group>& groups, const RematerializeOptions& options) {
  groups = Live(graph, groups);
  Rematerializer rematerializer(graph, groups, options);
  for (size_t i = 0; i < groups.size(); ++i) HIR_TRY(rematerializer.Run(i));
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
