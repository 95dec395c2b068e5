// The communications: they move whole shards, so their axes are the operand's, but for a leading axis that counts
// chunks, one per rank of the team.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

using base::Cat;

// How many ranks communicate with each other: the extent of `mesh` along `dim`.
Result<int64_t> TeamSize(const ir::Op& op) {
  const ir::Mesh* mesh = op.MeshOf("mesh");
  const std::string_view dim = op.Name("dim");
  const std::optional<mesh::ParallelType> type = mesh::ParseParallelType(dim);
  if (!type || !mesh::IsMesh(*type)) return InvalidArgument(Cat("dim=", dim, " is not mesh_x, mesh_y or mesh_z"));
  if (!mesh->mesh.Has(*type)) return InvalidArgument(Cat("mesh @", mesh->name, " has no ", dim));
  return mesh->mesh.Size(*type);
}

Status CheckReduce(const ir::Op& op) {
  const std::string_view reduce = op.Name("reduce");
  if (reduce == "sum" || reduce == "prod" || reduce == "min" || reduce == "max") return {};
  if (reduce != "mean") return InvalidArgument(Cat("reduce=", reduce, " is not sum, prod, min, max or mean"));
  const ir::Value& x = *op.operands[0];
  if (IsFloat(x.type->dtype)) return {};
  return InvalidArgument(
      Cat("reduce=mean: %", x.name, " is ", DTypeName(x.type->dtype), "; a mean is of floats: cast it first"));
}

// The operand's axes, the first of which must count `chunks`.
Result<std::vector<ir::Axis>> Chunked(const ir::Op& op, int64_t chunks) {
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  if (axes.empty() || !axes[0].extent->IsConst(chunks)) {
    return InvalidArgument(Cat("%", op.operands[0]->name, " is ", ir::ToString(*op.operands[0]->type),
                               "; its leading axis must hold ", chunks, " chunks"));
  }
  return axes;
}

Status SetLike(ir::Graph& graph, ir::Op& op, std::span<const ir::Axis> axes) {
  return SetTensor(graph, op, op.operands[0]->type->dtype, axes);
}

// Operand axis k is result axis k + shift.
void Shifted(const ir::Op& op, int shift, std::vector<AxisLink>& links) {
  const int rank = static_cast<int>(ir::ValueAxes(*op.operands[0]->type).size());
  for (int k = std::max(0, -shift); k < rank; ++k) links.push_back({0, k, 0, k + shift, AxisRelation::kSame});
}

}  // namespace

Status InferAllgather(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const int64_t team, TeamSize(op));
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  axes.insert(axes.begin(), {ir::AxisKind::kIteration, graph.exprs().Const(team)});
  return SetLike(graph, op, axes);
}
void AxesAllgather(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 1, links); }

Status InferAllreduce(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_TRY(TeamSize(op).status());
  HIR_TRY(CheckReduce(op));
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetLike(graph, op, axes);
}
void AxesAllreduce(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 0, links); }

Status InferAllToAll(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const int64_t team, TeamSize(op));
  HIR_ASSIGN(const std::vector<ir::Axis> axes, Chunked(op, team));
  return SetLike(graph, op, axes);
}
void AxesAllToAll(const ir::Op& op, std::vector<AxisLink>& links) {
  Shifted(op, 0, links);
  links.front().relation = AxisRelation::kOpaque;  // The chunks change places among ranks.
}

Status InferReduceScatter(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const int64_t team, TeamSize(op));
  HIR_TRY(CheckReduce(op));
  HIR_ASSIGN(std::vector<ir::Axis> axes, Chunked(op, team));
  axes.erase(axes.begin());
  return SetLike(graph, op, axes);
}
void AxesReduceScatter(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, -1, links); }

// Between meshes. A row of a mesh is the devices that differ along mesh_x only.
namespace {

int64_t RowLength(const ir::Mesh& mesh) { return mesh.mesh.Size(mesh::ParallelType::kMeshX); }

// One device of `roots` for each row of `rows`.
Status CheckRows(const ir::Mesh& roots, const ir::Mesh& rows) {
  const int64_t count = rows.mesh.num_devices() / RowLength(rows);
  if (roots.mesh.num_devices() == count) return {};
  return InvalidArgument(Cat("mesh @", roots.name, " has ", roots.mesh.num_devices(), " devices, mesh @", rows.name,
                             " has ", count, " rows along mesh_x; each row has one root"));
}

Status CheckPairs(const ir::Mesh& from, const ir::Mesh& to) {
  if (from.mesh.num_devices() == to.mesh.num_devices()) return {};
  return InvalidArgument(Cat("mesh @", from.name, " has ", from.mesh.num_devices(), " devices, mesh @", to.name,
                             " has ", to.mesh.num_devices(), "; positions pair up"));
}

}  // namespace

Status InferBroadcastTo(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_TRY(CheckRows(*op.MeshOf("from"), *op.MeshOf("to")));
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetLike(graph, op, axes);
}
void AxesBroadcastTo(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 0, links); }

Status InferScatterTo(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_TRY(CheckRows(*op.MeshOf("from"), *op.MeshOf("to")));
  HIR_ASSIGN(std::vector<ir::Axis> axes, Chunked(op, RowLength(*op.MeshOf("to"))));
  axes.erase(axes.begin());
  return SetLike(graph, op, axes);
}
void AxesScatterTo(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, -1, links); }

Status InferGatherTo(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  const ir::Mesh* from = op.MeshOf("from");
  HIR_TRY(CheckRows(*op.MeshOf("to"), *from));
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  axes.insert(axes.begin(), {ir::AxisKind::kIteration, graph.exprs().Const(RowLength(*from))});
  return SetLike(graph, op, axes);
}
void AxesGatherTo(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 1, links); }

Status InferReduceTo(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  const ir::Mesh* from = op.MeshOf("from");
  const ir::Mesh* to = op.MeshOf("to");
  HIR_TRY(CheckReduce(op));
  HIR_TRY(CheckRows(*to, *from));
  for (int64_t row = 0; row < to->mesh.num_devices(); ++row) {
    const int64_t root = to->mesh.devices()[static_cast<size_t>(row)];
    const std::optional<int64_t> position = from->mesh.PositionOf(root);
    if (position && *position / RowLength(*from) == row) continue;
    return InvalidArgument(Cat("device ", root, " is at position ", row, " of mesh @", to->name, ", but not in row ",
                               row, " of mesh @", from->name, "; a root holds a partial result"));
  }
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetLike(graph, op, axes);
}
void AxesReduceTo(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 0, links); }

Status InferSendRecv(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_TRY(CheckPairs(*op.MeshOf("from"), *op.MeshOf("to")));
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetLike(graph, op, axes);
}
void AxesSendRecv(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 0, links); }

Status InferCollectivePermute(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  const ir::Mesh* from = op.MeshOf("from");
  const ir::Mesh* to = op.MeshOf("to");
  HIR_TRY(CheckPairs(*from, *to));
  for (const int64_t device : from->mesh.devices()) {
    if (to->mesh.PositionOf(device)) continue;
    return InvalidArgument(Cat("mesh @", to->name, " lacks device ", device, " of mesh @", from->name,
                               "; a permutation stays within its devices"));
  }
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetLike(graph, op, axes);
}
void AxesCollectivePermute(const ir::Op& op, std::vector<AxisLink>& links) { Shifted(op, 0, links); }

}  // namespace hir::fusion
