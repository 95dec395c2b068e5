#include "host_ir/lower/lower.h"

#include <algorithm>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"
#include "host_ir/lower/storage.h"
#include "multidevice/plan/resharding.h"

namespace hir::host {
namespace {

using base::Cat;
using ir::Attr;
using ir::Op;
using ir::Type;
using ir::Value;
using segment::Group;

SegmentKind KindOf(const ir::Graph& local, const Group& group) {
  if (group.ops[0]->info->effects & ir::kComm) return SegmentKind::kCommunication;
  if (group.ops[0]->info->effects & ir::kLibrary) return SegmentKind::kLibrary;
  const bool views = std::all_of(group.ops.begin(), group.ops.end(), [&](const Op* op) {
    return IsView(*op) && op->operands[0]->type->kind == ir::TypeKind::kTensor;
  });
  if (!views) return SegmentKind::kKernel;
  // A program's output has memory of its own.
  const bool returned = std::any_of(local.outputs.begin(), local.outputs.end(), [&](const ir::Output& output) {
    return std::find(group.outputs.begin(), group.outputs.end(), output.value) != group.outputs.end();
  });
  return returned ? SegmentKind::kKernel : SegmentKind::kView;
}

// "", "tanh_gelu", "relu, tf32".
std::string DescribeCall(const Op& op) {
  std::vector<std::string_view> said;
  if (op.Name("epilogue") != fusion::kNoEpilogue) said.push_back(op.Name("epilogue"));
  if (op.Name("precision") != fusion::kFullPrecision) said.push_back(op.Name("precision"));
  return base::Join(said, ", ");
}

class Lowering {
 public:
  Lowering(ir::Graph& local, std::span<const Group> groups, const codegen::Target& target, const codegen::Sizes& sizes)
      : local_(local),
        groups_(groups),
        target_(target),
        sizes_(sizes),
        host_(std::make_unique<ir::Graph>(kHostOps, local.name())),
        stream_(host_->exprs().Const(0)) {}

  Result<Lowered> Run() {
    for (const ir::Mesh& mesh : local_.meshes()) host_->AddMesh(mesh.mesh, mesh.name);
    for (Value* param : local_.params) buffer_[param] = host_->AddParam(param->name, Import(*param->type));
    for (const ir::Output& output : local_.outputs) {
      if (!buffer_.contains(output.value)) {
        buffer_[output.value] = host_->AddParam(output.value->name, Import(*output.value->type));
      }
      host_->outputs.push_back({buffer_[output.value], output.alias == nullptr ? nullptr : buffer_[output.alias]});
    }
    for (const Group& group : groups_) kinds_.push_back(KindOf(local_, group));
    AliasOutputs();
    for (size_t i = 0; i < groups_.size(); ++i) HIR_TRY(LowerGroup(i));
    for (const ir::Guard& guard : local_.guards) {
      HIR_TRY(host_->AddGuard(
          {guard.kind, host_->exprs().Import(guard.left), host_->exprs().Import(guard.right), guard.reason}));
    }
    lowered_.program = std::move(host_);
    return std::move(lowered_);
  }

 private:
  const Type* Import(const Type& type) {
    if (type.kind != ir::TypeKind::kTensor) return host_->New(type);
    std::vector<ir::Axis> axes;  // Reduced axes are not stored: buffers do not show them.
    for (const ir::Axis& axis : type.axes) {
      if (axis.kind != ir::AxisKind::kReduction) axes.push_back({axis.kind, host_->exprs().Import(axis.extent)});
    }
    return host_->Tensor(type.dtype, axes);
  }

  // A computed value that is returned only under another shape is written straight into the
  // output's memory:
  // `%y = reshape(%c); return %y` makes the buffer of %c a view of %y, and the reshape nothing.
  void AliasOutputs() {
    std::unordered_map<const Op*, size_t> group_of;
    for (size_t i = 0; i < groups_.size(); ++i) {
      for (const Op* op : groups_[i].ops) group_of[op] = i;
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Group& group = groups_[i];
      const bool views = std::all_of(group.ops.begin(), group.ops.end(), [](const Op* op) { return IsView(*op); });
      if (!views || group.inputs.size() != 1 || group.outputs.size() != 1) continue;
      if (!buffer_.contains(group.outputs[0])) continue;  // Not returned: an ordinary view.
      const Value* from = group.inputs[0];
      const bool computed = from->def != nullptr && kinds_[group_of.at(from->def)] != SegmentKind::kView;
      if (!computed || buffer_.contains(from) || storage_of_.contains(from)) continue;
      if (!IsHeldWherever(*from, *group.outputs[0])) continue;
      storage_of_[from] = group.outputs[0];
      kinds_[i] = SegmentKind::kView;
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

  // The buffer of a value that is about to be written.
  Value* Allocate(const Value* value) {
    if (const auto found = buffer_.find(value); found != buffer_.end()) return found->second;
    const Type* type = Import(*value->type);
    const auto storage = storage_of_.find(value);
    Value* buffer = storage == storage_of_.end()
                        ? AddOp("alloc", {}, {{"space", host_->Copy("pool")}}, Largest(*type), value->name)
                        : AddOp("view_reshape", {buffer_.at(storage->second)}, {}, type, value->name);
    buffer_[value] = buffer;
    return buffer;
  }

  // `declared` is the result's type; null for an op without a result.
  Value* AddOp(std::string_view name, std::vector<Value*> operands, std::vector<Attr> attrs,
               const Type* declared = nullptr, std::string_view result = {}) {
    ir::Builder builder(*host_, block_ == nullptr ? host_->body : *block_);
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
    const Group& group = groups_[index];
    switch (kinds_[index]) {
      case SegmentKind::kView: LowerViews(group); break;
      case SegmentKind::kCommunication: LowerCommunication(*group.ops[0]); break;
      case SegmentKind::kLibrary: LowerLibrary(*group.ops[0]); break;
      case SegmentKind::kKernel: HIR_TRY(LowerKernel(group)); break;
    }
    block_ = nullptr;
    return first_error_;
  }

  void LowerViews(const Group& group) {
    for (const Op* op : group.ops) {
      const Value* result = op->results[0];
      if (buffer_.contains(result)) continue;  // The output whose memory the producer has written.
      buffer_[result] = AddOp("view_reshape", {buffer_.at(op->operands[0])}, {}, Import(*result->type), result->name);
    }
    lowered_.segments.push_back({SegmentKind::kView, std::string(group.ops[0]->info->name), "", 0});
  }

  // Work that only part of the ranks do goes under an `if`; allocations and views stay outside,
  // where all can see them.
  void Guard(const Value& written) {
    const ir::Layout* layout = written.layout;
    const std::deque<ir::Mesh>& meshes = local_.meshes();
    if (layout == nullptr || meshes.size() < 2) return;
    ir::Builder builder(*host_);
    const Attr cond{"cond", host_->exprs().Symbol(Cat("@", layout->mesh->name, ".in"))};
    auto added = builder.Add({.name = "if", .attrs = {&cond, 1}});
    if (!added.ok()) {
      first_error_ = added.status();
      return;
    }
    block_ = (*added)->blocks[0];
  }

  void LowerCommunication(const Op& op) {
    const fusion::FusionOp code = fusion::CodeOf(op);
    Value* source = buffer_.at(op.operands[0]);
    Value* destination = Allocate(op.results[0]);
    const int64_t first_seq = next_seq_;
    if (fusion::IsBetweenMeshes(code)) {  // Whoever has no part in it skips it.
      LowerBetweenMeshes(op, code, source, destination);
    } else {
      LowerInTeams(op, code, source, destination);
    }
    lowered_.segments.push_back({SegmentKind::kCommunication, std::string(TypeOf(code, op)), "",
                                 static_cast<int>(next_seq_ - first_seq), first_seq});
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
                        const ir::Mesh* to, Value* source, Value* destination) {
    AddOp("communication", {source, destination},
          {{"type", host_->Copy(type)},
           {"reduce", host_->Copy(reduce)},
           {"mesh", mesh},
           {"dim", host_->Copy(dim)},
           {"to", to},
           {"stream", stream_},
           {"seq", next_seq_++}});
  }

  // A mesh of the host program with these devices, in one dimension.
  const ir::Mesh* MeshOf(const std::vector<int64_t>& devices) {
    return host_->AddMesh(*mesh::DeviceMesh::Make({std::ssize(devices)}, devices));
  }

  // One communication a row. Roots that are in no row of theirs are no members of a team: each chunk travels alone.
  void LowerBetweenMeshes(const Op& op, fusion::FusionOp code, Value* source, Value* destination) {
    const ir::Mesh* from = host_->FindMesh(op.MeshOf("from")->name);
    const ir::Mesh* to = host_->FindMesh(op.MeshOf("to")->name);
    const std::string_view type = TypeOf(code, op);
    const bool spreads = code == fusion::FusionOp::kBroadcastTo || code == fusion::FusionOp::kScatterTo;
    const bool collects = code == fusion::FusionOp::kGatherTo || code == fusion::FusionOp::kReduceTo;
    const std::string_view reduce = code == fusion::FusionOp::kReduceTo ? op.Name("reduce") : std::string_view("none");
    if (!spreads && !collects) {
      AddCommunication(type, reduce, from, "none", to, source, destination);
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

  static bool HoldRoots(const std::vector<std::vector<int64_t>>& rows, const mesh::DeviceMesh& roots) {
    for (size_t k = 0; k < rows.size(); ++k) {
      if (std::find(rows[k].begin(), rows[k].end(), roots.devices()[k]) == rows[k].end()) return false;
    }
    return true;
  }

  // Opens a group: the ops that follow are in it.
  void Grouped(bool wanted) {
    if (!wanted) return;
    ir::Builder builder(*host_);
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
      chunked = AddOp("view_select", {whole},
                      {{"axis", int64_t{0}}, {"index", host_->exprs().Const(static_cast<int64_t>(j))}},
                      ChunkType(*whole->type), Cat(whole->name, ".chunk"));
      AddCommunication("send_recv", "none", spreads ? &roots : others, "none", spreads ? others : &roots, source,
                       destination);
      chunked = whole;
    }
  }

  const Type* ChunkType(const Type& type) { return host_->Tensor(type.dtype, type.axes.subspan(1)); }

  void LowerLibrary(const Op& op) {
    std::vector<Value*> operands;
    for (const Value* operand : op.operands) operands.push_back(buffer_.at(operand));
    operands.push_back(Allocate(op.results[0]));
    Guard(*op.results[0]);
    AddOp("library", operands,
          {{"op", op.info->name},
           {"inputs", static_cast<int64_t>(op.operands.size())},
           {"epilogue", host_->Copy(op.Name("epilogue"))},
           {"precision", host_->Copy(op.Name("precision"))},
           {"stream", stream_}});
    lowered_.segments.push_back({SegmentKind::kLibrary, std::string(op.info->name), DescribeCall(op), 1});
  }

  Status LowerKernel(const Group& group) {
    const std::string name = Cat("k", lowered_.kernels.size());
    HIR_ASSIGN(codegen::KernelPlan plan, codegen::Plan(group.View(local_), name, target_, sizes_));
    for (const Value* output : group.outputs) Allocate(output);
    std::vector<Value*> workspaces;
    for (const codegen::Workspace& workspace : plan.workspaces) {
      const ir::Axis axis{ir::AxisKind::kIteration, LargestOnAnyRank(*host_, workspace.bytes)};
      workspaces.push_back(AddOp("alloc", {}, {{"space", host_->Copy("pool")}}, host_->Tensor(DType::kBool, {&axis, 1}),
                                 Cat(name, ".workspace")));
    }
    Guard(*group.outputs[0]);
    for (size_t i = 0; i < plan.workspaces.size(); ++i) {
      if (plan.workspaces[i].zeroed) AddOp("fill", {workspaces[i]}, {{"value", 0.0}, {"stream", stream_}});
    }
    for (const codegen::Launch& launch : plan.launches) AddLaunch(launch, workspaces);
    for (const ir::Guard& guard : plan.guards) HIR_TRY(local_.AddGuard(guard));
    lowered_.segments.push_back({SegmentKind::kKernel, name, plan.schedule, static_cast<int>(plan.launches.size())});
    lowered_.kernels.push_back(std::move(plan));
    return {};
  }

  void AddLaunch(const codegen::Launch& launch, const std::vector<Value*>& workspaces) {
    std::vector<Value*> operands;
    for (const Value* input : launch.inputs) operands.push_back(buffer_.at(input));
    for (const Value* output : launch.outputs) operands.push_back(buffer_.at(output));
    for (int workspace : launch.workspaces) operands.push_back(workspaces[static_cast<size_t>(workspace)]);
    for (const Value* scalar : launch.scalars) operands.push_back(buffer_.at(scalar));
    std::vector<const ir::Expr*> extents;
    for (const ir::Expr* extent : launch.extents) extents.push_back(host_->exprs().Import(extent));
    AddOp("launch", operands,
          {{"kernel", host_->Copy(launch.kernel)},
           {"inputs", static_cast<int64_t>(launch.inputs.size())},
           {"outputs", static_cast<int64_t>(launch.outputs.size())},
           {"workspaces", static_cast<int64_t>(launch.workspaces.size())},
           {"extents", std::span<const ir::Expr* const>(host_->Copy(extents))},
           {"grid", host_->exprs().Import(launch.grid)},
           {"stream", stream_}});
  }

  ir::Graph& local_;
  const std::span<const Group> groups_;
  const codegen::Target& target_;
  const codegen::Sizes& sizes_;
  std::unique_ptr<ir::Graph> host_;
  const ir::Expr* stream_;
  ir::Block* block_ = nullptr;  // Of the `if` around the current group, or null.
  std::vector<SegmentKind> kinds_;
  std::unordered_map<const Value*, Value*> buffer_;            // Local value to host buffer.
  std::unordered_map<const Value*, const Value*> storage_of_;  // Value to the output whose memory it is.
  int64_t next_seq_ = 0;
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
  }
  return {};
}

Result<Lowered> Lower(ir::Graph& local, std::span<const segment::Group> groups, const codegen::Target& target,
                      const codegen::Sizes& sizes) {
  return Lowering(local, groups, target, sizes).Run();
}

}  // namespace hir::host
