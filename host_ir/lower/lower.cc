#include "host_ir/lower/lower.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/grouped.h"
#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"
#include "host_ir/lower/overlap.h"
#include "host_ir/lower/segmentation.h"
#include "host_ir/lower/storage.h"
#include "host_ir/lower/strided_views.h"
#include "multidevice/plan/resharding.h"

namespace hir::host {
namespace {

using base::Cat;
using ir::Attr;
using ir::Op;
using ir::Type;
using ir::Value;
using segment::Group;

bool IsReturned(const Segmented& program, const Group& group) {
  return std::ranges::any_of(program.graph->outputs, [&](const ir::Output& output) {
    return std::ranges::find(group.outputs, output.value) != group.outputs.end();
  });
}

// `uses`: of the graph.
SegmentKind KindOf(const Segmented& program, const Group& group, std::span<const std::vector<Op*>> uses,
                   const StridedViews& strided) {
  if (group.ops[0]->info->effects & ir::kLoop) return SegmentKind::kLoop;
  if (group.ops[0]->info->effects & ir::kComm) return SegmentKind::kCommunication;
  if (group.ops[0]->info->effects & ir::kLibrary) return SegmentKind::kLibrary;
  const bool views = std::all_of(group.ops.begin(), group.ops.end(), [&](const Op* op) {
    return IsView(*op) && op->operands[0]->type->kind == ir::TypeKind::kTensor;
  });
  // A program's output has memory of its own.
  if (IsReturned(program, group)) return SegmentKind::kKernel;
  if (!views) {
    const bool in_place = program.calls_take_strides && strided.IsReadInPlace(group, uses);
    return in_place ? SegmentKind::kView : SegmentKind::kKernel;
  }
  // A value with gaps is seen under no other shape.
  const bool has_gaps =
      std::ranges::any_of(group.inputs, [&](const Value* value) { return program.strides.contains(value); });
  return has_gaps ? SegmentKind::kKernel : SegmentKind::kView;
}

// "", "tanh_gelu", "relu, tf32, x transposed".
std::string DescribeCall(const Op& op) {
  if (fusion::CodeOf(op) == fusion::FusionOp::kGroupedMatmul)
    return fusion::TransposedOf(op).y ? "y transposed" : std::string();
  if (!fusion::IsProduct(fusion::CodeOf(op))) return {};
  std::vector<std::string_view> said;
  if (op.Name("epilogue") != fusion::kNoEpilogue) said.push_back(op.Name("epilogue"));
  if (op.Name("precision") != fusion::kFullPrecision) said.push_back(op.Name("precision"));
  const fusion::Transposed transposed = fusion::TransposedOf(op);
  if (transposed.x) said.push_back(transposed.y ? "both transposed" : "x transposed");
  if (transposed.y && !transposed.x) said.push_back("y transposed");
  return base::Join(said, ", ");
}

// The program, or an iteration of a loop of it, that is being lowered.
struct Level {
  const Segmented* program = nullptr;
  const StreamLoop* loop = nullptr;  // Null: the program itself.
  bool in_rest = false;
  ir::Block* block = nullptr;           // Where its ops go.
  const ir::Expr* stream = nullptr;     // That its work runs on.
  const ir::Expr* iteration = nullptr;  // Its number, through all loops around; null: there is none.
  // Values of one iteration alone lie in slice `turn` of `turns`, allocated before the outermost loop.
  const ir::Expr* turn = nullptr;
  int64_t turns = 0;
  Op* outermost = nullptr;  // The outermost loop's op.
  std::vector<SegmentKind> kinds = {};
  std::unordered_map<const Value*, Value*> buffer = {};                     // Local value to host buffer.
  std::unordered_map<const Value*, const Value*> storage_of = {};           // Value to the one whose memory it takes.
  std::unordered_map<const Value*, std::vector<Op*>> written_through = {};  // Value to the views that are in memory.
  std::unordered_map<size_t, const Overlap*> overlap_of = {};               // Of groups, by index.
};

class Lowering {
 public:
  Lowering(const Segmented& program, const LowerOptions& options)
      : program_(program), options_(options), host_(std::make_unique<ir::Graph>(kHostOps, program.graph->name())) {}

  Result<Lowered> Run() {
    ir::Graph& local = *program_.graph;
    Level level = {.program = &program_, .block = &host_->body, .stream = host_->exprs().Const(0)};
    at_ = &level;
    for (const ir::Mesh& mesh : local.meshes()) host_->AddMesh(mesh.mesh, mesh.name);
    for (Value* param : local.params) level.buffer[param] = host_->AddParam(param->name, Import(*param->type));
    for (const ir::Output& output : local.outputs) {
      if (!level.buffer.contains(output.value)) {
        level.buffer[output.value] = host_->AddParam(output.value->name, Import(*output.value->type));
      }
      host_->outputs.push_back({level.buffer[output.value]});
    }
    HIR_TRY(LowerGroups());
    for (size_t i = 0; i < local.outputs.size(); ++i) {
      if (MayReplace(local.outputs[i])) host_->outputs[i].alias = level.buffer[local.outputs[i].alias];
    }
    for (const ir::Guard& guard : local.guards) {
      HIR_TRY(host_->AddGuard(
          {guard.kind, host_->exprs().Import(guard.left), host_->exprs().Import(guard.right), guard.reason}));
    }
    lowered_.program = std::move(host_);
    return std::move(lowered_);
  }

 private:
  Status LowerGroups() {
    const std::vector<std::vector<Op*>> uses = ir::UsesOf(*at_->program->graph);
    const StridedViews strided(options_.target, at_->program->strides);
    for (const Group& group : at_->program->groups) at_->kinds.push_back(KindOf(*at_->program, group, uses, strided));
    AliasOutputs();
    WriteThroughViews(uses, strided);
    AlternateBuffers();
    if (at_->loop == nullptr) {
      overlaps_ = FindOverlaps(*at_->program, options_.overlap);
      for (const Overlap& overlap : overlaps_) {
        at_->overlap_of[overlap.communication] = &overlap;
        for (const size_t product : overlap.products) at_->overlap_of[product] = &overlap;
      }
    }
    for (size_t i = 0; i < at_->program->groups.size(); ++i) HIR_TRY(LowerGroup(i));
    return {};
  }

  // Whether `output` may lie in the memory of the input that it takes over: nothing reads that once it is written, and
  // what writes it reads each element before.
  bool MayReplace(const ir::Output& output) {
    if (output.alias == nullptr || output.value->def == nullptr) return false;
    for (const ir::Output& other : program_.graph->outputs) {
      if (other.value == output.alias || (&other != &output && other.value == output.value)) return false;
    }
    const Value* const input = at_->buffer.at(output.alias);
    const Value* const made = at_->buffer.at(output.value);
    if (ir::ToString(*input->type) != ir::ToString(*made->type)) return false;
    const Op* writer = nullptr;
    bool may = true;
    ir::ForEachOp(host_->body, [&](Op* op) {
      const auto touches = [&](const Value* memory, bool (*how)(Access)) {
        for (size_t i = 0; i < op->operands.size(); ++i) {
          if (BaseOf(op->operands[i]) == memory && how(AccessOf(*op, static_cast<int>(i)))) return true;
        }
        return false;
      };
      const bool reads = touches(input, Reads);
      const bool writes = touches(made, Writes);
      if (writer == nullptr && writes) {
        writer = op;
        may = may && !IsInLoop(*op) && (!reads || MayReplaceIn(*op, *input, *made, output));
      } else if (writer != nullptr) {
        may = may && !reads;
      }
    });
    return may && writer != nullptr;
  }

  static bool IsInLoop(const Op& op) {
    for (const Op* around = op.parent->owner; around != nullptr; around = around->parent->owner) {
      if (CodeOf(*around) == HostOp::kFor) return true;
    }
    return false;
  }

  // The same of one op, which reads the input and writes the output.
  bool MayReplaceIn(const Op& op, const Value& input, const Value& made, const ir::Output& output) {
    if (CodeOf(op) != HostOp::kLaunch) return false;
    for (const Value* operand : op.operands) {  // Their parts may lie anywhere.
      const Value* const base = BaseOf(operand);
      if (operand != base && (base == &input || base == &made)) return false;
    }
    for (codegen::KernelPlan& plan : lowered_.kernels) {
      const auto is_it = [&](const codegen::Launch& launch) { return launch.kernel == op.Name("kernel"); };
      if (std::ranges::any_of(plan.launches, is_it)) return codegen::AllowInPlace(plan, *output.alias, *output.value);
    }
    return false;
  }

  // From the level's pool into the host program's, where the indices of loops have their names.
  const ir::Expr* Import(const ir::Expr* expr) { return host_->exprs().Substitute(expr, indices_); }

  const Type* Import(const Type& type) {
    if (type.kind != ir::TypeKind::kTensor) return host_->New(type);
    std::vector<ir::Axis> axes;  // Reduced axes are not stored: buffers do not show them.
    for (const ir::Axis& axis : type.axes) {
      if (axis.kind != ir::AxisKind::kReduction) axes.push_back({axis.kind, Import(axis.extent)});
    }
    return host_->Tensor(type.dtype, axes);
  }

  // A computed value that is returned only under another shape is written straight into the
  // output's memory:
  // `%y = reshape(%c); return %y` makes the buffer of %c a view of %y, and the reshape nothing.
  void AliasOutputs() {
    const std::vector<Group>& groups = at_->program->groups;
    std::unordered_map<const Op*, size_t> group_of;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Op* op : groups[i].ops) group_of[op] = i;
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      const Group& group = groups[i];
      const bool views = std::all_of(group.ops.begin(), group.ops.end(),
                                     [](const Op* op) { return (op->info->effects & ir::kLoop) == 0 && IsView(*op); });
      if (!views || group.inputs.size() != 1 || group.outputs.size() != 1) continue;
      if (!at_->buffer.contains(group.outputs[0])) continue;  // Not returned: an ordinary view.
      if (at_->program->strides.contains(group.outputs[0])) continue;
      const Value* from = group.inputs[0];
      const bool computed = from->def != nullptr && at_->kinds[group_of.at(from->def)] != SegmentKind::kView;
      if (!computed || at_->buffer.contains(from) || at_->storage_of.contains(from)) continue;
      if (!IsHeldWherever(*from, *group.outputs[0])) continue;
      at_->storage_of[from] = group.outputs[0];
      at_->kinds[i] = SegmentKind::kView;
    }
  }

  // A result of a library call that is only read in another order is written in that order:
  // `%o = attention(...)  %p = permute(%o)` makes the buffer of %o a view of that of %p, and the permute nothing.
  void WriteThroughViews(std::span<const std::vector<Op*>> uses, const StridedViews& strided) {
    if (!at_->program->calls_take_strides) return;
    const std::vector<Group>& groups = at_->program->groups;
    for (size_t i = 0; i < groups.size(); ++i) {
      const Group& group = groups[i];
      if (at_->kinds[i] != SegmentKind::kKernel) continue;
      if (!IsChain(group, strided)) continue;
      const Value* const from = group.inputs[0];
      if (uses[static_cast<size_t>(from->id)].size() != 1 || at_->buffer.contains(from)) continue;
      if (at_->storage_of.contains(from) || !IsHeldWherever(*from, *group.outputs[0])) continue;
      if (!strided.AreWrittenInPlace(group.ops)) continue;
      at_->written_through[from] = group.ops;
      at_->kinds[i] = SegmentKind::kView;
    }
  }

  // Every second step of a ring lies where it lay two steps before. So no step is taken before that was read, however
  // far ahead of the others a stream of communications is.
  void AlternateBuffers() {
    const std::vector<Group>& groups = at_->program->groups;
    std::unordered_map<const Value*, size_t> last_reader;
    std::unordered_set<const Value*> viewed;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Value* input : groups[i].inputs) {
        last_reader[input] = i;
        if (at_->kinds[i] == SegmentKind::kView) viewed.insert(input);
      }
    }
    std::unordered_set<const Value*> given;  // Where ways part, to the first.
    for (size_t i = 0; i < groups.size(); ++i) {
      const Op& op = *groups[i].ops[0];
      if (!PassesOn(op) || !PassesOn(*op.operands[0]->def)) continue;
      const Value* const result = op.results[0];
      const Value* const before = op.operands[0]->def->operands[0];
      const bool is_read = last_reader[before] >= i || viewed.contains(before) || viewed.contains(result);
      if (is_read || ir::ToString(*before->type) != ir::ToString(*result->type)) continue;
      if (at_->buffer.contains(before) || at_->buffer.contains(result) || at_->storage_of.contains(result)) continue;
      if (given.insert(before).second) at_->storage_of[result] = before;
    }
  }

  // Whether every rank that has `from` has memory for `output`, too: after a change of meshes it may not.
  static bool IsHeldWherever(const Value& from, const Value& output) {
    if (from.layout == nullptr || output.layout == nullptr) return true;
    const mesh::DeviceMesh& to = output.layout->mesh->mesh;
    return std::ranges::all_of(from.layout->mesh->mesh.devices(),
                               [&](int64_t device) { return to.PositionOf(device).has_value(); });
  }

  // What to allocate for a buffer of `type`.
  const Type* Largest(const Type& type) {
    std::vector<ir::Axis> axes(type.axes.begin(), type.axes.end());
    for (ir::Axis& axis : axes) axis.extent = LargestOnAnyRank(*host_, axis.extent);
    return host_->Tensor(type.dtype, axes);
  }

  // Memory for one `type`: in a loop, for one in each turn.
  Value* Memory(const Type* type, std::string_view name) {
    const ir::Attr space = {"space", host_->Copy("pool")};
    if (at_->turns == 0) return AddOp("alloc", {}, {space}, type, name);
    std::vector<ir::Axis> axes(type->axes.begin(), type->axes.end());
    axes.insert(axes.begin(), {ir::AxisKind::kIteration, host_->exprs().Const(at_->turns)});
    ir::Builder before(*host_, *at_->outermost->parent, at_->outermost);
    const std::string turns = Cat(name, ".turns");
    const std::string_view names[] = {turns};
    const Type* const types[] = {host_->Tensor(type->dtype, axes)};
    const auto alloc = before.Add({.name = "alloc", .attrs = {&space, 1}, .result_names = names, .declared = types});
    if (!alloc.ok()) {
      first_error_ = first_error_.ok() ? alloc.status() : first_error_;
      return nullptr;
    }
    return Select((*alloc)->results[0], 0, at_->turn, name);
  }

  // The buffer of a value that is about to be written.
  Value* Allocate(const Value* value) {
    if (const auto found = at_->buffer.find(value); found != at_->buffer.end()) return found->second;
    const Type* type = Import(*value->type);
    if (const auto through = at_->written_through.find(value); through != at_->written_through.end())
      return at_->buffer[value] = AllocateThrough(through->second);
    const auto storage = at_->storage_of.find(value);
    Value* buffer = storage == at_->storage_of.end()
                        ? Memory(Largest(*type), value->name)
                        : AddOp("view_reshape", {at_->buffer.at(storage->second)}, {}, type, value->name);
    at_->buffer[value] = buffer;
    return buffer;
  }

  // Memory of what the last of these views is, seen as what the first is of.
  Value* AllocateThrough(std::span<Op* const> views) {
    Value* buffer = Allocate(views.back()->results[0]);
    for (size_t i = views.size(); i-- > 0;) buffer = SeenAs(*views[i]->operands[0], buffer, *views[i]);
    return buffer;
  }

  // The operand of the view `op`, of the memory of its result.
  Value* SeenAs(const Value& operand, Value* result, const Op& op) {
    if (fusion::CodeOf(op) != fusion::FusionOp::kPermute)
      return AddOp("view_reshape", {result}, {}, Import(*operand.type), operand.name);
    const std::vector<int64_t> dims = InverseOf(op.Ints("dims"));
    return AddOp("view_permute", {result}, {{"dims", std::span<const int64_t>(host_->Copy(dims))}},
                 Import(*operand.type), operand.name);
  }

  Value* Select(Value* from, int64_t axis, const ir::Expr* index, std::string_view name) {
    std::vector<ir::Axis> axes(from->type->axes.begin(), from->type->axes.end());
    axes.erase(axes.begin() + axis);
    return AddOp("view_select", {from}, {{"axis", axis}, {"index", index}}, host_->Tensor(from->type->dtype, axes),
                 name);
  }

  // `declared` is the result's type; null for an op without a result.
  Value* AddOp(std::string_view name, std::vector<Value*> operands, std::vector<Attr> attrs,
               const Type* declared = nullptr, std::string_view result = {}) {
    ir::Builder builder(*host_, block_ == nullptr ? *at_->block : *block_);
    ir::Builder::OpSpec spec{.name = name, .operands = operands, .attrs = attrs};
    const std::string_view names[] = {result};
    const Type* const types[] = {declared};
    if (declared != nullptr) {
      spec.result_names = names;
      spec.declared = types;
    }
    auto op = builder.Add(spec);
    if (!op.ok()) first_error_ = first_error_.ok() ? op.status() : first_error_;
    return !op.ok() || (*op)->results.empty() ? nullptr : (*op)->results[0];
  }

  Status LowerGroup(size_t index) {
    const Group& group = at_->program->groups[index];
    const auto overlap = at_->overlap_of.find(index);
    const bool overlaps = overlap != at_->overlap_of.end();
    switch (at_->kinds[index]) {
      case SegmentKind::kView: LowerViews(group); break;
      case SegmentKind::kCommunication:
        overlaps ? LowerShifts(group, *overlap->second) : LowerCommunication(group);
        break;
      case SegmentKind::kLibrary: overlaps ? LowerParts(group, *overlap->second) : LowerLibrary(group); break;
      case SegmentKind::kKernel: HIR_TRY(LowerKernel(group)); break;
      case SegmentKind::kLoop: HIR_TRY(LowerLoop(group)); break;
    }
    block_ = nullptr;
    return first_error_;
  }

  LoweredSegment& AddSegment(const Group& group, SegmentKind kind, std::string name) {
    LoweredSegment segment;
    segment.group = &group;
    segment.loop = at_->loop;
    segment.in_rest = at_->in_rest;
    segment.kind = kind;
    segment.name = std::move(name);
    return lowered_.segments.emplace_back(std::move(segment));
  }

  void LowerViews(const Group& group) {
    const bool is_written = at_->written_through.contains(group.inputs[0]);  // By the producer.
    for (const Op* op : group.ops) {
      const Value* result = op->results[0];
      if (is_written || at_->buffer.contains(result)) continue;
      at_->buffer[result] = View(*op, at_->buffer.at(op->operands[0]));
    }
    AddSegment(group, SegmentKind::kView, std::string(group.ops[0]->info->name));
  }

  // The result of the view `op`, of the memory of its operand.
  Value* View(const Op& op, Value* operand) {
    using fusion::FusionOp;
    const Value& result = *op.results[0];
    const FusionOp code = fusion::CodeOf(op);
    if (code == FusionOp::kPermute) {
      return AddOp("view_permute", {operand}, {{"dims", std::span<const int64_t>(host_->Copy(op.Ints("dims")))}},
                   Import(*result.type), result.name);
    }
    if (code != FusionOp::kSlice) return AddOp("view_reshape", {operand}, {}, Import(*result.type), result.name);
    std::vector<ir::Axis> axes(operand->type->axes.begin(), operand->type->axes.end());
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const ir::Expr* const from = Import(op.Exprs("start")[axis]);
      const ir::Expr* const to = Import(op.Exprs("end")[axis]);
      if ((from->IsConst(0) && to == axes[axis].extent) || operand == nullptr) continue;
      axes[axis].extent = host_->exprs().Sub(to, from);
      operand = AddOp("view_slice", {operand}, {{"axis", static_cast<int64_t>(axis)}, {"from", from}, {"to", to}},
                      host_->Tensor(result.type->dtype, axes), result.name);
    }
    return operand;
  }

  // The ranks that run the program: those of its meshes.
  int64_t NumRanks() {
    if (num_ranks_ == 0) {
      std::set<int64_t> ranks;
      for (const ir::Mesh& mesh : program_.graph->meshes())
        ranks.insert(mesh.mesh.devices().begin(), mesh.mesh.devices().end());
      num_ranks_ = std::ssize(ranks);
    }
    return num_ranks_;
  }

  // Work that only part of the ranks do goes under an `if`; allocations and views stay outside,
  // where all can see them.
  void Guard(const Value& written) {
    const ir::Layout* layout = written.layout;
    if (layout == nullptr || layout->mesh == nullptr || layout->mesh->mesh.num_devices() == NumRanks()) return;
    ir::Builder builder(*host_, *at_->block);
    const Attr cond{"cond", host_->exprs().Symbol(Cat("@", layout->mesh->name, ".in"))};
    auto added = builder.Add({.name = "if", .attrs = {&cond, 1}});
    if (!added.ok()) {
      first_error_ = added.status();
      return;
    }
    block_ = (*added)->blocks[0];
  }

  void LowerCommunication(const Group& group) {
    const Op& op = *group.ops[0];
    const fusion::FusionOp code = fusion::CodeOf(op);
    Value* source = at_->buffer.at(op.operands[0]);
    Value* destination = Allocate(op.results[0]);
    const int64_t first_seq = next_seq_;
    if (fusion::IsBetweenMeshes(code)) {  // Whoever has no part in it skips it.
      LowerBetweenMeshes(group, code, source, destination);
    } else {
      LowerInTeams(op, code, source, destination);
    }
    LoweredSegment& segment = AddSegment(group, SegmentKind::kCommunication, std::string(TypeOf(code, op)));
    segment.launches = static_cast<int>(next_seq_ - first_seq);
    segment.first_seq = first_seq;
  }

  void LowerInTeams(const Op& op, fusion::FusionOp code, Value* source, Value* destination) {
    Guard(*op.results[0]);
    const bool reduces = code == fusion::FusionOp::kAllreduce || code == fusion::FusionOp::kReduceScatter;
    const ir::Mesh* mesh = host_->FindMesh(op.MeshOf("mesh")->name);
    AddCommunication(op.info->name, reduces ? op.Name("reduce") : "none", mesh, op.Name("dim"), mesh, source,
                     destination);
  }

  static std::string_view TypeOf(fusion::FusionOp code, const Op& op) {
    using fusion::FusionOp;
    if (code == FusionOp::kBroadcastTo) return "broadcast";
    if (code == FusionOp::kScatterTo) return "scatter";
    if (code == FusionOp::kGatherTo) return "gather";
    if (code == FusionOp::kReduceTo) return "reduce";
    return op.info->name;
  }

  void AddCommunication(std::string_view type, std::string_view reduce, const ir::Mesh* mesh, std::string_view dim,
                        const ir::Mesh* to, Value* source, Value* destination, std::string_view by = "any") {
    AddOp("communication", {source, destination},
          {{"type", host_->Copy(type)},
           {"reduce", host_->Copy(reduce)},
           {"mesh", mesh},
           {"dim", host_->Copy(dim)},
           {"to", to},
           {"stream", host_->exprs().Const(0)},
           {"seq", next_seq_++},
           {"by", host_->Copy(by)}});
  }

  // The place in its team that is `ahead` of this rank's.
  const ir::Expr* PlaceAhead(const Op& communication, int64_t ahead, int64_t ways) {
    const std::string_view dim = communication.Name("dim");  // "mesh_x"
    ir::ExprPool& pool = host_->exprs();
    const ir::Expr* const place =
        pool.Symbol(Cat("@", communication.MeshOf("mesh")->name, ".", dim.substr(dim.size() - 1)));
    return ahead == 0 ? place : pool.Mod(pool.Add(place, pool.Const(ahead)), pool.Const(ways));
  }

  const ir::Mesh* Shifted(const Op& communication, int64_t ahead) {
    const mesh::ParallelType dim = *mesh::ParseParallelType(communication.Name("dim"));
    return host_->AddMesh(communication.MeshOf("mesh")->mesh.Shifted(dim, ahead));
  }

  // The communication of an overlap: each shift brings the chunk of one other rank.
  void LowerShifts(const Group& group, const Overlap& overlap) {
    const Op& op = *group.ops[0];
    const bool gathers = overlap.kind == Overlap::Kind::kGathers;
    Value* const source = at_->buffer.at(op.operands[0]);
    Value* const destination = Allocate(op.results[0]);
    const int64_t first_seq = next_seq_, ways = overlap.ways;
    const std::string_view from_name = op.operands[0]->name, to_name = op.results[0]->name;
    for (int64_t k = 1; k < ways; ++k) {
      // Gathered are the rows of the rank that is k ahead, sent those for it.
      Value* const out = gathers ? source : Select(source, 0, PlaceAhead(op, k, ways), Cat(from_name, ".to", k));
      Value* const in = Select(destination, 0, PlaceAhead(op, gathers ? k : ways - k, ways), Cat(to_name, ".from", k));
      Guard(*op.results[0]);
      AddCommunication("collective_permute", "none", host_->FindMesh(op.MeshOf("mesh")->name), "none",
                       Shifted(op, gathers ? ways - k : k), out, in, "copies");
      block_ = nullptr;
    }
    LoweredSegment& segment = AddSegment(group, SegmentKind::kCommunication, std::string(op.info->name));
    segment.schedule = Cat(ways - 1, ways == 2 ? " shift" : " shifts");
    segment.launches = static_cast<int>(next_seq_ - first_seq);
    segment.first_seq = first_seq;
  }

  // `type` with the rows of one of `ways` parts.
  const Type* PartType(const Type& type, int64_t ways) {
    std::vector<ir::Axis> axes(type.axes.begin(), type.axes.end());
    ir::Axis& rows = axes[static_cast<size_t>(RowAxis(type, ways))];
    rows.extent = host_->exprs().Const(rows.extent->value / ways);
    return host_->Tensor(type.dtype, axes);
  }
  Value* PartOf(Value* buffer, int64_t ways, const ir::Expr* index, std::string_view name) {
    const int axis = RowAxis(*buffer->type, ways);
    std::vector<ir::Axis> axes(buffer->type->axes.begin(), buffer->type->axes.end());
    ir::Axis& rows = axes[static_cast<size_t>(axis)];
    rows.extent = host_->exprs().Const(rows.extent->value / ways);
    axes.insert(axes.begin() + axis, ir::Axis{ir::AxisKind::kIteration, host_->exprs().Const(ways)});
    Value* const parts =
        AddOp("view_reshape", {buffer}, {}, host_->Tensor(buffer->type->dtype, axes), Cat(name, ".parts"));
    return parts == nullptr ? nullptr : Select(parts, axis, index, name);
  }

  // A product of an overlap, a part of rows at a time: those that are at hand first, or those that others wait for.
  void LowerParts(const Group& group, const Overlap& overlap) {
    const Op& op = *group.ops[0];
    const Op& communication = *at_->program->groups[overlap.communication].ops[0];
    const bool gathers = overlap.kind == Overlap::Kind::kGathers;
    const int64_t ways = overlap.ways;
    Value* const rows = at_->buffer.at(op.operands[0]);
    Value* const result = Allocate(op.results[0]);
    for (int64_t i = 0; i < ways; ++i) {
      const int64_t ahead = gathers ? i : (i + 1) % ways;
      const ir::Expr* const place = PlaceAhead(communication, ahead, ways);
      const auto named = [&](const Value* value) { return Cat(value->name, ".part", i); };
      std::vector<Value*> operands;
      for (const Value* operand : op.operands) operands.push_back(at_->buffer.at(operand));
      if (gathers && ahead == 0) {  // Its own rows need not arrive.
        operands[0] = AddOp("view_reshape", {at_->buffer.at(communication.operands[0])}, {},
                            PartType(*rows->type, ways), named(op.operands[0]));
      } else {
        operands[0] = PartOf(rows, ways, place, named(op.operands[0]));
      }
      if (!gathers && ahead == 0) {  // Its own part is made where the others' arrive.
        Value* const own = Select(Allocate(communication.results[0]), 0, place, Cat(named(op.results[0]), ".own"));
        operands.push_back(AddOp("view_reshape", {own}, {}, PartType(*result->type, ways), named(op.results[0])));
      } else {
        operands.push_back(PartOf(result, ways, place, named(op.results[0])));
      }
      if (!first_error_.ok()) return;
      Guard(*op.results[0]);
      AddCall(op, operands);
      block_ = nullptr;
    }
    LoweredSegment& segment = AddSegment(group, SegmentKind::kLibrary, std::string(op.info->name));
    const std::string call = DescribeCall(op);
    segment.schedule =
        Cat(call, call.empty() ? "" : ", ", "in ", ways, " parts, own rows ", gathers ? "first" : "last");
    segment.launches = static_cast<int>(ways);
  }

  // A mesh of the host program with these devices, in one dimension.
  const ir::Mesh* MeshOf(const std::vector<int64_t>& devices) {
    return host_->AddMesh(*mesh::DeviceMesh::Make({std::ssize(devices)}, devices));
  }

  // One communication a row. A tensor that moves whole beside other work leaves that the multiprocessors, where the
  // device can; alone the library is faster. Roots that are in no row of theirs are no members of a team: each chunk
  // travels alone.
  void LowerBetweenMeshes(const Group& group, fusion::FusionOp code, Value* source, Value* destination) {
    const Op& op = *group.ops[0];
    const ir::Mesh* from = host_->FindMesh(op.MeshOf("from")->name);
    const ir::Mesh* to = host_->FindMesh(op.MeshOf("to")->name);
    const std::string_view type = TypeOf(code, op);
    const bool spreads = code == fusion::FusionOp::kBroadcastTo || code == fusion::FusionOp::kScatterTo;
    const bool collects = code == fusion::FusionOp::kGatherTo || code == fusion::FusionOp::kReduceTo;
    const std::string_view reduce = code == fusion::FusionOp::kReduceTo ? op.Name("reduce") : std::string_view("none");
    if (!spreads && !collects) {
      AddCommunication(type, reduce, from, "none", to, source, destination, HasWorkBeside(group) ? "copies" : "any");
      return;
    }
    const ir::Mesh& roots = spreads ? *from : *to;
    const std::vector<std::vector<int64_t>> rows = plan::RowsOf((spreads ? to : from)->mesh);
    const bool chunked = code == fusion::FusionOp::kScatterTo || code == fusion::FusionOp::kGatherTo;
    if (chunked && !HoldRoots(rows, roots.mesh)) {
      SendChunks(rows, roots, spreads, source, destination);
      return;
    }
    Grouped(rows.size() > 1);
    for (size_t k = 0; k < rows.size(); ++k) {
      const ir::Mesh* const root = MeshOf({roots.mesh.devices()[k]});
      const ir::Mesh* const row = MeshOf(rows[k]);
      AddCommunication(type, reduce, spreads ? root : row, "none", spreads ? row : root, source, destination);
    }
  }

  // Whether something is computed between it and the first that reads what it brings.
  bool HasWorkBeside(const Group& group) const {
    const std::vector<Group>& groups = at_->program->groups;
    for (auto i = static_cast<size_t>(&group - groups.data()) + 1; i < groups.size(); ++i) {
      const bool reads = std::ranges::any_of(groups[i].inputs, [&](const Value* input) {
        return std::ranges::find(group.outputs, input) != group.outputs.end();
      });
      if (reads) return false;
      if (at_->kinds[i] != SegmentKind::kCommunication && at_->kinds[i] != SegmentKind::kView) return true;
    }
    return false;
  }

  static bool HoldRoots(const std::vector<std::vector<int64_t>>& rows, const mesh::DeviceMesh& roots) {
    for (size_t k = 0; k < rows.size(); ++k) {
      if (std::find(rows[k].begin(), rows[k].end(), roots.devices()[k]) == rows[k].end()) return false;
    }
    return true;
  }

  // Opens a group: the ops that follow are in it.
  void Grouped(bool wanted) {
    if (!wanted) return;
    ir::Builder builder(*host_, *at_->block);
    const auto group = builder.Add({.name = "group"});
    if (group.ok()) block_ = (*group)->blocks[0];
    if (!group.ok() && first_error_.ok()) first_error_ = group.status();
  }

  // Chunk j of the roots' buffer to or from the j-th device of each row.
  void SendChunks(const std::vector<std::vector<int64_t>>& rows, const ir::Mesh& roots, bool spreads, Value* source,
                  Value* destination) {
    Grouped(true);
    for (size_t j = 0; j < rows[0].size(); ++j) {
      std::vector<int64_t> column;
      for (const std::vector<int64_t>& row : rows) column.push_back(row[j]);
      const ir::Mesh* const others = MeshOf(column);
      Value*& chunked = spreads ? source : destination;
      Value* const whole = chunked;
      chunked = Select(whole, 0, host_->exprs().Const(static_cast<int64_t>(j)), Cat(whole->name, ".chunk"));
      AddCommunication("send_recv", "none", spreads ? &roots : others, "none", spreads ? others : &roots, source,
                       destination);
      chunked = whole;
    }
  }

  void LowerLibrary(const Group& group) {
    const Op& op = *group.ops[0];
    std::vector<Value*> operands;
    for (const Value* operand : op.operands) operands.push_back(at_->buffer.at(operand));
    const std::vector<const Op*> ops = InOrderOfResults(group);
    for (const Op* one : ops) operands.push_back(Allocate(one->results[0]));
    Guard(*op.results[0]);
    if (fusion::IsAttention(fusion::CodeOf(op))) {
      AddAttention(ops, operands);
    } else {
      AddCall(op, operands);
    }
    LoweredSegment& segment = AddSegment(group, SegmentKind::kLibrary, std::string(op.info->name));
    segment.schedule = DescribeCall(op);
    segment.launches = 1;
  }

  // Several results of one attention are one call, which has them in one order; other calls have one.
  static std::vector<const Op*> InOrderOfResults(const Group& group) {
    std::vector<const Op*> ops(group.ops.begin(), group.ops.end());
    constexpr std::string_view kOrder[] = {"values", "lse", "q", "k", "v"};
    if (ops.size() > 1)
      std::ranges::sort(ops, {}, [&](const Op* op) { return std::ranges::find(kOrder, op->Name("result")); });
    return ops;
  }

  // `ops` share a call; `operands`: theirs, and their results.
  void AddAttention(const std::vector<const Op*>& ops, const std::vector<Value*>& operands) {
    const Op& op = *ops[0];
    std::vector<std::string_view> results;
    for (const Op* one : ops) results.push_back(one->Name("result"));
    AddOp("attention", operands,
          {{"inputs", static_cast<int64_t>(op.operands.size())},
           {"results", host_->Copy(base::Join(results, ","))},
           {"causal", op.Bool("causal")},
           {"diagonal",
            op.Bool("causal") ? Import(fusion::DiagonalOf(at_->program->graph->exprs(), op)) : host_->exprs().Const(0)},
           {"scale", op.Float("scale")},
           {"stream", at_->stream}});
  }

  // `operands`: the op's, and its result.
  void AddCall(const Op& op, const std::vector<Value*>& operands) {
    if (fusion::CodeOf(op) == fusion::FusionOp::kIndexSum) {
      AddOp("index_sum", operands, {{"axis", op.Int("axis")}, {"stream", at_->stream}});
      return;
    }
    if (fusion::IsGrouped(fusion::CodeOf(op))) {
      AddOp("grouped_product", operands,
            {{"op", op.info->name},
             {"first", Import(fusion::FirstRowOf(op))},
             {"transposed", fusion::TransposedName(fusion::TransposedOf(op))},
             {"stream", at_->stream}});
      return;
    }
    AddOp("library", operands,
          {{"op", op.info->name},
           {"inputs", static_cast<int64_t>(op.operands.size())},
           {"epilogue", host_->Copy(op.Name("epilogue"))},
           {"precision", host_->Copy(op.Name("precision"))},
           {"transposed", fusion::TransposedName(fusion::TransposedOf(op))},
           {"stream", at_->stream}});
  }

  Status LowerKernel(const Group& group) {
    const std::string name = Cat("k", lowered_.kernels.size());
    HIR_ASSIGN(codegen::KernelPlan plan, codegen::Plan(group.View(*at_->program->graph), name, options_.target,
                                                       options_.sizes, at_->program->strides));
    for (const Value* output : group.outputs) Allocate(output);
    std::vector<Value*> workspaces;
    for (const codegen::Workspace& workspace : plan.workspaces) {
      const ir::Axis axis{ir::AxisKind::kIteration, LargestOnAnyRank(*host_, Import(workspace.bytes))};
      workspaces.push_back(Memory(host_->Tensor(DType::kBool, {&axis, 1}), Cat(name, ".workspace")));
    }
    Guard(*group.outputs[0]);
    for (size_t i = 0; i < plan.workspaces.size(); ++i) {
      if (plan.workspaces[i].zeroed) AddOp("fill", {workspaces[i]}, {{"value", 0.0}, {"stream", at_->stream}});
    }
    for (const codegen::Launch& launch : plan.launches) AddLaunch(launch, workspaces);
    ir::Graph& root = *program_.graph;
    for (const ir::Guard& guard : plan.guards) {
      HIR_TRY(
          root.AddGuard({guard.kind, root.exprs().Import(guard.left), root.exprs().Import(guard.right), guard.reason}));
    }
    LoweredSegment& segment = AddSegment(group, SegmentKind::kKernel, name);
    segment.kernel = static_cast<int>(lowered_.kernels.size());
    segment.schedule = plan.schedule;
    segment.launches = static_cast<int>(plan.launches.size());
    lowered_.kernels.push_back(std::move(plan));
    return {};
  }

  void AddLaunch(const codegen::Launch& launch, const std::vector<Value*>& workspaces) {
    std::vector<Value*> operands;
    for (const Value* input : launch.inputs) operands.push_back(at_->buffer.at(input));
    for (const Value* output : launch.outputs) operands.push_back(at_->buffer.at(output));
    for (int workspace : launch.workspaces) operands.push_back(workspaces[static_cast<size_t>(workspace)]);
    for (const Value* scalar : launch.scalars) operands.push_back(at_->buffer.at(scalar));
    std::vector<const ir::Expr*> extents;
    for (const ir::Expr* extent : launch.extents) extents.push_back(Import(extent));
    AddOp("launch", operands,
          {{"kernel", host_->Copy(launch.kernel)},
           {"inputs", static_cast<int64_t>(launch.inputs.size())},
           {"outputs", static_cast<int64_t>(launch.outputs.size())},
           {"workspaces", static_cast<int64_t>(launch.workspaces.size())},
           {"extents", std::span<const ir::Expr* const>(host_->Copy(extents))},
           {"grid", Import(launch.grid)},
           {"stream", at_->stream}});
  }

  // --- loops ---

  Status LowerLoop(const Group& group) {
    const Op& op = *group.ops[0];
    const StreamLoop& loop = at_->program->loops[static_cast<size_t>(op.Int("loop"))];
    for (const Value* result : op.results) Allocate(result);
    ir::ExprPool& pool = host_->exprs();
    const ir::Expr* const iterations = Import(loop.iterations);
    int64_t turns = options_.streams;
    if (at_->iteration == nullptr && iterations->IsConst()) turns = std::clamp<int64_t>(iterations->value, 1, turns);
    AddSegment(group, SegmentKind::kLoop, loop.name).schedule =
        Cat(Describe(loop.axis), ", ", turns, turns == 1 ? " stream" : " streams");
    Level body = {.program = &loop.body.segments, .loop = &loop};
    const ir::Expr* const index = BeginLoop(loop, iterations, body);
    HIR_TRY(first_error_);
    body.iteration = index;
    if (at_->iteration != nullptr) {  // Any number does that is known in each iteration.
      const ir::Expr* const stride = iterations->IsConst() ? iterations : pool.Const(1);
      body.iteration = pool.Add(pool.Mul(at_->iteration, stride), index);
    }
    body.turn = pool.Mod(body.iteration, pool.Const(turns));
    body.turns = turns;
    body.stream = pool.Add(pool.Const(kFirstLoopStream), body.turn);
    HIR_TRY(LowerBody(op, loop.body, body));
    if (loop.rest == nullptr) return {};
    // One iteration, or none: on the stream of what is around.
    Level rest = {.program = &loop.rest_body.segments, .loop = &loop, .in_rest = true};
    BeginLoop(loop, Import(loop.rest), rest);
    HIR_TRY(first_error_);
    rest.stream = at_->stream;
    rest.iteration = at_->iteration;
    rest.turn = at_->turns == 0 ? pool.Const(0) : at_->turn;
    rest.turns = std::max<int64_t>(at_->turns, 1);
    return LowerBody(op, loop.rest_body, rest);
  }

  // The op, and its index as the body's expressions name it.
  const ir::Expr* BeginLoop(const StreamLoop& loop, const ir::Expr* iterations, Level& body) {
    ir::ExprPool& pool = host_->exprs();
    ir::Builder builder(*host_, *at_->block);
    const ir::Attr attrs[] = {{"begin", pool.Const(0)}, {"end", iterations}, {"step", pool.Const(1)}};
    const auto made = builder.Add({.name = "for", .attrs = attrs});
    if (!made.ok()) {
      first_error_ = made.status();
      return nullptr;
    }
    body.block = (*made)->blocks[0];
    body.outermost = at_->outermost == nullptr ? *made : at_->outermost;
    const Value* const index = host_->AddBlockArg(*body.block, loop.index, host_->Index());
    const ir::Expr* const symbol = pool.Symbol(Cat("%", index->name));
    names_.push_back(Cat("%", loop.index));
    indices_[names_.back()] = symbol;
    return symbol;
  }

  Status LowerBody(const Op& op, const LoopBody& body, Level& level) {
    Level* const around = at_;
    at_ = &level;
    const ir::Graph& graph = *body.graph;
    for (size_t i = 0; i < graph.params.size(); ++i) {
      const LoopPart& part = body.inputs[i];
      level.buffer[graph.params[i]] = Chunk(around->buffer.at(op.operands[part.number]), part, graph.params[i]->name);
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const LoopPart& part = body.outputs[i];
      const Value* const value = graph.outputs[i].value;
      level.buffer[value] = Chunk(around->buffer.at(op.results[part.number]), part, value->name);
    }
    HIR_TRY(first_error_);
    HIR_TRY(LowerGroups());
    at_ = around;
    return {};
  }

  // The view of `buffer` that `part` is.
  Value* Chunk(Value* buffer, const LoopPart& part, std::string_view name) {
    if (buffer == nullptr) return nullptr;
    ir::ExprPool& pool = host_->exprs();
    if (part.select != nullptr) buffer = Select(buffer, 0, Import(part.select), name);
    for (const Cut& cut : part.cuts) {
      if (buffer == nullptr) return nullptr;
      const ir::Expr* const size = Import(cut.size);
      if (cut.merged > 1) {
        buffer = OneOfMerged(buffer, cut, name);
        continue;
      }
      if (cut.index == nullptr) {
        const ir::Expr* const begin = Import(cut.begin);
        std::vector<ir::Axis> axes(buffer->type->axes.begin(), buffer->type->axes.end());
        axes[static_cast<size_t>(cut.axis)].extent = size;
        buffer =
            AddOp("view_slice", {buffer}, {{"axis", int64_t{cut.axis}}, {"from", begin}, {"to", pool.Add(begin, size)}},
                  host_->Tensor(buffer->type->dtype, axes), name);
        continue;
      }
      std::vector<ir::Axis> axes(buffer->type->axes.begin(), buffer->type->axes.end());
      ir::Axis& axis = axes[static_cast<size_t>(cut.axis)];
      ir::Axis ways = axis;
      ways.extent = pool.Const(cut.ways);
      axis.extent = size;
      const bool dealt = cut.step > 1;
      axes.insert(axes.begin() + cut.axis + (dealt ? 1 : 0), ways);
      buffer = AddOp("view_reshape", {buffer}, {}, host_->Tensor(buffer->type->dtype, axes), Cat(name, ".chunks"));
      if (buffer != nullptr) buffer = Select(buffer, cut.axis + (dealt ? 1 : 0), Import(cut.index), name);
    }
    return buffer;
  }

  // One element of each of the axes that `cut` merges.
  Value* OneOfMerged(Value* buffer, const Cut& cut, std::string_view name) {
    ir::ExprPool& pool = host_->exprs();
    std::vector<ir::Axis> axes(buffer->type->axes.begin(), buffer->type->axes.end());
    const auto first = axes.begin() + cut.axis;
    for (int i = 1; i < cut.merged; ++i) first->extent = pool.Mul(first->extent, (first + i)->extent);
    axes.erase(first + 1, first + cut.merged);
    const DType dtype = buffer->type->dtype;
    buffer = AddOp("view_reshape", {buffer}, {}, host_->Tensor(dtype, axes), Cat(name, ".merged"));
    axes[static_cast<size_t>(cut.axis)].extent = pool.Const(1);
    const ir::Expr* const begin = Import(cut.begin);
    if (buffer == nullptr) return nullptr;
    buffer = AddOp("view_slice", {buffer},
                   {{"axis", int64_t{cut.axis}}, {"from", begin}, {"to", pool.Add(begin, pool.Const(1))}},
                   host_->Tensor(dtype, axes), name);
    axes.insert(axes.begin() + cut.axis, static_cast<size_t>(cut.merged - 1), axes[static_cast<size_t>(cut.axis)]);
    return buffer == nullptr ? nullptr : AddOp("view_reshape", {buffer}, {}, host_->Tensor(dtype, axes), name);
  }

  const Segmented& program_;
  const LowerOptions& options_;
  std::unique_ptr<ir::Graph> host_;
  Level* at_ = nullptr;
  ir::Block* block_ = nullptr;     // Of the `if` or group around the current group, or null.
  std::deque<std::string> names_;  // Of the indices, as the bodies have them.
  std::unordered_map<std::string_view, const ir::Expr*> indices_;
  std::vector<Overlap> overlaps_;  // Of the program; its loops have none.
  int64_t next_seq_ = 0;
  int64_t num_ranks_ = 0;  // 0: not counted yet.
  Status first_error_;
  Lowered lowered_;
};

}  // namespace

std::string_view SegmentKindName(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kKernel: return "kernel";
    case SegmentKind::kLibrary: return "library";
    case SegmentKind::kCommunication: return "communication";
    case SegmentKind::kView: return "view";
    case SegmentKind::kLoop: return "loop";
  }
  return {};
}

Result<Lowered> Lower(const Segmented& program, const LowerOptions& options) {
  HIR_CHECK(options.streams >= 1 && options.streams <= kLoopStreamsMax);
  return Lowering(program, options).Run();
}

}  // namespace hir::host
