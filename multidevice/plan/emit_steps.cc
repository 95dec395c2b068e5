#include "multidevice/plan/emit_steps.h"

#include <algorithm>

#include "csrc/base/checked.h"
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

std::string Describe(const mesh::Sharding& sharding, bool with_mesh) {
  return with_mesh ? Cat(sharding.ToString(), " on ", sharding.mesh.ToString()) : sharding.ToString();
}

std::string_view OpName(StepKind kind) {
  switch (kind) {
    case StepKind::kAllreduce: return "allreduce";
    case StepKind::kReduceScatter: return "reduce_scatter";
    case StepKind::kAllgather: return "allgather";
    case StepKind::kAllToAll: return "all_to_all";
    case StepKind::kBroadcast: return "broadcast_to";
    case StepKind::kScatter: return "scatter_to";
    case StepKind::kGather: return "gather_to";
    case StepKind::kReduce: return "reduce_to";
    case StepKind::kSendRecv: return "send_recv";
    case StepKind::kCollectivePermute: return "collective_permute";
    case StepKind::kSlice:
    case StepKind::kSpread:
    case StepKind::kReorder:
    case StepKind::kRelabel: break;
  }
  HIR_CHECK(false);
  return {};
}

}  // namespace

std::string_view UserName(std::string_view name) {
  for (const std::string_view suffix : {".partial", ".local", ".sum", ".reduced", ".copy"}) {
    name = name.substr(0, name.find(suffix));
  }
  return name;
}

std::string CoordinateOf(const ir::Mesh& mesh, mesh::ParallelType type) {
  const std::string_view name = mesh::ParallelTypeName(type);  // "mesh_x"
  return Cat("@", mesh.name, ".", name.substr(name.size() - 1));
}

void PlaceOn(ir::Graph& graph, ir::Value& value, const ir::Mesh* mesh) {
  const std::vector<mesh::ParallelType> serial(value.type->axes.size(), mesh::ParallelType::kSerial);
  value.layout = graph.New(ir::Layout{.mesh = mesh, .parallel = graph.Copy(serial)});
}

const ir::Expr* StoredBytes(ir::ExprPool& pool, const ir::Value& value) {
  const ir::Expr* bytes = pool.Const(DTypeBytes(value.type->dtype));
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) bytes = pool.Mul(bytes, axis.extent);
  }
  return bytes;
}

Result<ir::Value*> StepEmitter::Emit(std::string_view name, ir::Value* operand, std::initializer_list<ir::Attr> attrs) {
  return Emit(name, {operand}, attrs);
}

Result<ir::Value*> StepEmitter::Emit(std::string_view name, std::initializer_list<ir::Value*> operands,
                                     std::initializer_list<ir::Attr> attrs) {
  ir::Builder builder(graph_);
  const std::string_view location = request_ == nullptr ? std::string_view() : request_->location;
  const std::string_view result_name = request_ == nullptr ? (*operands.begin())->name : request_->global->name;
  HIR_ASSIGN(ir::Op* const op, builder.Add({.name = name,
                                            .operands = {operands.begin(), operands.size()},
                                            .attrs = {attrs.begin(), attrs.size()},
                                            .result_names = {&result_name, 1},
                                            .location = location}));
  PlaceOn(graph_, *op->results[0], mesh_);
  return op->results[0];
}

Result<ir::Value*> StepEmitter::StoreLike(ir::Value* value, const ir::Type& type) {
  const std::vector<ir::Axis> wanted = ir::ValueAxes(type);
  request_ = nullptr;
  mesh_ = value->layout->mesh;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ir::Axis axis = ir::ValueAxes(*value->type)[i];
    if (wanted[i].kind != ir::AxisKind::kIteration || axis.kind != ir::AxisKind::kBroadcast || axis.extent->IsConst(1))
      continue;
    ir::Value* const before = value;
    HIR_ASSIGN(value, Emit("cat", before, {{"axis", static_cast<int64_t>(i)}}));  // Of one piece: writes it out.
    graph_.TakeName(*value, *before);
  }
  return StoreOnceLike(value, wanted);
}

// As a reshape of symbolic parts, which were not matched axis by axis.
Result<ir::Value*> StepEmitter::StoreOnceLike(ir::Value* value, const std::vector<ir::Axis>& wanted) {
  ir::ExprPool& pool = graph_.exprs();
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  const Extents shape = ExtentsOf(*value);
  Extents starts(axes.size(), pool.Const(0)), ends = shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool one = wanted[i].kind == ir::AxisKind::kBroadcast && axes[i].kind != ir::AxisKind::kBroadcast;
    if (!one || shape[i]->IsConst(1)) continue;
    if (!shape[i]->IsConst()) {
      guards_.push_back(
          {ir::Guard::Kind::kAtMost, pool.Const(1), shape[i], Cat(value->name, ": axis ", i, " is stored once")});
    }
    ends[i] = pool.Const(1);
  }
  if (ends == shape) return value;
  ir::Value* const before = value;
  const std::vector<int64_t> strides(axes.size(), 1);
  HIR_ASSIGN(value, Emit("slice", value,
                         {{"start", std::span<const ir::Expr* const>(starts)},
                          {"end", std::span<const ir::Expr* const>(ends)},
                          {"strides", std::span<const int64_t>(strides)}}));
  HIR_ASSIGN(value, ExpandTo(value, shape));
  graph_.TakeName(*value, *before);
  return value;
}

TensorSize StepEmitter::SizeOf(const ir::Value& value) const {
  TensorSize size = {.axes = {}, .element_bytes = DTypeBytes(value.type->dtype)};
  for (const ir::Axis& axis : ir::ValueAxes(*value.type)) {
    size.axes.push_back({.extent = extents_.Estimate(axis.extent),
                         .is_known = axis.extent->IsConst(),
                         .is_at_hand = extents_.IsAtHand(axis.extent),
                         .may_be_uneven = extents_.IsUneven(axis.extent),
                         .is_stored_once = axis.kind == ir::AxisKind::kBroadcast});
  }
  return size;
}

Result<Plan> StepEmitter::PlanSteps(const Request& request) {
  const TensorSize size = SizeOf(*request.global);
  const std::vector<ir::Axis> axes = ir::ValueAxes(*request.global->type);
  const bool bounded = resharding_bytes_max_ > 0 && std::ranges::all_of(axes, [&](const ir::Axis& axis) {
                         return extents_.IsAtHand(axis.extent);  // Nothing is refused for a guess.
                       });
  Result<Plan> plan = PlanResharding(request.from, request.to, size, cost_,
                                     bounded ? static_cast<double>(resharding_bytes_max_) : kNoBound);
  if (!plan.ok()) return plan.status().WithContext(Cat("%", UserName(request.global->name)));
  if (resharding_bytes_max_ > 0) BoundSizes(*plan, size);
  GuardSplits(*plan);
  return plan;
}

// Axes that steps split otherwise than both ends do.
void StepEmitter::GuardSplits(const Plan& plan) {
  ir::ExprPool& pool = graph_.exprs();
  const std::vector<ir::Axis> axes = ir::ValueAxes(*request_->global->type);
  for (const Step& step : plan.steps) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t ways = step.after.Ways(i);
      if (axes[i].extent->IsConst() || request_->from.Ways(i) % ways == 0 || request_->to.Ways(i) % ways == 0) continue;
      bounds_.push_back({ir::Guard::Kind::kEqual, pool.Mod(pool.Import(axes[i].extent), pool.Const(ways)),
                         pool.Const(0),
                         Cat(UserName(request_->source), ": axis ", i, " in ", ways, " even blocks on the way")});
    }
  }
}

// What steps hold is a share of the tensor, the same for all sizes whose blocks are even. Where blocks are padded it is
// not, so there the steps serve up to the sizes they were chosen for.
void StepEmitter::BoundSizes(const Plan& plan, const TensorSize& size) {
  ir::ExprPool& pool = graph_.exprs();
  const ir::Expr* elements = pool.Const(1);
  double estimate = 1;
  bool even = true;
  const std::vector<ir::Axis> axes = ir::ValueAxes(*request_->global->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (size.axes[i].is_stored_once) continue;
    elements = pool.Mul(elements, pool.Import(axes[i].extent));
    estimate *= static_cast<double>(size.axes[i].extent);
    even &= IsEven(i);
  }
  if (elements->IsConst() || plan.steps.empty()) return;
  double most = estimate;
  if (plan.peak_bytes > 0) most *= static_cast<double>(resharding_bytes_max_) / plan.peak_bytes;
  if (!even) most = std::min(most, estimate);
  most = std::min(most, 0x1p62);
  bounds_.push_back(
      {ir::Guard::Kind::kAtMost, elements, pool.Const(static_cast<int64_t>(most)),
       Cat(UserName(request_->source), ": resharded within resharding_bytes_max = ", resharding_bytes_max_, " bytes")});
}

Result<ir::Value*> StepEmitter::Reshard(const Request& request) {
  request_ = &request;
  at_ = request.from;
  const size_t num_values = graph_.values().size();
  ir::Value* value = request.value;
  HIR_ASSIGN(const Plan plan, PlanSteps(request));
  for (const Step& step : plan.steps) {
    ir::Value*& result = taken_[KeyOf(step, *value)];
    if (result == nullptr) {
      HIR_ASSIGN(result, Take(step, value));
    }
    value = result;
    at_ = step.after;
  }
  DropUnread(num_values, value);
  if (value == request.value) {  // Only mesh dimensions of one device, or types that differ in nothing.
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

StepEmitter::Key StepEmitter::KeyOf(const Step& step, const ir::Value& value) {
  const auto text = [](const std::optional<mesh::DeviceMesh>& mesh) { return mesh ? mesh->ToString() : std::string(); };
  return {value.id,     step.kind,
          step.type,    step.axis,
          step.to_axis, Cat(text(step.from), text(step.to), step.after.mesh.ToString(), step.after.ToString())};
}

Result<ir::Value*> StepEmitter::Take(const Step& step, ir::Value* value) {
  mesh_ = graph_.AddMesh(step.after.mesh);
  switch (step.kind) {
    case StepKind::kSlice: return Slice(step, value);
    case StepKind::kSpread: return Spread(step, value);
    case StepKind::kReorder: return Reorder(step, value);
    case StepKind::kRelabel: return Emit("set", value, {});
    case StepKind::kAllreduce:
    case StepKind::kReduceScatter:
    case StepKind::kAllgather:
    case StepKind::kAllToAll:
    case StepKind::kBroadcast:
    case StepKind::kScatter:
    case StepKind::kGather:
    case StepKind::kReduce:
    case StepKind::kSendRecv:
    case StepKind::kCollectivePermute: break;
  }
  mesh_ = value->layout->mesh;
  if (LosesStoredOnce(step)) {
    HIR_ASSIGN(value, Compact(value));
  }
  const bool turns = step.kind == StepKind::kAllToAll && step.axis == step.to_axis;
  HIR_ASSIGN(value, turns ? ExchangeTurns(step, value) : Communicate(step, value));
  return ExpandTo(value, ShareOf(step.after));  // On the new mesh.
}

// A reshape that splits or merges an axis of symbolic extent cannot be matched axis by axis, so axes that are stored
// once would come out written out. As axes of one element they do not.
bool StepEmitter::LosesStoredOnce(const Step& step) const {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*request_->global->type);
  const auto loses = [&](size_t axis) { return !axes[axis].extent->IsConst() || extents_.IsUneven(axes[axis].extent); };
  for (size_t axis = 0; axis < step.chunks.size(); ++axis) {
    if (step.chunks[axis] > 1 && loses(axis)) return true;
  }
  const bool along =
      step.kind == StepKind::kAllgather || step.kind == StepKind::kReduceScatter || step.kind == StepKind::kReorder;
  if (step.kind == StepKind::kAllToAll) return loses(step.axis) || loses(step.to_axis);
  return along && loses(step.axis);
}

// The sum of a product's partial results along a mesh dimension, of sizes that are known, whose share along `axis`, the
// first that has more than one element, is large.
bool StepEmitter::IsExchangedSum(const Step& step, const ir::Value& value, size_t axis) {
  if (step.kind != StepKind::kReduceScatter && step.kind != StepKind::kAllreduce) return false;
  const bool product = value.def != nullptr && (value.def->info->name == "matmul" || value.def->info->name == "linear");
  if (request_->reduce != "sum" || !product) return false;
  const OverlapLimits::Team& limits = overlap_.Of(at_.mesh, step.type);
  const std::optional<OverlapLimits::Least>& some =
      step.kind == StepKind::kReduceScatter ? limits.scattered : limits.summed;
  if (!some) return false;
  const OverlapLimits::Least& least = *some;
  const ir::Expr* const terms = ir::ValueAxes(*value.def->operands[0]->type).back().extent;
  if (!terms->IsConst() || terms->value < least.terms) return false;
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
  const int64_t ways = at_.mesh.Size(step.type);
  int64_t rows = 1;  // Which may be seen as [ranks, rows of a rank].
  int64_t bytes = DTypeBytes(value.type->dtype);
  for (size_t i = 0; i < axes.size(); ++i) {
    const ir::Expr* const extent = axes[i].extent;
    if (extent->IsConst(1)) continue;
    if (i < axis || axes[i].kind != ir::AxisKind::kIteration || !extent->IsConst()) return false;
    bytes *= extent->value;
    if (i + 1 < axes.size()) rows = base::CheckedMul(rows, extent->value).value_or(INT64_MAX);
  }
  if (axis + 1 >= axes.size() || axes[axis].extent->value % ways != 0 || !IsEven(axis)) return false;
  // It holds the results, what is exchanged for them, and the sum.
  if (resharding_bytes_max_ > 0 && 3 * bytes > resharding_bytes_max_) return false;
  return bytes / ways >= least.bytes && rows / ways >= least.rows;
}

// To every rank its share of each rank's results, which it adds up in their order.
Result<ir::Value*> StepEmitter::ExchangeSum(const Step& step, ir::Value* value, size_t axis) {
  const ir::Attr dim = {"dim", mesh::ParallelTypeName(step.type)};
  const ir::Attr mesh = {"mesh", graph_.AddMesh(step.after.mesh)};
  std::vector<int64_t> chunks(step.after.axes.size(), 1);
  chunks[axis] = at_.mesh.Size(step.type);
  ir::Value* sent = value;
  HIR_ASSIGN(sent, SplitToFront(value, chunks));
  HIR_ASSIGN(ir::Value* const got, Emit("all_to_all", sent, {mesh, dim}));
  Record(StepKind::kAllToAll, step, *sent, *got);
  const int64_t front[] = {0};
  return Emit(
      "sum", got,
      {{"axes", std::span<const int64_t>(front)}, {"keepdim", false}, {"dtype", DTypeName(value->type->dtype)}});
}

Result<ir::Value*> StepEmitter::Communicate(const Step& step, ir::Value* value) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  const auto rows = static_cast<size_t>(
      std::ranges::find_if(axes, [](const ir::Axis& axis) { return !axis.extent->IsConst(1); }) - axes.begin());
  const size_t shared = step.kind == StepKind::kReduceScatter ? step.axis : rows;
  if (IsExchangedSum(step, *value, shared)) {
    HIR_ASSIGN(ir::Value* const sum, ExchangeSum(step, value, shared));
    if (step.kind == StepKind::kReduceScatter) return sum;
    HIR_ASSIGN(ir::Value* const all,
               Emit("allgather", sum,
                    {{"mesh", graph_.AddMesh(step.after.mesh)}, {"dim", mesh::ParallelTypeName(step.type)}}));
    Record(StepKind::kAllgather, step, *sum, *all);
    std::vector<int64_t> chunks(axes.size(), 1);
    chunks[shared] = at_.mesh.Size(step.type);
    return MergeFromFront(all, chunks, ShareOf(step.after));
  }
  const ir::Mesh* const to = graph_.AddMesh(step.after.mesh);
  const ir::Attr dim = {"dim", mesh::ParallelTypeName(step.type)};
  const ir::Attr reduce = {"reduce", request_->reduce};
  const ir::Attr mesh = {"mesh", to};
  const int64_t ways = at_.mesh.Size(step.type == mesh::ParallelType::kSerial ? mesh::ParallelType::kMeshX : step.type);
  std::vector<int64_t> sent_chunks(step.after.axes.size(), 1), got_chunks = sent_chunks;
  if (step.kind == StepKind::kReduceScatter) sent_chunks[step.axis] = ways;
  if (step.kind == StepKind::kAllToAll) sent_chunks[step.to_axis] = ways;
  if (step.kind == StepKind::kScatter) sent_chunks = step.chunks;
  if (step.kind == StepKind::kAllgather || step.kind == StepKind::kAllToAll) got_chunks[step.axis] = ways;
  if (step.kind == StepKind::kGather) got_chunks = step.chunks;

  ir::Value* sent = value;
  HIR_ASSIGN(sent, SplitToFront(value, sent_chunks));
  mesh_ = to;
  ir::Value* got = nullptr;
  if (IsBetweenMeshes(step.kind)) {
    const ir::Attr from_mesh = {"from", graph_.AddMesh(*step.from)};
    const ir::Attr to_mesh = {"to", graph_.AddMesh(*step.to)};
    if (step.kind == StepKind::kReduce) {
      HIR_ASSIGN(got, Emit("reduce_to", sent, {from_mesh, to_mesh, reduce}));
    } else {
      HIR_ASSIGN(got, Emit(OpName(step.kind), sent, {from_mesh, to_mesh}));
    }
  } else if (step.kind == StepKind::kAllreduce || step.kind == StepKind::kReduceScatter) {
    HIR_ASSIGN(got, Emit(OpName(step.kind), sent, {mesh, dim, reduce}));
  } else {
    HIR_ASSIGN(got, Emit(OpName(step.kind), sent, {mesh, dim}));
  }
  Record(step, *sent, *got);
  return MergeFromFront(got, got_chunks, ShareOf(step.after));
}

// [a, b] -> [2, a, b / 2] for chunks [1, 2]; [4, a / 2, b / 2], the last axis counting fastest, for [2, 2].
Result<ir::Value*> StepEmitter::SplitToFront(ir::Value* value, const std::vector<int64_t>& chunks) {
  size_t fronts = 0;
  int64_t count = 1;
  for (size_t axis = 0; axis < chunks.size(); ++axis) {
    if (chunks[axis] == 1) continue;
    const size_t at = axis + fronts;
    const ir::Expr* part = ShareOf(at_, axis, chunks[axis]);
    if (!IsEven(axis)) {
      const ir::Expr* const all = graph_.exprs().Mul(graph_.exprs().Const(chunks[axis]), part);
      HIR_ASSIGN(value, PadTo(value, at, all));
    }
    Extents shape = ExtentsOf(*value);
    shape[at] = part;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), graph_.exprs().Const(chunks[axis]));
    HIR_ASSIGN(value, Reshape(value, shape));
    HIR_ASSIGN(value, MoveAxis(value, at, fronts));
    count *= chunks[axis];
    ++fronts;
  }
  if (fronts < 2) return value;
  Extents shape = ExtentsOf(*value);
  shape.erase(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(fronts - 1));
  shape[0] = graph_.exprs().Const(count);
  return Reshape(value, shape);
}

// The way back: [2, a, b] -> [a, 2 b] for chunks [1, 2], where `shape` is the extents to come to.
Result<ir::Value*> StepEmitter::MergeFromFront(ir::Value* value, const std::vector<int64_t>& chunks,
                                               const Extents& shape) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < chunks.size(); ++axis) {
    if (chunks[axis] > 1) axes.push_back(axis);
  }
  if (axes.size() > 1) {
    Extents split = ExtentsOf(*value);
    split.erase(split.begin());
    for (size_t i = axes.size(); i-- > 0;) split.insert(split.begin(), graph_.exprs().Const(chunks[axes[i]]));
    HIR_ASSIGN(value, Reshape(value, split));
  }
  for (size_t fronts = axes.size(); fronts-- > 0;) {  // Those left when this one is merged.
    const size_t axis = axes[fronts];
    const size_t at = fronts + axis;
    HIR_ASSIGN(value, MoveAxis(value, fronts, at));
    Extents merged = ExtentsOf(*value);
    const ir::Expr* const part = merged[at + 1];
    merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(at));
    const bool even = IsEven(axis);
    merged[at] = even ? shape[axis] : graph_.exprs().Mul(graph_.exprs().Const(chunks[axis]), part);
    HIR_ASSIGN(value, Reshape(value, merged));
    if (!even) {
      HIR_ASSIGN(value, CropTo(value, at, shape[axis]));
    }
  }
  return value;
}

bool StepEmitter::IsEven(size_t axis) const {
  return !extents_.IsUneven(ir::ValueAxes(*request_->global->type)[axis].extent);
}

// With zeros behind, which nobody reads.
Result<ir::Value*> StepEmitter::PadTo(ir::Value* value, size_t axis, const ir::Expr* extent) {
  ir::ExprPool& pool = graph_.exprs();
  Extents shape = ExtentsOf(*value);
  if (shape[axis] == extent) return value;
  const ir::Expr* const more = pool.Add(extent, pool.Mul(pool.Const(-1), shape[axis]));
  if (more->IsConst()) {
    std::vector<int64_t> widths(2 * shape.size(), 0);
    widths[2 * (shape.size() - 1 - axis) + 1] = more->value;
    return Emit("pad", value, {{"widths", std::span<const int64_t>(widths)}, {"value", 0.0}});
  }
  shape[axis] = more;
  const Extents whole = shape;
  bool stretched = false;  // What is stored once stays so.
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i == axis || axes[i].kind != ir::AxisKind::kBroadcast || axes[i].extent->IsConst(1)) continue;
    shape[i] = pool.Const(1);
    stretched = true;
  }
  ir::Builder builder(graph_);
  HIR_ASSIGN(ir::Op* const zeros, builder.Add({.name = "full",
                                               .attrs = {{{"shape", std::span<const ir::Expr* const>(shape)},
                                                          {"value", 0.0},
                                                          {"dtype", DTypeName(value->type->dtype)}}},
                                               .location = request_->location}));
  PlaceOn(graph_, *zeros->results[0], mesh_);
  ir::Value* behind = zeros->results[0];
  if (stretched) {
    HIR_ASSIGN(behind, ExpandTo(behind, whole));
  }
  return Emit("cat", {value, behind}, {{"axis", static_cast<int64_t>(axis)}});
}

Result<ir::Value*> StepEmitter::CropTo(ir::Value* value, size_t axis, const ir::Expr* extent) {
  const Extents shape = ExtentsOf(*value);
  if (shape[axis] == extent) return value;
  return SliceAxis(value, axis, graph_.exprs().Const(0), extent);
}

Result<ir::Value*> StepEmitter::SliceAxis(ir::Value* value, size_t axis, const ir::Expr* start, const ir::Expr* end) {
  Extents starts, ends;
  for (const ir::Expr* extent : ExtentsOf(*value)) {
    starts.push_back(graph_.exprs().Const(0));
    ends.push_back(extent);
  }
  starts[axis] = start;
  ends[axis] = end;
  const std::vector<int64_t> strides(starts.size(), 1);
  return Emit("slice", value,
              {{"start", std::span<const ir::Expr* const>(starts)},
               {"end", std::span<const ir::Expr* const>(ends)},
               {"strides", std::span<const int64_t>(strides)}});
}

Result<ir::Value*> StepEmitter::Valid(ir::Value* value, size_t axis, const ir::Expr* extent,
                                      const mesh::Sharding& sharding, std::string_view location) {
  const Request request = {.value = value, .global = value, .from = sharding, .to = sharding, .location = location};
  request_ = &request;
  mesh_ = value->layout->mesh;
  ir::ExprPool& pool = graph_.exprs();
  const ir::Expr* valid = pool.Import(extent);
  int64_t ways = 1;
  for (const mesh::ParallelType type : sharding.axes[axis]) {
    ways *= sharding.mesh.Size(type);
    const ir::Expr* const block = extents_.Share(extent, ways);
    const ir::Expr* const begin = pool.Mul(pool.Symbol(CoordinateOf(*mesh_, type)), block);
    const ir::Expr* const rest = pool.Add(valid, pool.Mul(pool.Const(-1), begin));
    valid = pool.Min(block, pool.Max(pool.Const(0), rest));
  }
  // A part of one element looks stored once, and so never empty, where a rank may have none of the whole's.
  if (ir::ValueAxes(*value->type)[axis].kind == ir::AxisKind::kBroadcast) {
    HIR_ASSIGN(value, Emit("cat", value, {{"axis", static_cast<int64_t>(axis)}}));  // Writes it out.
  }
  Result<ir::Value*> result = SliceAxis(value, axis, pool.Const(0), valid);
  request_ = nullptr;
  return result;
}

Result<ir::Value*> StepEmitter::Reshape(ir::Value* value, const Extents& shape) {
  if (merged_.contains(value)) {
    if (ir::Value* const unmerged = Unmerged(value, shape)) return unmerged;
  }
  return Emit("reshape", value, {{"shape", std::span<const ir::Expr* const>(shape)}});
}

// What `value` is a reshape of, where that has the shape already, else null. Index arithmetic of kernels would see the
// two reshapes, and symbolic extents cancel in few of them.
ir::Value* StepEmitter::Unmerged(ir::Value* value, const Extents& shape) {
  const ir::Op* const op = value->def;
  if (op == nullptr || op->info->name != "reshape" || ExtentsOf(*op->operands[0]) != shape) return nullptr;
  unmerged_.push_back(value);
  return op->operands[0];
}

// Erases what nobody reads of the values from number `first_value` on that were not needed merged.
void StepEmitter::DropUnread(size_t first_value, const ir::Value* result) {
  for (ir::Value* const value : unmerged_) {
    bool read = value == result || static_cast<size_t>(value->id) < first_value;
    for (const ir::Op* op = value->def->next; op != nullptr && !read; op = op->next)
      read = std::ranges::find(op->operands, value) != op->operands.end();
    if (read || value->def->parent == nullptr) continue;
    std::erase_if(taken_, [&](const auto& taken) { return taken.second == value; });
    graph_.body.Erase(value->def);
  }
  unmerged_.clear();
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
  const ir::Expr* const block = ShareOf(step.after)[step.axis];
  // All blocks of an axis that is stored once are alike: no need for the rank's own.
  const bool stored_once = ir::ValueAxes(*request_->global->type)[step.axis].kind == ir::AxisKind::kBroadcast;
  if (stored_once) return SliceAxis(value, step.axis, pool.Const(0), block);
  const int64_t ways = step.after.mesh.Size(step.type);
  if (!IsEven(step.axis)) {
    HIR_ASSIGN(value, PadTo(value, step.axis, pool.Mul(pool.Const(ways), block)));
  }
  const ir::Expr* const start = pool.Mul(pool.Symbol(CoordinateOf(*mesh_, step.type)), block);
  return SliceAxis(value, step.axis, start, pool.Add(start, block));
}

// `axis` as two of the extents given.
Result<ir::Value*> StepEmitter::Split(ir::Value* value, size_t axis, const ir::Expr* outer, const ir::Expr* inner) {
  Extents shape = ExtentsOf(*value);
  shape[axis] = inner;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), outer);
  if (ir::Value* const unmerged = Unmerged(value, shape)) return unmerged;
  return Reshape(value, shape);
}

// `axis` and the next as one of the extent given.
Result<ir::Value*> StepEmitter::Merge(ir::Value* value, size_t axis, const ir::Expr* extent) {
  Extents shape = ExtentsOf(*value);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape[axis] = extent;
  HIR_ASSIGN(value, Reshape(value, shape));
  merged_.insert(value);
  return value;
}

// Position k * (n / d) + j of n elements dealt d ways is element j * d + k: a transposition of [d, n / d].
Result<ir::Value*> StepEmitter::Reorder(const Step& step, ir::Value* value) {
  const size_t axis = step.axis;
  const ir::Axis whole = ir::ValueAxes(*request_->global->type)[axis];
  if (whole.kind == ir::AxisKind::kBroadcast) return Emit("set", value, {});  // All alike.
  if (LosesStoredOnce(step)) {
    HIR_ASSIGN(value, Compact(value));
  }
  const ir::Expr* const extent = ShareOf(step.after, axis, 1);
  for (const bool back : {true, false}) {
    const int64_t ways = (back ? at_ : step.after).axes[axis].dealt;
    if (ways == 1) continue;
    const ir::Expr* const turns = extents_.Share(whole.extent, ways);
    const ir::Expr* const members = graph_.exprs().Const(ways);
    HIR_ASSIGN(value, Split(value, axis, back ? members : turns, back ? turns : members));
    HIR_ASSIGN(value, MoveAxis(value, axis, axis + 1));
    HIR_ASSIGN(value, Merge(value, axis, extent));
  }
  return ExpandTo(value, ShareOf(step.after));
}

// Between blocks of an axis and every d-th element of it: what two ranks exchange is one behind the other where the
// elements are dealt, and every d-th one of the block.
Result<ir::Value*> StepEmitter::ExchangeTurns(const Step& step, ir::Value* value) {
  ir::ExprPool& pool = graph_.exprs();
  const size_t axis = step.axis;
  const ir::Expr* const whole = ir::ValueAxes(*request_->global->type)[axis].extent;
  const int64_t ways = at_.Ways(axis);
  if (!whole->IsConst()) {
    bounds_.push_back({ir::Guard::Kind::kEqual, pool.Mod(pool.Import(whole), pool.Const(ways * ways)), pool.Const(0),
                       Cat(UserName(request_->source), ": axis ", axis, " dealt ", ways,
                           " ways, exchanged for blocks of whole turns")});
  }
  const ir::Expr* const members = pool.Const(ways);
  const ir::Expr* const turns = pool.FloorDiv(ExtentsOf(*value)[axis], members);
  const bool dealt = at_.axes[axis].is_dealt();
  HIR_ASSIGN(value, Split(value, axis, dealt ? members : turns, dealt ? turns : members));
  HIR_ASSIGN(ir::Value* const sent, MoveAxis(value, dealt ? axis : axis + 1, 0));
  HIR_ASSIGN(value, Emit("all_to_all", sent,
                         {{"mesh", graph_.AddMesh(step.after.mesh)}, {"dim", mesh::ParallelTypeName(step.type)}}));
  Record(step, *sent, *value);
  HIR_ASSIGN(value, MoveAxis(value, 0, dealt ? axis + 1 : axis));
  return Merge(value, axis, ShareOf(step.after, axis, 1));
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
      guards_.push_back({ir::Guard::Kind::kAtMost, pool.Const(1), pool.Import(global[starts.size()].extent),
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
  for (size_t axis = 0; axis < sharding.axes.size(); ++axis) shape.push_back(ShareOf(sharding, axis, 1));
  return shape;
}

const ir::Expr* StepEmitter::ShareOf(const mesh::Sharding& sharding, size_t axis, int64_t ways) {
  const ir::Axis whole = ir::ValueAxes(*request_->global->type)[axis];
  return extents_.Share(whole.extent, sharding.Ways(axis) * ways);
}

void StepEmitter::Record(const Step& step, const ir::Value& operand, const ir::Value& result) {
  Record(step.kind, step, operand, result);
}

void StepEmitter::Record(StepKind kind, const Step& step, const ir::Value& operand, const ir::Value& result) {
  const bool meshes = !(request_->from.mesh == request_->to.mesh);
  communications_.push_back(
      {.type = StepName(kind),
       .teams = TeamsOf(step, at_),
       .bytes =
           StoredBytes(graph_.exprs(), kind == StepKind::kAllgather || kind == StepKind::kGather ? result : operand),
       .tensor = std::string(UserName(request_->source)),
       .reason = Cat(Describe(request_->from, meshes), " -> ", Describe(request_->to, meshes)),
       .op = result.def});
}

}  // namespace hir::plan
