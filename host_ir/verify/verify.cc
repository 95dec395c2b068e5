#include "host_ir/verify/verify.h"

#include <algorithm>
#include <map>

#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/unroll.h"
#include "host_ir/verify/access_check.h"

namespace hir::host {
namespace {

using base::Cat;

Status CheckOutputs(const ir::Graph& graph) {
  for (const ir::Output& output : graph.outputs) {
    if (output.value->def != nullptr || output.value->type->kind != ir::TypeKind::kTensor)
      return InvalidArgument(Cat("return: (H17) %", output.value->name, " is not a parameter that is a buffer"));
    if (output.alias == nullptr || output.alias == output.value) continue;
    const auto fail = [&](std::string_view why) {
      return InvalidArgument(Cat("return: (H19) %", output.value->name, " alias %", output.alias->name, ": ", why));
    };
    if (ToString(*output.value->type) != ToString(*output.alias->type)) return fail("they are of two types");
    for (const ir::Output& other : graph.outputs) {
      if (other.value == output.alias) return fail("the input is returned, too");
      if (&other != &output && other.value == output.value) return fail("the output is returned twice");
    }
  }
  return {};
}

// Extents of memory are known when sizes bind: they name neither loop indices nor the rank.
Status CheckMemoryExtents(const ir::Op& op) {
  if (CodeOf(op) != HostOp::kAlloc) return {};
  std::vector<std::string_view> symbols;
  for (const ir::Axis& axis : op.results[0]->type->axes) ir::CollectSymbols(axis.extent, symbols);
  for (std::string_view symbol : symbols) {
    if (symbol == "rank" || symbol.starts_with('@') || symbol.starts_with('%')) {
      return Refuse(op, 18,
                    Cat("%", op.results[0]->name, " has the extent ", symbol,
                        "; memory is as large on every rank and in every iteration"));
    }
  }
  return {};
}

Status CheckRange(const ir::Op& op, int rule, std::string_view what, const ir::Expr* value, int64_t end) {
  if (!value->IsConst() || (value->value >= 0 && value->value < end)) return {};
  return Refuse(op, rule, Cat(what, " is ", ToString(value), ", not in [0, ", end, ")"));
}

Status CheckStreamsAndEvents(const Step& step) {
  const ir::Op& op = *step.op;
  if (step.stream != nullptr) {
    HIR_TRY(CheckRange(op, 1, "stream", step.stream, kStreamsMax));
    if (!StreamsEnd(step.any_stream)) {
      return Refuse(op, 1, Cat("stream is ", ToString(step.any_stream), ", not known to be in [0, ", kStreamsMax, ")"));
    }
  }
  if (step.index != nullptr) HIR_TRY(CheckRange(op, 2, "index", step.index, op.operands[0]->type->count));
  return {};
}

bool MayEqual(const ir::Expr* a, const ir::Expr* b) { return !a->IsConst() || !b->IsConst() || a->value == b->value; }

// The outermost loop around `op`, or null.
const ir::Op* OutermostLoop(const ir::Op& op) {
  const ir::Op* loop = nullptr;
  for (const ir::Op* around = op.parent->owner; around != nullptr; around = around->parent->owner) {
    if (CodeOf(*around) == HostOp::kFor) loop = around;
  }
  return loop;
}

// Every wait has a record before it, or later in a loop around both.
Status CheckWaits(const ir::Graph& graph) {
  std::map<const ir::Value*, std::vector<const ir::Op*>> records;  // In program order.
  std::vector<const ir::Op*> order;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kRecord) records[op->operands[0]].push_back(op);
    order.push_back(op);
  });
  std::map<const ir::Op*, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  for (const ir::Op* op : order) {
    if (CodeOf(*op) != HostOp::kWait) continue;
    bool found = false;
    for (const ir::Op* record : records[op->operands[0]]) {
      if (!MayEqual(record->ExprOf("index"), op->ExprOf("index"))) continue;
      const ir::Op* loop = OutermostLoop(*op);
      found |= position[record] < position[op] || (loop != nullptr && loop == OutermostLoop(*record));
    }
    if (!found) {
      return Refuse(*op, 3,
                    Cat("%", op->operands[0]->name, "[", ToString(op->ExprOf("index")), "] is never recorded before"));
    }
  }
  return {};
}

Status CheckGroup(const ir::Op& op) {
  if (CodeOf(op) != HostOp::kGroup) return {};
  for (const ir::Op* inner = op.blocks[0]->first; inner != nullptr; inner = inner->next) {
    if (CodeOf(*inner) == HostOp::kCommunication || MakesView(*inner)) continue;
    return Refuse(*inner, 14, "a group holds communications and views alone");
  }
  return {};
}

Status CheckBlockArgs(const ir::Op& op) {
  if (op.blocks.empty()) return {};
  const std::span<ir::Value* const> args = op.blocks[0]->args;
  const bool loop = CodeOf(op) == HostOp::kFor;
  if (!loop && args.empty()) return {};
  if (loop && args.size() == 1 && args[0]->type->kind == ir::TypeKind::kIndex) return {};
  return Refuse(op, 15,
                loop ? "the block of a loop takes one index, like |%i: index|" : "the block takes no arguments");
}

// What needs no walk: seq, groups, waits, outputs.
Status CheckText(const ir::Graph& graph) {
  HIR_TRY(CheckOutputs(graph));
  HIR_TRY(CheckWaits(graph));
  Status status;
  int64_t last = -1;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (!status.ok()) return;
    status = CheckBlockArgs(*op);
    if (status.ok()) status = CheckGroup(*op);
    if (status.ok()) status = CheckMemoryExtents(*op);
    if (!status.ok() || CodeOf(*op) != HostOp::kCommunication) return;
    if (op->Int("seq") <= last) {
      status = Refuse(*op, 13, Cat("seq is ", op->Int("seq"), ", after ", last, "; it must grow"));
    }
    last = op->Int("seq");
  });
  return status;
}

// How often each class of ranks posts each communication.
using Posts = std::map<const ir::Op*, std::map<int64_t, int64_t>>;

Status CheckPostsOf(const ir::Op& op, const Posts& posts, const std::vector<RankClass>& classes) {
  int64_t first = -1, count_of_first = 0;
  for (const RankClass& ranks : classes) {
    const Part part = PartOf(op, ranks.rank);
    if (!part.sends && !part.receives) continue;
    const auto of_op = posts.find(&op);
    const bool posted = of_op != posts.end() && of_op->second.contains(ranks.rank);
    const int64_t count = posted ? of_op->second.at(ranks.rank) : 0;
    if (first < 0) {
      first = ranks.rank;
      count_of_first = count;
    } else if (count != count_of_first) {
      return Refuse(op, 12,
                    Cat("rank ", first, " posts it ", count_of_first, " times, rank ", ranks.rank, " ", count,
                        " times; they are one team"));
    }
  }
  return {};
}

Status CheckPosts(const ir::Graph& graph, const Posts& posts, const std::vector<RankClass>& classes) {
  Status status;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (status.ok() && CodeOf(*op) == HostOp::kCommunication) status = CheckPostsOf(*op, posts, classes);
  });
  return status;
}

Status Check(const ir::Graph& graph, Stage stage) {
  HIR_TRY(CheckText(graph));
  const std::vector<RankClass> classes = RankClasses(graph);
  Posts posts;
  for (const RankClass& ranks : classes) {
    ir::ExprPool pool;
    HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph, ranks, pool));
    for (const Step& step : steps) {
      HIR_TRY(CheckStreamsAndEvents(step));
      if (CodeOf(*step.op) == HostOp::kCommunication) ++posts[step.op][ranks.rank];
    }
    HIR_TRY(AccessCheck(graph, ranks, pool, stage).Run(steps));
  }
  return CheckPosts(graph, posts, classes);
}

}  // namespace

Status VerifyUnordered(const ir::Graph& graph) { return Check(graph, Stage::kUnordered); }
Status VerifyHost(const ir::Graph& graph) { return Check(graph, Stage::kOrdered); }
Status VerifyComplete(const ir::Graph& graph) { return Check(graph, Stage::kComplete); }

}  // namespace hir::host
