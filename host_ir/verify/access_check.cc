#include "host_ir/verify/access_check.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "multidevice/mesh.h"

namespace hir::host {
namespace {

using base::Cat;

std::string Line(const ir::Op& op) {
  return op.line > 0 ? Cat(op.info->name, " of line ", op.line) : std::string(op.info->name);
}

}  // namespace

AccessCheck::AccessCheck(const ir::Graph& graph, const RankClass& ranks, ir::ExprPool& pool, Stage stage)
    : ranks_(ranks), pool_(pool), stage_(stage) {
  for (const ir::Output& output : graph.outputs) {
    returned_.insert(output.value->id);
    if (output.alias != nullptr && output.alias != output.value) replaced_by_[output.alias] = output.value;
  }
  ir::ForEachOp(graph.body, [this](ir::Op* op) {
    for (size_t i = 0; i < op->operands.size(); ++i) {
      const ir::Value* base = BaseOf(op->operands[i]);
      if (Writes(AccessOf(*op, static_cast<int>(i))) && returned_.contains(base->id)) empty_at_start_.insert(base->id);
    }
  });
  for (const ir::Output& output : graph.outputs) {
    if (output.alias != nullptr) empty_at_start_.erase(output.alias->id);
  }
}

Status AccessCheck::Run(const std::vector<Step>& steps) {
  for (const Step& step : steps) HIR_TRY(RunStep(step));
  return CheckNothingLeaks();
}

Status AccessCheck::RunStep(const Step& step) {
  const ir::Op& op = *step.op;
  if (order_.Follow(step)) return {};
  HIR_TRY(CheckLives(step));
  switch (CodeOf(op)) {
    case HostOp::kAlloc: {
      Base& base = bases_[op.results[0]->id];
      if (stage_ == Stage::kComplete && base.alloc != nullptr && base.dead == nullptr) {
        return Refuse(op, 6, Cat("%", op.results[0]->name, " is allocated again before it is deallocated"));
      }
      base.alloc = &op;
      base.dead = nullptr;
      base.written.clear();
      return {};
    }
    case HostOp::kDealloc: bases_[op.operands[0]->id].dead = &op; return {};
    case HostOp::kRecord:
    case HostOp::kWait:
    case HostOp::kEvent:
    case HostOp::kViewPermute:
    case HostOp::kViewReshape:
    case HostOp::kViewSelect:
    case HostOp::kViewSlice:
    case HostOp::kIf:
    case HostOp::kFor:
    case HostOp::kGroup: return {};
    case HostOp::kAttention:
    case HostOp::kCommunication:
    case HostOp::kFill:
    case HostOp::kGroupedProduct:
    case HostOp::kIndexSum:
    case HostOp::kLaunch:
    case HostOp::kLibrary: break;
  }
  HIR_TRY(CheckContiguous(step));
  HIR_TRY(CheckWithinOp(step));
  for (const AccessedRegion& access : step.accesses) {
    const Base& base = bases_[access.region.base->id];
    if (Writes(access.access)) HIR_TRY(CheckWritable(step, access));
    if (Reads(access.access)) HIR_TRY(CheckInitialised(step, access, base));
    if (Reads(access.access)) HIR_TRY(CheckNotReplaced(step, access, base));
    if (stage_ != Stage::kUnordered) HIR_TRY(CheckOrdered(step, access, base));
  }
  const Point point = order_.Queue(step.stream);
  for (const AccessedRegion& access : step.accesses) Remember(step, point, access);
  return {};
}

Status AccessCheck::CheckLives(const Step& step) {
  for (const AccessedRegion& access : step.accesses) {
    const auto base = bases_.find(access.region.base->id);
    if (base == bases_.end() || base->second.dead == nullptr) continue;
    const bool twice = CodeOf(*step.op) == HostOp::kDealloc;
    return Refuse(*step.op, twice ? 5 : 4,
                  Cat(Name(*step.op, access), twice ? " is already dead: see the " : " is used after the ",
                      Line(*base->second.dead)));
  }
  return {};
}

// Kernels are planned for the strides of their tensors, and library calls take them. Workspaces are plain memory.
Status AccessCheck::CheckContiguous(const Step& step) {
  const HostOp code = CodeOf(*step.op);
  if (code != HostOp::kLaunch && code != HostOp::kCommunication && code != HostOp::kFill) return {};
  for (const AccessedRegion& access : step.accesses) {
    if (code == HostOp::kLaunch && access.access != Access::kScratch) continue;
    if (IsContiguous(pool_, access.region)) continue;
    return Refuse(*step.op, 10, Cat(Name(*step.op, access), " is not contiguous"));
  }
  return {};
}

// In place: the forms that communications know; and a kernel's output that may lie in an input, as its plan allows.
bool AccessCheck::InPlaceIsLegal(const ir::Op& op, const AccessedRegion& a, const AccessedRegion& b) {
  if (CodeOf(op) == HostOp::kLaunch) {
    const auto replaced = replaced_by_.find(op.operands[static_cast<size_t>(a.operand)]);
    return replaced != replaced_by_.end() && replaced->second == op.operands[static_cast<size_t>(b.operand)] &&
           a.access == Access::kRead && b.access == Access::kWrite;
  }
  if (CodeOf(op) != HostOp::kCommunication) return false;
  const std::string_view type = op.Name("type");
  const bool gathers = type == "gather" || type == "allgather";
  if (!gathers && type != "scatter" && type != "reduce_scatter") return ProveSame(pool_, a.region, b.region);
  // The smaller side is the own chunk of the larger.
  const Interval part = Flat(pool_, (gathers ? a : b).region);
  const Interval whole = Flat(pool_, (gathers ? b : a).region);
  const ir::Expr* count = pool_.Sub(part.to, part.from);
  if (type == "gather" || type == "scatter") {  // Only the root has both sides.
    const mesh::DeviceMesh& team = op.MeshOf(gathers ? "mesh" : "to")->mesh;
    const int64_t root = op.MeshOf(gathers ? "to" : "mesh")->mesh.devices()[0];
    const ir::Expr* place = pool_.Const(team.PositionOf(root).value());
    return part.from == pool_.Add(whole.from, pool_.Mul(place, count));
  }
  const std::string symbol = Cat("@", op.MeshOf("mesh")->name, ".", op.Name("dim").substr(op.Name("dim").size() - 1));
  const ir::Expr* coordinate = pool_.Symbol(symbol);
  for (const auto& [name, value] : ranks_.symbols) {
    if (name == symbol) coordinate = pool_.Const(value);
  }
  return part.from == pool_.Add(whole.from, pool_.Mul(coordinate, count));
}

Status AccessCheck::CheckWithinOp(const Step& step) {
  for (size_t i = 0; i < step.accesses.size(); ++i) {
    for (size_t j = i + 1; j < step.accesses.size(); ++j) {
      const AccessedRegion& a = step.accesses[i];
      const AccessedRegion& b = step.accesses[j];
      if (!Writes(a.access) && !Writes(b.access)) continue;
      if (ProveDisjoint(pool_, a.region, b.region) || InPlaceIsLegal(*step.op, a, b)) continue;
      return Refuse(*step.op, 11, Cat(Name(*step.op, a), " and ", Name(*step.op, b), " may share bytes"));
    }
  }
  return {};
}

Status AccessCheck::CheckWritable(const Step& step, const AccessedRegion& access) {
  const ir::Value* base = MemoryOf(*step.op, access);
  if (base->def != nullptr || returned_.contains(base->id)) return {};
  return Refuse(*step.op, 9, Cat(Name(*step.op, access), " is an input, which is not returned, and is written"));
}

Status AccessCheck::CheckInitialised(const Step& step, const AccessedRegion& access, const Base& base) {
  if (base.partly_seen) return {};
  const ir::Value* memory = MemoryOf(*step.op, access);
  if (memory->def == nullptr && !empty_at_start_.contains(memory->id)) return {};
  std::vector<const Region*> parts;
  for (const Region& region : base.written) parts.push_back(&region);
  if (ProveCovered(pool_, access.region, parts)) return {};
  return Refuse(*step.op, 7,
                Cat(Name(*step.op, access), " is read, and nothing has written ", parts.empty() ? "it" : "all of it"));
}

// It may lie there or not.
Status AccessCheck::CheckNotReplaced(const Step& step, const AccessedRegion& access, const Base& base) {
  const ir::Value* input = MemoryOf(*step.op, access);
  const auto replaced = replaced_by_.find(input);
  if (replaced == replaced_by_.end() || base.written.empty()) return {};
  return Refuse(*step.op, 19,
                Cat(Name(*step.op, access), " is read after %", replaced->second->name,
                    " has been written, which may lie in its memory"));
}

Status AccessCheck::CheckOrdered(const Step& step, const AccessedRegion& access, const Base& base) {
  const auto check = [&](const std::vector<Past>& pasts) -> Status {
    for (const Past& past : pasts) {
      const bool together = step.group >= 0 && step.group == past.group;
      if (!together && order_.Before(past.point, step.stream)) continue;
      const Region& before = SeenFrom(step.runs, past.runs, past.access);
      if (ProveDisjoint(pool_, before, SeenFrom(past.runs, step.runs, access))) continue;
      return Refuse(*step.op, 8,
                    Cat(Writes(access.access) ? "writes " : "reads ", Name(*step.op, access), " on stream ",
                        ToString(step.stream), ", and nothing orders it after the ", Line(*past.op), " that ",
                        Writes(past.access.access) ? "writes" : "reads", " it", together ? " in the same group" : ""));
    }
    return {};
  };
  HIR_TRY(check(base.writes));
  return Writes(access.access) ? check(base.reads) : Status();
}

void AccessCheck::Remember(const Step& step, const Point& point, const AccessedRegion& access) {
  Base& base = bases_[access.region.base->id];
  const Past past = {step.op, point, step.group, step.iteration, step.runs, access};
  if (!Writes(access.access)) {
    base.reads.push_back(past);
    return;
  }
  // All that touched the same bytes before is ordered before this write: who is after it is after
  // them, if it is there: not when the loop ends before.
  const auto same = [&](const Past& p) {
    const bool there = step.iteration == 0 || step.iteration == p.iteration;
    return there && p.group != step.group && Replaces(access, p.access);
  };
  if (step.group < 0) {
    std::erase_if(base.reads, same);
    std::erase_if(base.writes, same);
  }
  base.writes.push_back(past);
  base.partly_seen |= step.cut;
  const auto known = [&](const Region& region) { return Identical(region, access.region); };
  if (std::none_of(base.written.begin(), base.written.end(), known)) base.written.push_back(access.region);
}

const ir::Value* AccessCheck::MemoryOf(const ir::Op& op, const AccessedRegion& access) {
  return BaseOf(op.operands[static_cast<size_t>(access.operand)]);
}

std::string AccessCheck::Name(const ir::Op& op, const AccessedRegion& access) const {
  const ir::Value* value = op.operands[static_cast<size_t>(access.operand)];
  const ir::Value* base = BaseOf(value);
  return value == base ? Cat("%", value->name) : Cat("%", value->name, " (of %", base->name, ")");
}

Status AccessCheck::CheckNothingLeaks() const {
  for (const auto& [id, base] : bases_) {
    if (stage_ != Stage::kComplete || base.alloc == nullptr || base.dead != nullptr) continue;
    return Refuse(*base.alloc, 6, Cat("%", base.alloc->results[0]->name, " is never deallocated"));
  }
  return {};
}

}  // namespace hir::host
