#include "tools/cli/plan_items.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;
using Kind = PlanItem::Kind;

template <typename Record>
std::string AmountOf(const Record& record) {
  if (record.has_bytes_value()) return Bytes(record.bytes_value());
  return record.bytes().empty() ? "" : Cat(record.bytes(), " bytes");
}

// Walks a host program; what is queued becomes an item.
class Walk {
 public:
  explicit Walk(const pb::Explanation& plan) : plan_(plan) {}

  void Block(const ir::Block& block) {
    for (const ir::Op* op = block.first; op != nullptr; op = op->next) Visit(*op);
  }
  std::vector<PlanItem> Take() { return std::move(items_); }

 private:
  void Visit(const ir::Op& op) {
    const std::string_view name = op.info->name;
    if (name == "for") return Loop(op);
    if (name.starts_with("view_")) roots_[op.results[0]] = RootOf(op.operands[0]);
    for (const ir::Block* block : op.blocks) Block(*block);  // if, group
    if (name == "launch") {
      Launch(op);
    } else if (host::IsLibraryCall(host::CodeOf(op))) {
      const std::string target(op.operands.back()->name);
      size_t reads = 0;
      while (host::Reads(host::AccessOf(op, static_cast<int>(reads)))) ++reads;
      const bool is_named = name == "library" || name == "grouped_product";
      Named(op, Kind::kLibrary, is_named ? op.Name("op") : name, target, reads);
    } else if (name == "communication") {
      Communication(op);
    } else if (name == "fill") {
      Named(op, Kind::kFill, name, std::string(op.operands[0]->name), 0);
    }
  }

  void Loop(const ir::Op& op) {
    const int64_t begin = Value(op.ExprOf("begin")), end = Value(op.ExprOf("end"));
    const int64_t step = std::max<int64_t>(1, Value(op.ExprOf("step")));
    const ir::Block& block = *op.blocks[0];
    const std::string index = Cat("%", block.args[0]->name);
    for (int64_t i = begin, round = 0; i < end && round < kLoopRoundsMax; i += step, ++round) {
      indices_[index] = i;
      Block(block);
    }
    indices_.erase(index);
  }

  void Launch(const ir::Op& op) {
    const std::string kernel(op.Name("kernel"));
    const size_t reads = static_cast<size_t>(op.Int("inputs"));
    const size_t writes = static_cast<size_t>(op.Int("outputs"));
    const pb::SegmentRecord* segment = nullptr;
    for (const pb::SegmentRecord& record : plan_.segments()) {
      if (record.name() == kernel.substr(0, kernel.find('.'))) segment = &record;
    }
    PlanItem item = {.kind = Kind::kKernel, .label = kernel};
    const bool first = kernel.find('.') == std::string::npos;
    if (segment != nullptr && first) Describe(*segment, item);
    if (segment != nullptr) base::Append(item.label, " ", segment->schedule());
    const size_t workspaces = static_cast<size_t>(op.Int("workspaces"));
    // A later launch of a segment works on what an earlier one left in its workspaces.
    Add(op, std::move(item), reads, writes + workspaces, /*reads_what_it_writes=*/!first);
  }

  void Communication(const ir::Op& op) {
    const std::string target(op.operands[1]->name);
    const int64_t number = op.Int("seq");
    PlanItem item = {.kind = Kind::kCommunication, .label = Cat(op.Name("type"), " #", number, " ", target)};
    if (const pb::CommunicationRecord* record = FindCommunication(number)) {
      item.amount = AmountOf(*record);
      if (record->has_bytes_value()) item.bytes = record->bytes_value();
      const int64_t size = record->team().empty() ? 0 : record->team(0).ranks_size();
      item.note = Cat(Counted(record->team_size(), "team"), " of ", size);
    }
    Add(op, std::move(item), 1, 1, false);
  }

  // A library call or a fill.
  void Named(const ir::Op& op, Kind kind, std::string_view what, const std::string& target, size_t reads) {
    PlanItem item = {.kind = kind, .label = Cat(what, " ", target)};
    if (const pb::SegmentRecord* segment = FindSegment("library", target); segment != nullptr && kind == Kind::kLibrary)
      Describe(*segment, item);
    Add(op, std::move(item), reads, op.operands.size() - reads, false);
  }

  static void Describe(const pb::SegmentRecord& segment, PlanItem& item) {
    item.amount = AmountOf(segment);
    if (segment.has_bytes_value()) item.bytes = segment.bytes_value();
    item.ops.assign(segment.ops().begin(), segment.ops().end());
  }

  // The segment of `kind` that makes `target`.
  const pb::SegmentRecord* FindSegment(std::string_view kind, const std::string& target) const {
    for (const pb::SegmentRecord& record : plan_.segments()) {
      if (record.kind() != kind) continue;
      for (const std::string& output : record.outputs()) {
        if (output.substr(0, output.find(':')) == target) return &record;
      }
    }
    return nullptr;
  }

  const pb::CommunicationRecord* FindCommunication(int64_t number) const {
    for (const pb::CommunicationRecord& record : plan_.communications()) {
      if (record.number() <= number && number < record.number() + record.count()) return &record;
    }
    return nullptr;
  }

  // The item of `op`, whose first operands are read and the ones behind written.
  void Add(const ir::Op& op, PlanItem item, size_t reads, size_t writes, bool reads_what_it_writes) {
    item.stream = Value(op.ExprOf("stream"));
    for (const auto& [name, value] : indices_) base::Append(item.label, " ", name, "=", value);
    const size_t read_end = reads_what_it_writes ? reads + writes : reads;
    for (size_t i = 0; i < std::min(read_end, op.operands.size()); ++i) {
      const auto writer = writers_.find(RootOf(op.operands[i]));
      if (writer != writers_.end()) item.after.push_back(writer->second);
    }
    std::ranges::sort(item.after);
    item.after.erase(std::unique(item.after.begin(), item.after.end()), item.after.end());
    for (size_t i = reads; i < std::min(reads + writes, op.operands.size()); ++i)
      writers_[RootOf(op.operands[i])] = items_.size();
    items_.push_back(std::move(item));
  }

  const ir::Value* RootOf(const ir::Value* value) const {
    const auto root = roots_.find(value);
    return root == roots_.end() ? value : root->second;
  }

  // Symbols of a rank are those of rank 0, roughly: 0. Streams and loops do not depend on them.
  int64_t Value(const ir::Expr* expr) const {
    const Result<int64_t> value = ir::Evaluate(expr, [&](std::string_view symbol) {
      const auto index = indices_.find(symbol);
      return std::optional<int64_t>(index == indices_.end() ? 0 : index->second);
    });
    return value.ok() ? *value : 0;
  }

  const pb::Explanation& plan_;
  std::map<std::string, int64_t, std::less<>> indices_;  // Of the loops around.
  std::map<const ir::Value*, const ir::Value*> roots_;   // Of views; lookups only.
  std::map<const ir::Value*, size_t> writers_;           // Lookups only.
  std::vector<PlanItem> items_;
};

}  // namespace

Result<std::vector<PlanItem>> ItemsOf(const pb::ExplainReply& plan) {
  const auto program = ir::Parse(plan.explanation().host_ir(), host::kHostOps);
  if (!program.ok()) return Internal(Cat("the host program of the plan: ", program.status().message()));
  Walk walk(plan.explanation());
  walk.Block((*program)->body);
  return walk.Take();
}

}  // namespace hir::cli
