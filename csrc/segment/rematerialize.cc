#include "csrc/segment/rematerialize.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"
#include "csrc/segment/min_cut.h"

namespace hir::segment {
namespace {

using ir::Op;
using ir::Value;
using Choice = MinCut::Choice;

// Bytes that pass through memory in the time of one of these, about the same on CPUs and GPUs: cores have so much
// arithmetic that the plain kind costs nothing.
int64_t BytesInTimeOf(fusion::Prim prim) {
  using fusion::Prim;
  if (prim <= Prim::kAbs || (prim >= Prim::kFloor && prim <= Prim::kSelect)) return 0;
  const bool is_short = prim >= Prim::kExp && prim <= Prim::kRsqrt;
  return is_short ? 4 : 16;
}

// Of one element of the result; nothing where a reduction makes it.
std::optional<int64_t> BytesInTimeOf(const fusion::Element* element) {
  if (element->kind == fusion::Element::Kind::kReduce) return std::nullopt;
  int64_t bytes = element->kind == fusion::Element::Kind::kPrim ? BytesInTimeOf(element->prim) : 0;
  for (const fusion::Element* arg : element->args) {
    const std::optional<int64_t> of_arg = BytesInTimeOf(arg);
    if (!of_arg) return std::nullopt;
    bytes += *of_arg;
  }
  return bytes;
}

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
std::optional<int64_t> PriceOfElement(const Op& op) {
  if (op.info->effects != ir::kPure || fusion::CodeOf(op) == fusion::FusionOp::kSegmentSet) return std::nullopt;
  if (!IsElementwise(op)) return std::nullopt;
  if (op.results[0]->type->kind != ir::TypeKind::kTensor) return 0;  // Of its own, not of the numbers it is made of.
  fusion::ElementBuilder builder;
  std::vector<const fusion::Element*> index;
  for (size_t i = 0; i < ir::ValueAxes(*op.results[0]->type).size(); ++i)
    index.push_back(builder.Index(static_cast<int>(i)));
  return BytesInTimeOf(fusion::Define(builder, op, 0, index));
}

bool IsTensor(const Value* value) { return value->type->kind == ir::TypeKind::kTensor; }

// What is known of all groups, between two changes.
struct Memory {
  explicit Memory(const ir::Graph& graph, const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      written.insert(group.outputs.begin(), group.outputs.end());
      for (const Value* input : group.inputs) ++readers[input];
    }
    for (const ir::Output& output : graph.outputs) returned.insert(output.value);
  }

  bool Has(const Value* value) const { return value->def == nullptr || written.contains(value); }

  std::unordered_set<const Value*> written;  // By some group, for others.
  std::unordered_set<const Value*> returned;
  std::unordered_map<const Value*, int64_t> readers;  // Groups.
};

// What is known of ops, whatever the groups.
class Prices {
 public:
  explicit Prices(const Sizes& sizes) : sizes_(sizes) {}

  int64_t Bytes(const Value* value) const { return StorageBytes(*value, sizes_); }

  // To compute the result of `op` again; kNever.
  int64_t OfComputing(const Op& op) {
    const auto [known, first] = of_element_.try_emplace(&op);
    if (first) known->second = PriceOfElement(op);
    if (!known->second) return MinCut::kNever;
    const Value& result = *op.results[0];
    return *known->second * Bytes(&result) / std::max<int64_t>(DTypeBytes(result.type->dtype), 1);
  }

 private:
  const Sizes& sizes_;
  std::unordered_map<const Op*, std::optional<int64_t>> of_element_;
};

// What one group reads and computes again.
class Reader {
 public:
  Reader(ir::Graph& graph, const Memory& memory, Prices& prices, const Group& group)
      : graph_(graph), memory_(memory), prices_(prices), group_(group) {}

  // What the group reads and might compute, the largest first.
  std::vector<Value*> Candidates() const {
    std::vector<Value*> candidates;
    for (Value* input : group_.inputs) {
      if (input->def != nullptr && prices_.OfComputing(*input->def) < MinCut::kNever && !IsBoundary(input))
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
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_.size() > kValuesMax) return 0;  // Numbers of the host alone: they are computed, whatever the cut.
      AddOperands(static_cast<int>(i));
    }
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
    for (auto it = copies_.rbegin(); it != copies_.rend(); ++it) graph_.body.Erase(*it);
  }
  const std::vector<Op*>& copies() const { return copies_; }

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

  // Bytes that this group's reading of `value` moves. The write goes away when no reader is left: each has its share.
  int64_t PriceOfReading(const Value* value, bool is_computable) const {
    if (is_read_.contains(value)) return 0;
    // A number of the host has no memory to be read from.
    if (!IsTensor(value)) return is_computable ? MinCut::kNever : 0;
    const int64_t bytes = prices_.Bytes(value);
    if (value->def == nullptr || memory_.returned.contains(value)) return bytes;
    if (!memory_.written.contains(value)) return IsPart(value) ? bytes : 2 * bytes;
    if (std::ranges::find(group_.inputs, value) == group_.inputs.end() || value->def->info->effects != ir::kPure)
      return bytes;
    return bytes + bytes / memory_.readers.at(value);
  }

  int NodeOf(const Value* value) {
    const auto found = node_of_.find(value);
    if (found != node_of_.end()) return found->second;
    const bool may_be = value->def != nullptr && (!IsTensor(value) || std::ssize(values_) < kRematerializedOpsMax);
    const int64_t compute = may_be ? prices_.OfComputing(*value->def) : MinCut::kNever;
    const bool is_computable = compute < MinCut::kNever;
    const int node = cut_.AddNode(PriceOfReading(value, is_computable), compute);
    node_of_[value] = node;
    values_.push_back(value);
    is_computable_.push_back(is_computable);
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
    copies_.push_back(copy);
    return remade_[value] = copy->results[0];
  }

  static constexpr size_t kValuesMax = 4 * kRematerializedOpsMax;

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
  std::vector<Op*> copies_;
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

// The decisions for all groups.
class Rematerializer {
 public:
  Rematerializer(ir::Graph& graph, std::vector<Group>& groups, const RematerializeOptions& options)
      : graph_(graph), groups_(groups), options_(options), prices_(options.sizes), memory_(graph, groups) {}

  Status Run(size_t index) {
    const Group& group = groups_[index];
    if (group.ops.empty() || group.ops[0]->info->effects != ir::kPure) return {};
    const auto has_tensor = [](const Op* op) { return std::ranges::any_of(op->results, IsTensor); };
    if (std::ranges::none_of(group.ops, has_tensor)) return {};
    if (std::ranges::all_of(group.ops, [this](const Op* op) { return options_.is_view(*op); })) return {};
    const std::vector<Value*> candidates = Reader(graph_, memory_, prices_, group).Candidates();
    if (candidates.empty()) return {};
    HIR_ASSIGN(const size_t refused, Try(index, candidates));
    if (refused < 2) return {};
    for (Value* candidate : candidates) HIR_TRY(Try(index, {candidate}).status());
    return {};
  }

 private:
  // Of `candidates` those that the group would compute, and cannot: it is as before. 0: what could be done was.
  Result<size_t> Try(size_t index, const std::vector<Value*>& candidates) {
    Reader reader(graph_, memory_, prices_, groups_[index]);
    HIR_ASSIGN(const size_t computed, reader.Run(candidates));
    if (computed == 0) return 0;
    // Not only this group: those it reads of write other values then, and some ops are needed no more.
    std::vector<Group> with_copies = groups_;
    with_copies[index].ops = InOrder(graph_, groups_[index].ops, reader.copies());
    with_copies = Live(graph_, with_copies);
    for (size_t k = 0; k < groups_.size(); ++k) {
      const Group& group = with_copies[k];
      if (group.ops.empty() || Same(group, groups_[k]) || options_.fits(group.View(graph_))) continue;
      reader.Undo();
      return computed;
    }
    groups_ = std::move(with_copies);
    memory_ = Memory(graph_, groups_);
    return 0;
  }

  ir::Graph& graph_;
  std::vector<Group>& groups_;
  const RematerializeOptions& options_;
  Prices prices_;
  Memory memory_;
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
