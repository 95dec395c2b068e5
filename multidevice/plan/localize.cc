// Before: fusion @f(%x: f32[i0, 8] {mesh=@m, outer_split(1, 2), parallelize(1, mesh_x)}) {
//           %y.partial: f32[i0, r:8] {mesh=@m, outer_split(1, 2), parallelize(1, mesh_x)} = sum(%x) {axes=[1], ...}
//           %y: f32[i0] {mesh=@m} = set(%y.partial)
// After:  fusion @f(%x: f32[i0, 4] {mesh=@m}) {
//           %y.partial: f32[i0, r:4] {mesh=@m} = sum(%x) {axes=[1], ...}
//           %y: f32[i0] {mesh=@m} = allreduce(%y.partial) {mesh=@m, dim=mesh_x, reduce=sum}
//
// Why it is right: an op that does not reshard gets on each rank exactly the blocks of its operands that its own block
// of the result is made of (AxisMap), so it is the same op on smaller tensors; the sets are what emit_steps.h says.
#include "multidevice/plan/localize.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/fusion/axes.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/decompose_reshardings.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/fusion/passes/ready.h"
#include "csrc/ir/builder.h"
#include "multidevice/plan/add_parts_first.h"
#include "multidevice/plan/emit_steps.h"
#include "multidevice/plan/local_extents.h"
#include "multidevice/plan/ring_attention.h"

namespace hir::plan {
namespace {

using base::Cat;
using fusion::FusionOp;
using fusion::Placement;

class Localizer {
 public:
  Localizer(const ir::Graph& global, const LocalizeOptions& options)
      : global_(global),
        graph_(new ir::Graph(global.ops(), global.name())),
        extents_(graph_->exprs(), options.sizes),
        emitter_(*graph_, extents_, options) {}

  Result<LocalProgram> Run() {
    for (const ir::Expr* symbol : global_.exprs().symbols()) graph_->exprs().Symbol(symbol->symbol);
    for (const ir::Mesh& mesh : global_.meshes()) graph_->AddMesh(mesh.mesh, mesh.name);
    HIR_TRY(fusion::CheckHasLayouts(global_));
    HIR_TRY(ReadPlacements());
    HIR_TRY(CheckDealt());
    FindUneven();
    HIR_TRY(CollectGuards());
    GuardInnerExtents();
    LocalProgram program;
    for (const ir::Value* param : global_.params) program.inputs.push_back(AddParam(*param));
    for (const ir::Op* op = global_.body.first; op != nullptr; op = op->next) {
      HIR_TRY(ir::WithLocation(Add(*op), op->location));
      // What inference found is true of the parts because the program's guards make it true of the wholes.
      graph_->guards.clear();
    }
    HIR_TRY(AddOutputs(program));
    for (ir::Guard& guard : guards_) HIR_TRY(graph_->AddGuard(std::move(guard)));
    for (const ir::Guard& guard : emitter_.bounds()) {
      HIR_TRY(graph_->AddGuard(guard));
      evenness_.push_back(guard);
    }
    for (ir::Guard& guard : emitter_.guards()) HIR_TRY(graph_->AddGuard(std::move(guard)));
    HIR_TRY(graph_->exprs().status());
    program.graph = std::move(graph_);
    program.communications = std::move(emitter_.communications());
    program.evenness = std::move(evenness_);
    return program;
  }

 private:
  const Placement& Of(const ir::Value& value) const { return placements_.at(&value); }

  Status Read(const ir::Value& value) {
    if (!IsTensor(value)) return {};
    HIR_CHECK(value.layout != nullptr);
    HIR_ASSIGN(Placement placement, fusion::PlacementOf(value));
    placement.mesh = graph_->AddMesh(placement.mesh->mesh);
    placements_.emplace(&value, std::move(placement));
    order_.push_back(&value);
    return {};
  }

  Status ReadPlacements() {
    for (const ir::Value* param : global_.params) HIR_TRY(Read(*param));
    for (const ir::Op* op = global_.body.first; op != nullptr; op = op->next) {
      HIR_TRY(ir::WithLocation(Read(*op->results[0]), op->location));
    }
    // What is found of several is said of the first: of one that the user named, where it can be.
    std::stable_partition(order_.begin(), order_.end(),
                          [](const ir::Value* v) { return UserName(v->name) == v->name; });
    return {};
  }

  // Elements are dealt in whole turns, or not at all.
  Status CheckDealt() const {
    for (const ir::Value* value : order_) {
      const Placement& placement = Of(*value);
      mesh::Sharding sharding = {placement.mesh->mesh, placement.axes};
      std::vector<int64_t> extents;
      for (size_t i = 0; i < placement.axes.size(); ++i) {
        const ir::Expr* const extent = value->type->axes[i].extent;
        if (!extents_.IsAtHand(extent)) sharding.axes[i].dealt = 1;
        extents.push_back(extents_.Estimate(extent));
      }
      if (Status s = mesh::CheckDealt(sharding, extents); !s.ok()) return s.WithContext(UserName(value->name));
    }
    return {};
  }

  // Before extents are divided: one extent is even everywhere, or nowhere.
  void FindUneven() {
    ir::ExprPool& pool = graph_->exprs();
    struct Uneven {
      const ir::Expr* extent;
      const ir::Expr* rests;  // Over all ways that it is split in: 0 where all are even.
      std::string reason;
    };
    std::vector<Uneven> found;
    for (const ir::Value* value : order_) {
      const Placement& placement = Of(*value);
      for (size_t i = 0; i < placement.axes.size(); ++i) {
        const ir::Expr* const extent = value->type->axes[i].extent;
        const int64_t ways = fusion::Ways(*placement.mesh, placement.axes[i]);
        if (extents_.LooksEven(extent, ways)) continue;
        extents_.AllowUneven(extent);
        if (extent->IsConst()) continue;
        const ir::Expr* const own = pool.Import(extent);
        const ir::Expr* const rest = pool.Mod(own, pool.Const(ways));
        const auto known = std::ranges::find_if(found, [&](const Uneven& u) { return u.extent == own; });
        if (known != found.end()) {
          known->rests = pool.Max(known->rests, rest);
        } else {
          found.push_back({own, rest,
                           Cat(UserName(value->name), ": ",
                               mesh::DescribeSplit(placement.mesh->mesh, i, placement.axes[i]), ", unevenly")});
        }
      }
    }
    for (const Uneven& u : found) AddEvenness({ir::Guard::Kind::kAtMost, pool.Const(1), u.rests, u.reason});
  }

  void AddEvenness(ir::Guard guard) {
    guards_.push_back(guard);
    evenness_.push_back(std::move(guard));
  }

  // That `extent` is a multiple of `ways`.
  void GuardEven(const ir::Expr* extent, int64_t ways, std::string reason) {
    ir::ExprPool& pool = graph_->exprs();
    const ir::Expr* const rest = pool.Mod(pool.Import(extent), pool.Const(ways));
    if (known_even_.insert(rest).second) AddEvenness({ir::Guard::Kind::kEqual, rest, pool.Const(0), std::move(reason)});
  }

  Status CollectGuards() {
    ir::ExprPool& pool = graph_->exprs();
    for (const ir::Guard& guard : global_.guards) {
      guards_.push_back({guard.kind, pool.Import(guard.left), pool.Import(guard.right), guard.reason});
      if (guard.kind == ir::Guard::Kind::kEqual && guard.right->IsConst(0)) known_even_.insert(pool.Import(guard.left));
    }
    for (const bool symbols : {true, false}) {  // Lone symbols first: they decide about expressions of them.
      for (const ir::Value* value : order_) {
        const Placement& placement = Of(*value);
        for (size_t i = 0; i < placement.axes.size(); ++i) {
          const ir::Expr* extent = value->type->axes[i].extent;
          const int64_t ways = fusion::Ways(*placement.mesh, placement.axes[i]);
          if ((extent->kind == ir::ExprKind::kSymbol) != symbols) continue;
          const bool uneven = extents_.IsUneven(extent);
          if (uneven ? !placement.axes[i].is_dealt() || extent->IsConst() : !extents_.Require(extent, ways)) continue;
          GuardEven(extent, ways,
                    Cat(UserName(value->name), ": ", mesh::DescribeSplit(placement.mesh->mesh, i, placement.axes[i])));
        }
      }
    }
    return pool.status();
  }

  // Whoever binds sizes computes the extents of inputs and outputs, and sees them overflow. Those of other
  // values are computed by kernels, unchecked: a guard makes the binding see them, too.
  void GuardInnerExtents() {
    std::set<const ir::Expr*> seen;
    const auto see = [&](const ir::Value* value) {
      if (!IsTensor(*value)) return;
      for (const ir::Axis& axis : value->type->axes) seen.insert(axis.extent);
    };
    for (const ir::Value* param : global_.params) see(param);
    for (const ir::Output& output : global_.outputs) see(output.value);
    ir::ExprPool& pool = graph_->exprs();
    for (const ir::Value* value : order_) {
      const std::span<const ir::Axis> axes = value->type->axes;
      for (size_t i = 0; i < axes.size(); ++i) {
        const ir::Expr* extent = axes[i].extent;
        const bool is_leaf = extent->kind == ir::ExprKind::kConst || extent->kind == ir::ExprKind::kSymbol;
        if (is_leaf || !seen.insert(extent).second) continue;
        guards_.push_back({ir::Guard::Kind::kAtMost, pool.Import(extent), pool.Const(INT64_MAX),
                           Cat(UserName(value->name), ": the extent of axis ", i, " must fit 64 bits")});
      }
    }
  }

  Boundary BoundaryOf(const ir::Value& value, ir::Value* local) {
    Boundary boundary = {.name = std::string(value.name), .local = local};
    if (!IsTensor(value)) {
      boundary.global = graph_->Scalar(value.type->dtype);
      return boundary;
    }
    const ir::Type& type = *value.type;
    std::vector<ir::Axis> axes = ir::ValueAxes(type);
    for (ir::Axis& axis : axes) axis.extent = graph_->exprs().Import(axis.extent);
    boundary.global = graph_->Tensor(type.dtype, axes);
    boundary.sharding = fusion::ToSharding(type, Of(value));
    return boundary;
  }

  Boundary AddParam(const ir::Value& param) {
    const bool tensor = IsTensor(param);
    const ir::Type* type =
        tensor ? ShareType(*graph_, extents_, *param.type, Of(param)) : graph_->Scalar(param.type->dtype);
    ir::Value* local = graph_->AddParam(param.name, type);
    if (tensor) PlaceOn(*graph_, *local, Of(param).mesh);
    locals_.emplace(&param, local);
    return BoundaryOf(param, local);
  }

  Status AddOutputs(LocalProgram& program) {
    for (const ir::Output& output : global_.outputs) {
      ir::Value* alias = nullptr;
      if (output.alias != nullptr) {
        // As everyone sees them: the axes that the op which made the output reduced are not in memory.
        const auto lies = [&](const ir::Value& value) { return fusion::ToSharding(*value.type, Of(value)); };
        if (lies(*output.value) != lies(*output.alias)) {
          return InvalidArgument(Cat("output %", output.value->name, " (", lies(*output.value).ToString(),
                                     ") takes over the memory of input %", output.alias->name, " (",
                                     lies(*output.alias).ToString(), "); they must lie alike"));
        }
        alias = locals_.at(output.alias);
      }
      ir::Value* local = locals_.at(output.value);
      graph_->outputs.push_back({local, alias});
      program.outputs.push_back(BoundaryOf(*output.value, local));
    }
    return {};
  }

  Status Add(const ir::Op& op) {
    const ir::Value& result = *op.results[0];
    if (IsTensor(result) && fusion::IsResharding(op)) {
      if (fusion::CodeOf(op) == FusionOp::kSet) return AddResharding(op);
      return Status(Code::kFailedPrecondition, Cat("%", result.name,
                                                   " needs other ranks, and only a set may; "
                                                   "decompose_reshardings must come before"));
    }
    std::vector<ir::Value*> operands;
    for (const ir::Value* operand : op.operands) operands.push_back(locals_.at(operand));
    if (IsTensor(result)) HIR_TRY(MaskPadding(op, operands));
    const std::vector<ir::Attr> attrs = LocalAttrs(op);
    ir::Builder builder(*graph_);
    HIR_ASSIGN(ir::Op* const made, builder.Add({.info = op.info,
                                                .operands = operands,
                                                .attrs = attrs,
                                                .result_names = {&result.name, 1},
                                                .location = op.location,
                                                .line = op.line}));
    ir::Value* local = made->results[0];
    if (IsTensor(result)) {
      PlaceOn(*graph_, *local, Of(result).mesh);
      SetStreams(result, *local);
      HIR_ASSIGN(local, emitter_.StoreLike(local, *ShareType(*graph_, extents_, *result.type, Of(result))));
    }
    locals_.emplace(&result, local);
    return {};
  }

  Status AddResharding(const ir::Op& op) {
    const ir::Value& from = *op.operands[0];
    const ir::Value& to = *op.results[0];
    const bool partial = fusion::HasPartial(*from.type, Of(from));
    const size_t num_values = graph_->values().size();
    HIR_ASSIGN(ir::Value * local,
               emitter_.Reshard({.value = locals_.at(&from),
                                 .global = &to,
                                 .from = fusion::ToSharding(*from.type, Of(from)),
                                 .to = fusion::ToSharding(*to.type, Of(to)),
                                 .reduce = partial ? fusion::ReduceName(*from.def) : std::string_view(),
                                 .source = from.name,
                                 .location = op.location}));
    const auto is_new = [&](const ir::Value& value) { return static_cast<size_t>(value.id) >= num_values; };
    if (const std::vector<fusion::StreamAxis> streams = *fusion::StreamAxesOf(to); !streams.empty()) {
      // What was there before has its own stream axes, or none; the last op of the steps may be none for a loop.
      const fusion::StreamMap map(*local->def);
      const auto fits = [&](const fusion::StreamAxis& stream) { return map.CanCompute(stream); };
      if (!is_new(*local) || !std::ranges::all_of(streams, fits)) {
        ir::Builder builder(*graph_);
        ir::Value* const copy = builder.Make("set", {local}, {}, local->name);
        copy->def->location = op.location;
        PlaceOn(*graph_, *copy, local->layout->mesh);
        graph_->TakeName(*copy, *local);
        local = copy;
      }
      SetStreams(to, *local);
      fusion::CarryStreamsBack(*graph_, *local, is_new);
    }
    locals_.emplace(&to, local);
    return {};
  }

  // Stream axes cut what a rank holds.
  void SetStreams(const ir::Value& global, ir::Value& local) {
    const std::vector<fusion::StreamAxis> streams = *fusion::StreamAxesOf(global);
    if (streams.empty()) return;
    local.layout = fusion::LayoutFor(
        *graph_, *local.type, {local.layout->mesh, std::vector<fusion::Types>(local.type->axes.size())}, streams);
  }

  Status Uneven(const ir::Op& op, std::string_view value, std::string_view split, const ir::Expr* extent,
                int64_t ways) const {
    const int64_t size = extents_.Estimate(extent);
    return Unimplemented(Cat(op.info->name, ": ", split, " of %", UserName(value), " has ",
                             extent->IsConst() ? "" : Cat(ir::ToString(extent), " = "), size,
                             size == 1 ? " element" : " elements",
                             ", so uneven blocks; only pointwise ops, reductions and reshardings take those: "
                             "make its extent a multiple of ",
                             ways, ", or replicate it"));
  }

  // The outer part of an axis that is split in even blocks may be split in uneven ones: not the same elements.
  Status CheckSplit(const ir::Op& op, const fusion::AxisLink& link) {
    const ir::Value& result = *op.results[0];
    const Placement& placement = Of(result);
    const auto axis = static_cast<size_t>(link.result_axis);
    const ir::Expr* const extent = result.type->axes[axis].extent;
    const int64_t ways = fusion::Ways(*placement.mesh, placement.axes[axis]);
    if (ways == 1 || !extents_.IsUneven(extent)) return {};
    const std::string split = mesh::DescribeSplit(placement.mesh->mesh, axis, placement.axes[axis]);
    if (!extents_.LooksEven(extent, ways))
      return Uneven(op, result.name, Cat(split, " of ", placement.mesh->mesh.ToString()), extent, ways);
    if (!extent->IsConst()) GuardEven(extent, ways, Cat(UserName(result.name), ": ", split));
    return {};
  }

  // A reduction must not see the padding of uneven blocks; ops that would mix it with elements are refused.
  Status MaskPadding(const ir::Op& op, std::vector<ir::Value*>& operands) {
    for (const fusion::AxisLink& link : fusion::AxesOf(op)) {
      if (link.relation == fusion::AxisRelation::kSplitOuter) HIR_TRY(CheckSplit(op, link));
      const auto number = static_cast<size_t>(link.operand);
      const ir::Value& operand = *op.operands[number];
      const auto axis = static_cast<size_t>(link.operand_axis);
      const mesh::Sharding sharding = fusion::ToSharding(*operand.type, Of(operand));
      const ir::Expr* extent = ir::ValueAxes(*operand.type)[axis].extent;
      const int64_t ways = sharding.Ways(axis);
      if (ways == 1 || !extents_.IsUneven(extent)) continue;
      const bool looks_even = extents_.LooksEven(extent, ways);
      if (looks_even && extent->IsConst()) continue;  // Others of this extent are not.
      switch (link.relation) {
        case fusion::AxisRelation::kSame:
        case fusion::AxisRelation::kBroadcast: break;
        case fusion::AxisRelation::kReduced: {
          HIR_ASSIGN(operands[number], emitter_.Valid(operands[number], axis, extent, sharding, op.location));
          break;
        }
        case fusion::AxisRelation::kContracted:
        case fusion::AxisRelation::kSplitOuter:
        case fusion::AxisRelation::kMergedOuter:
        case fusion::AxisRelation::kMergedInner:
        case fusion::AxisRelation::kGathered:
        case fusion::AxisRelation::kSliced:
        case fusion::AxisRelation::kPadded:
        case fusion::AxisRelation::kConcatenated:
        case fusion::AxisRelation::kSplitInner:
        case fusion::AxisRelation::kOpaque: {
          const std::string split = mesh::DescribeSplit(sharding.mesh, axis, sharding.axes[axis]);
          if (looks_even) {
            GuardEven(extent, ways, Cat(UserName(operand.name), ": ", split));
            break;
          }
          return Uneven(op, operand.name, Cat(split, " of ", sharding.mesh.ToString()), extent, ways);
        }
      }
    }
    return {};
  }

  // Where a rank's part of `axis` begins: each mesh dimension cuts the blocks of the one before it.
  const ir::Expr* OffsetOf(const Placement& placement, size_t axis, const ir::Expr* extent) {
    ir::ExprPool& pool = graph_->exprs();
    const ir::Expr* begin = pool.Const(0);
    int64_t ways = 1;
    for (const mesh::ParallelType type : placement.axes[axis]) {
      ways *= placement.mesh->mesh.Size(type);
      begin = pool.Add(begin, pool.Mul(pool.Symbol(CoordinateOf(*placement.mesh, type)), extents_.Share(extent, ways)));
    }
    return begin;
  }

  // Attributes that name extents name those of the part.
  std::vector<ir::Attr> LocalAttrs(const ir::Op& op) {
    std::vector<ir::Attr> attrs(op.attrs.begin(), op.attrs.end());
    for (ir::Attr& attr : attrs) {
      HIR_CHECK(!std::holds_alternative<const ir::Mesh*>(attr.value));
      // A lone extent is a size of the whole program.
      if (std::holds_alternative<const ir::Expr*>(attr.value))
        attr.value = graph_->exprs().Import(std::get<const ir::Expr*>(attr.value));
      if (!std::holds_alternative<std::span<const ir::Expr* const>>(attr.value)) continue;
      const auto given = std::get<std::span<const ir::Expr* const>>(attr.value);
      const Placement& placement = Of(*op.results[0]);
      const ir::Type& type = *op.results[0]->type;  // All such attributes have one entry an axis of the result,
      HIR_CHECK(type.axes.size() == given.size());  // and such results have no reduced axes.
      std::vector<const ir::Expr*> exprs;
      for (size_t i = 0; i < given.size(); ++i) {
        const int64_t ways = fusion::Ways(*placement.mesh, placement.axes[i]);
        if (attr.name == "offset") {  // Where the part begins.
          exprs.push_back(
              graph_->exprs().Add(graph_->exprs().Import(given[i]), OffsetOf(placement, i, type.axes[i].extent)));
          continue;
        }
        // A `shape` entry or the `end` of a slice of the whole axis is the extent; the `start` is 0.
        exprs.push_back(attr.name == "start" ? graph_->exprs().Import(given[i])
                                             : extents_.Share(ways == 1 ? given[i] : type.axes[i].extent, ways));
      }
      attr.value = std::span<const ir::Expr* const>(graph_->Copy(exprs));
    }
    return attrs;
  }

  const ir::Graph& global_;
  std::unique_ptr<ir::Graph> graph_;
  LocalExtents extents_;
  StepEmitter emitter_;
  std::unordered_map<const ir::Value*, Placement> placements_;  // Meshes are the local graph's.
  std::vector<const ir::Value*> order_;                         // Tensors: those of the user, the others.
  std::unordered_map<const ir::Value*, ir::Value*> locals_;
  std::vector<ir::Guard> guards_;
  std::vector<ir::Guard> evenness_;
  std::set<const ir::Expr*> known_even_;  // Remainders that some guard says are 0.
};

}  // namespace

namespace {

// How many nodes the largest team along `type` is on, and whether each of its ranks is on another.
enum class Spread { kOneNode, kEachElsewhere, kShared };
Spread SpreadOf(const Links& links, const mesh::DeviceMesh& mesh, mesh::ParallelType type) {
  Spread spread = Spread::kOneNode;
  for (const int64_t device : mesh.devices()) {
    const std::vector<int64_t> team = mesh.Team(device, type);
    const int64_t nodes = links.CountNodes(team);
    if (nodes > 1 && nodes < std::ssize(team)) return Spread::kShared;
    if (nodes > 1) spread = Spread::kEachElsewhere;
  }
  return spread;
}

}  // namespace

const OverlapLimits::Team& OverlapLimits::Of(const mesh::DeviceMesh& mesh, mesh::ParallelType type) const {
  static const Team none;
  switch (SpreadOf(links, mesh, type)) {
    case Spread::kOneNode: return within;
    case Spread::kEachElsewhere: return between;
    case Spread::kShared: break;
  }
  return none;
}

std::string_view OverlapLimits::WhyNone(const mesh::DeviceMesh& mesh, mesh::ParallelType type) const {
  switch (SpreadOf(links, mesh, type)) {
    case Spread::kOneNode: break;
    case Spread::kEachElsewhere: return "sums between nodes are made as their terms arrive";
    case Spread::kShared: return "ranks of a node share its link";
  }
  return "the cores that multiply are those that copy";
}

Result<LocalProgram> Localize(const ir::Graph& global, const LocalizeOptions& options) {
  HIR_ASSIGN(LocalProgram program, Localizer(global, options).Run());
  AddPartsFirst(program);
  PassKeysRound(program, options.overlap);
  return program;
}

}  // namespace hir::plan
