#include "multidevice/plan/emit_steps.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::plan {
namespace {

using base::Cat;
using Extents = std::vector<const ir::Expr*>;

Extents ExtentsOf(const ir::Value& value) {
  Extents extents;
  for (const ir::Axis& axis : ir::ValueAxes(*value.type)) extents.push_back(axis.extent);
  return extents;
}

// "y" of "y.sum.partial": the name before passes added to it.
std::string_view UserName(std::string_view name) {
  for (const std::string_view suffix : {".partial", ".local", ".sum", ".reduced", ".copy"}) {
    name = name.substr(0, name.find(suffix));
  }
  return name;
}

std::string Describe(const mesh::Sharding& sharding, bool with_mesh) {
  return with_mesh ? Cat(sharding.ToString(), " on ", sharding.mesh.ToString())
                   : sharding.ToString();
}

// "@m.x"
std::string CoordinateOf(const ir::Mesh& mesh, mesh::ParallelType type) {
  const std::string_view name = mesh::ParallelTypeName(type);  // "mesh_x"
  return Cat("@", mesh.name, ".", name.substr(name.size() - 1));
}

}  // namespace

void StepEmitter::Place(ir::Value& value, const ir::Mesh* mesh) {
  const std::vector<mesh::ParallelType> serial(value.type->axes.size(),
                                               mesh::ParallelType::kSerial);
  value.layout = graph_.New(ir::Layout{.mesh = mesh, .parallel = graph_.Copy(serial)});
}

Result<ir::Value*> StepEmitter::Emit(std::string_view name, ir::Value* operand,
                                     std::initializer_list<ir::Attr> attrs) {
  ir::Builder builder(graph_);
  const std::string_view location = request_ == nullptr ? std::string_view() : request_->location;
  const std::string_view result_name = request_ == nullptr ? operand->name : request_->global->name;
  HIR_ASSIGN(ir::Op* const op, builder.Add({.name = name,
                                            .operands = {&operand, 1},
                                            .attrs = {attrs.begin(), attrs.size()},
                                            .result_names = {&result_name, 1},
                                            .location = location}));
  Place(*op->results[0], mesh_);
  return op->results[0];
}

Result<ir::Value*> StepEmitter::StoreLike(ir::Value* value, const ir::Type& type) {
  const std::vector<ir::Axis> wanted = ir::ValueAxes(type);
  request_ = nullptr;
  mesh_ = value->layout->mesh;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ir::Axis axis = ir::ValueAxes(*value->type)[i];
    if (wanted[i].kind != ir::AxisKind::kIteration || axis.kind != ir::AxisKind::kBroadcast ||
        axis.extent->IsConst(1))
      continue;
    ir::Value* const before = value;
    HIR_ASSIGN(value, Emit("cat", before,
                           {{"axis", static_cast<int64_t>(i)}}));  // Of one piece: writes it out.
    graph_.TakeName(*value, *before);
  }
  return value;
}

Result<ir::Value*> StepEmitter::Reshard(const Request& request) {
  std::vector<bool> stored_once;
  for (const ir::Axis& axis : ir::ValueAxes(*request.global->type)) {
    stored_once.push_back(axis.kind == ir::AxisKind::kBroadcast);
  }
  request_ = &request;
  at_ = request.from;
  const size_t num_values = graph_.values().size();
  ir::Value* value = request.value;
  for (const Step& step : PlanResharding(request.from, request.to, stored_once)) {
    const Key key = {value->id,    step.kind,
                     step.type,    step.axis,
                     step.to_axis, Cat(step.after.mesh.ToString(), step.after.ToString())};
    mesh_ = graph_.AddMesh(step.after.mesh);
    ir::Value*& result = taken_[key];
    if (result == nullptr) {
      HIR_ASSIGN(result, Take(step, value));
    }
    value = result;
    at_ = step.after;
  }
  if (value ==
      request.value) {  // Only mesh dimensions of one device, or types that differ in nothing.
    mesh_ = graph_.AddMesh(request.to.mesh);
    HIR_ASSIGN(value, Emit("set", value, {}));
  }
  request_ = nullptr;
  // The first of the new values has the name, the last one should.
  if (static_cast<size_t>(value->id) > num_values) {
    graph_.TakeName(*value, *graph_.values()[num_values]);
    graph_.Rename(*graph_.values()[num_values], value->name);
  }
  return value;
}

Result<ir::Value*> StepEmitter::Take(const Step& step, ir::Value* value) {
  switch (step.kind) {
    case StepKind::kSlice: return Slice(step, value);
    case StepKind::kSpread: return Spread(step, value);
    case StepKind::kRelabel: return Emit("set", value, {});
    case StepKind::kAllreduce:
    case StepKind::kReduceScatter:
    case StepKind::kAllgather:
    case StepKind::kAllToAll:
    case StepKind::kBroadcast:
    case StepKind::kSendRecv: break;
  }
  const Extents shape = ShareOf(step.after);
  if (LosesStoredOnce(step)) {
    HIR_ASSIGN(value, Compact(value));
  }
  HIR_ASSIGN(value, Communicate(step, value));
  return ExpandTo(value, shape);  // On the new mesh.
}

// A reshape that splits or merges an axis of symbolic extent cannot be matched axis by axis, so axes that are stored
// once would come out written out. As axes of one element they do not.
bool StepEmitter::LosesStoredOnce(const Step& step) const {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*request_->global->type);
  const bool merges = step.kind == StepKind::kAllgather || step.kind == StepKind::kAllToAll;
  const bool splits = step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllToAll;
  const size_t split = step.kind == StepKind::kAllToAll ? step.to_axis : step.axis;
  return (merges && !axes[step.axis].extent->IsConst()) ||
         (splits && !axes[split].extent->IsConst());
}

Result<ir::Value*> StepEmitter::Communicate(const Step& step, ir::Value* value) {
  const ir::Attr mesh = {"mesh", mesh_};
  const ir::Attr dim = {"dim", mesh::ParallelTypeName(step.type)};
  const ir::Attr reduce = {"reduce", request_->reduce};
  ir::Value* sent = value;
  ir::Value* got = nullptr;
  if (step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllToAll) {
    const size_t axis = step.kind == StepKind::kAllToAll ? step.to_axis : step.axis;
    HIR_ASSIGN(sent, SplitToFront(value, axis, at_.mesh.Size(step.type)));
  }
  if (step.kind == StepKind::kAllreduce) {
    HIR_ASSIGN(got, Emit("allreduce", sent, {mesh, dim, reduce}));
  } else if (step.kind == StepKind::kReduceScatter) {
    HIR_ASSIGN(got, Emit("reduce_scatter", sent, {mesh, dim, reduce}));
  } else if (step.kind == StepKind::kAllgather) {
    HIR_ASSIGN(got, Emit("allgather", sent, {mesh, dim}));
  } else if (step.kind == StepKind::kAllToAll) {
    HIR_ASSIGN(got, Emit("all_to_all", sent, {mesh, dim}));
  } else {
    const std::string_view name = step.kind == StepKind::kBroadcast ? "broadcast_to" : "send_recv";
    HIR_ASSIGN(got, Emit(name, sent, {{"from", graph_.AddMesh(at_.mesh)}, {"to", mesh_}}));
  }
  Record(step, *sent, *got);
  if (step.kind != StepKind::kAllgather && step.kind != StepKind::kAllToAll) return got;
  return MergeFromFront(got, step.axis, ShareOf(step.after)[step.axis]);
}

// [a, b] -> [ways, a, b / ways] for axis 1.
Result<ir::Value*> StepEmitter::SplitToFront(ir::Value* value, size_t axis, int64_t ways) {
  Extents shape = ExtentsOf(*value);
  const ir::Axis whole = ir::ValueAxes(*request_->global->type)[axis];
  shape[axis] = extents_.Share(whole.extent, at_.Ways(axis) * ways);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), graph_.exprs().Const(ways));
  HIR_ASSIGN(value, Reshape(value, shape));
  return MoveAxis(value, axis, 0);
}

// [d, a, b] -> [a, merged] for axis 1.
Result<ir::Value*> StepEmitter::MergeFromFront(ir::Value* value, size_t axis,
                                               const ir::Expr* merged) {
  HIR_ASSIGN(value, MoveAxis(value, 0, axis));
  Extents shape = ExtentsOf(*value);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape[axis] = merged;
  return Reshape(value, shape);
}

Result<ir::Value*> StepEmitter::Reshape(ir::Value* value, const Extents& shape) {
  return Emit("reshape", value, {{"shape", std::span<const ir::Expr* const>(shape)}});
}

// Nothing is moved past axes of one element: the order of the elements stays.
Result<ir::Value*> StepEmitter::MoveAxis(ir::Value* value, size_t from, size_t to) {
  Extents extents = ExtentsOf(*value);
  std::vector<int64_t> dims;
  for (size_t i = 0; i < extents.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  const auto at = [&](size_t i) { return dims.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto [low, high] = std::minmax(from, to);
  bool moves = false;
  for (size_t i = low; i <= high; ++i) moves |= i != from && !extents[i]->IsConst(1);
  if (from < to) {
    std::rotate(at(from), at(from) + 1, at(to) + 1);
  } else {
    std::rotate(at(to), at(from), at(from) + 1);
  }
  if (moves) return Emit("permute", value, {{"dims", std::span<const int64_t>(dims)}});
  if (from == to) return value;
  Extents shape;
  for (const int64_t dim : dims) shape.push_back(extents[static_cast<size_t>(dim)]);
  return Reshape(value, shape);
}

Result<ir::Value*> StepEmitter::Slice(const Step& step, ir::Value* value) {
  ir::ExprPool& pool = graph_.exprs();
  Extents starts, ends;
  for (const ir::Expr* extent : ExtentsOf(*value)) {
    starts.push_back(pool.Const(0));
    ends.push_back(extent);
  }
  const ir::Expr* block = ShareOf(step.after)[step.axis];
  // All blocks of an axis that is stored once are alike: no need for the rank's own.
  const bool stored_once =
      ir::ValueAxes(*request_->global->type)[step.axis].kind == ir::AxisKind::kBroadcast;
  const ir::Expr* number =
      stored_once ? pool.Const(0) : pool.Symbol(CoordinateOf(*mesh_, step.type));
  starts[step.axis] = pool.Mul(number, block);
  ends[step.axis] = pool.Add(starts[step.axis], block);
  const std::vector<int64_t> strides(starts.size(), 1);
  return Emit("slice", value,
              {{"start", std::span<const ir::Expr* const>(starts)},
               {"end", std::span<const ir::Expr* const>(ends)},
               {"strides", std::span<const int64_t>(strides)}});
}

// A broadcast axis made as long as it is after `step`: its one element serves.
Result<ir::Value*> StepEmitter::Spread(const Step& step, ir::Value* value) {
  const Extents shape = ShareOf(step.after);
  HIR_ASSIGN(value, Compact(value));
  return ExpandTo(value, shape);
}

// Broadcast axes cut to one element.
Result<ir::Value*> StepEmitter::Compact(ir::Value* value) {
  ir::ExprPool& pool = graph_.exprs();
  const std::vector<ir::Axis> global = ir::ValueAxes(*request_->global->type);
  Extents starts, ends;
  bool shrinks = false;
  for (const ir::Expr* extent : ExtentsOf(*value)) {
    const bool one = global[starts.size()].kind == ir::AxisKind::kBroadcast && !extent->IsConst(1);
    if (one && !extent->IsConst()) {
      guards_.push_back(
          {ir::Guard::Kind::kAtMost, pool.Const(1), pool.Import(global[starts.size()].extent),
           Cat(UserName(request_->source), ": axis ", starts.size(), " is stored once")});
    }
    starts.push_back(pool.Const(0));
    ends.push_back(one ? pool.Const(1) : extent);
    shrinks |= one;
  }
  if (!shrinks) return value;
  const std::vector<int64_t> strides(starts.size(), 1);
  return Emit("slice", value,
              {{"start", std::span<const ir::Expr* const>(starts)},
               {"end", std::span<const ir::Expr* const>(ends)},
               {"strides", std::span<const int64_t>(strides)}});
}

Result<ir::Value*> StepEmitter::ExpandTo(ir::Value* value, const Extents& shape) {
  if (ExtentsOf(*value) == shape) return value;
  return Emit("expand", value, {{"shape", std::span<const ir::Expr* const>(shape)}});
}

Extents StepEmitter::ShareOf(const mesh::Sharding& sharding) {
  Extents shape;
  for (const ir::Axis& axis : ir::ValueAxes(*request_->global->type)) {
    shape.push_back(extents_.Share(axis.extent, sharding.Ways(shape.size())));
  }
  return shape;
}

const ir::Expr* StepEmitter::BytesOf(const ir::Value& value) {
  ir::ExprPool& pool = graph_.exprs();
  const ir::Expr* bytes = pool.Const(DTypeBytes(value.type->dtype));
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) bytes = pool.Mul(bytes, axis.extent);
  }
  return bytes;
}

void StepEmitter::Record(const Step& step, const ir::Value& operand, const ir::Value& result) {
  const bool meshes = !(request_->from.mesh == request_->to.mesh);
  communications_.push_back(
      {.type = StepName(step.kind),
       .teams = TeamsOf(step, at_),
       .bytes = BytesOf(step.kind == StepKind::kAllgather ? result : operand),
       .tensor = std::string(UserName(request_->source)),
       .reason = Cat(Describe(request_->from, meshes), " -> ", Describe(request_->to, meshes)),
       .op = result.def});
}

}  // namespace hir::plan
