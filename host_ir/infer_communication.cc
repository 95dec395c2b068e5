// The type rule of `communication`: which attributes go together, and the element counts of src and
// dst.
#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/infer.h"
#include "host_ir/shapes.h"
#include "multidevice/mesh.h"

namespace hir::host {
namespace {

using base::Cat;

struct Rule {
  std::string_view type;
  bool reduces = false;     // `reduce` is an operation, not none.
  bool along = false;       // In each team along `dim`; else from `mesh` to `to`, dim=none.
  bool scaled_src = false;  // src holds one chunk a member of the team; else one in all.
  bool scaled_dst = false;
};
constexpr Rule kRules[] = {
    {.type = "gather", .scaled_dst = true},
    {.type = "allgather", .along = true, .scaled_dst = true},
    {.type = "scatter", .scaled_src = true},
    {.type = "reduce", .reduces = true},
    {.type = "allreduce", .reduces = true, .along = true},
    {.type = "reduce_scatter", .reduces = true, .along = true, .scaled_src = true},
    {.type = "broadcast"},
    {.type = "send_recv"},
    {.type = "all_to_all", .along = true, .scaled_src = true, .scaled_dst = true},
    {.type = "collective_permute"},
};

const Rule* FindRule(std::string_view type) {
  for (const Rule& rule : kRules) {
    if (rule.type == type) return &rule;
  }
  return nullptr;
}

// The number of chunks of the side that has many.
int64_t TeamSize(const Rule& rule, const ir::Op& op) {
  if (rule.along) return op.MeshOf("mesh")->mesh.Size(*mesh::ParseParallelType(op.Name("dim")));
  if (rule.scaled_dst) return op.MeshOf("mesh")->mesh.num_devices();
  return rule.scaled_src ? op.MeshOf("to")->mesh.num_devices() : 1;
}

Status CheckReduce(const Rule& rule, std::string_view reduce) {
  const bool known = reduce == "sum" || reduce == "prod" || reduce == "min" || reduce == "max" || reduce == "mean";
  if (rule.reduces ? known : reduce == "none") return {};
  return InvalidArgument(
      Cat("reduce is ", reduce, "; ", rule.type, " wants ", rule.reduces ? "sum, prod, min, max or mean" : "none"));
}

// Between meshes: who must be where.
Status CheckMembers(const Rule& rule, const ir::Mesh& mesh, const ir::Mesh& to) {
  const auto needs = [&](const ir::Mesh& in, int64_t device, std::string_view what) -> Status {
    if (in.mesh.PositionOf(device)) return {};
    return InvalidArgument(Cat("@", in.name, " lacks device ", device, ", ", what));
  };
  if (rule.type == "gather" || rule.type == "reduce") {
    return needs(mesh, to.mesh.devices()[0], Cat("the root: the first of @", to.name));
  }
  if (rule.type == "scatter") {
    return needs(to, mesh.mesh.devices()[0], Cat("the root: the first of @", mesh.name));
  }
  if (rule.type == "broadcast") return {};
  if (mesh.mesh.num_devices() != to.mesh.num_devices()) {
    return InvalidArgument(Cat("@", mesh.name, " has ", mesh.mesh.num_devices(), " devices, @", to.name, " has ",
                               to.mesh.num_devices(), "; ", rule.type, " pairs them"));
  }
  if (rule.type == "send_recv") return {};
  for (int64_t device : mesh.mesh.devices()) {
    HIR_TRY(needs(to, device, Cat("which is in @", mesh.name, "; ", rule.type, " permutes them")));
  }
  return {};
}

Status CheckMeshes(const Rule& rule, const ir::Op& op) {
  const ir::Mesh& mesh = *op.MeshOf("mesh");
  const ir::Mesh& to = *op.MeshOf("to");
  const std::string_view dim = op.Name("dim");
  if (!rule.along) {
    if (dim != "none") return InvalidArgument(Cat("dim is ", dim, "; ", rule.type, " wants none"));
    return CheckMembers(rule, mesh, to);
  }
  const auto type = mesh::ParseParallelType(dim);
  if (!type.has_value() || !mesh::IsMesh(*type)) {
    return InvalidArgument(Cat("dim is ", dim, ", not mesh_x, mesh_y or mesh_z"));
  }
  if (!mesh.mesh.Has(*type)) return InvalidArgument(Cat("@", mesh.name, " has no ", dim));
  if (&mesh != &to) return InvalidArgument(Cat("to is @", to.name, "; ", rule.type, " stays in @", mesh.name));
  return {};
}

}  // namespace

Status InferCommunication(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  const Rule* rule = FindRule(op.Name("type"));
  if (rule == nullptr) {
    return InvalidArgument(Cat("type is ", op.Name("type"),
                               ", not gather, allgather, scatter, reduce, allreduce, reduce_scatter, broadcast, "
                               "send_recv, all_to_all or collective_permute"));
  }
  HIR_TRY(CheckReduce(*rule, op.Name("reduce")));
  HIR_TRY(CheckMeshes(*rule, op));
  if (op.Name("by") != "any" && op.Name("by") != "copies")
    return InvalidArgument(Cat("by is ", op.Name("by"), ", not any or copies"));
  for (const ir::Value* value : op.operands) {
    if (value->type->kind != ir::TypeKind::kTensor) {
      return InvalidArgument(Cat("%", value->name, " is ", ToString(*value->type), ", not a buffer"));
    }
  }
  const ir::Type& src = *op.operands[0]->type;
  const ir::Type& dst = *op.operands[1]->type;
  if (src.dtype != dst.dtype) {
    return InvalidArgument(Cat("src is ", ToString(src), ", dst is ", ToString(dst), "; the dtypes must be equal"));
  }
  if (op.Name("reduce") == "mean" && !IsFloat(src.dtype)) {
    return InvalidArgument(
        Cat("reduce is mean, of ", DTypeName(src.dtype), "; a mean is of floats: cast them, or use sum"));
  }
  const int64_t size = TeamSize(*rule, op);
  const bool same = rule->scaled_src == rule->scaled_dst;
  ir::ExprPool& pool = graph.exprs();
  const ir::Expr* have_src = pool.Mul(StorageElements(pool, src), pool.Const(!same && rule->scaled_dst ? size : 1));
  const ir::Expr* have_dst = pool.Mul(StorageElements(pool, dst), pool.Const(!same && rule->scaled_src ? size : 1));
  if (!ir::Equal(have_src, have_dst)) {
    return InvalidArgument(Cat("src is ", ToString(src), ", dst is ", ToString(dst), "; ", rule->type, " of ", size,
                               same ? " wants as many elements in both"
                                    : (rule->scaled_dst ? " wants as many times the elements in dst"
                                                        : " wants as many times the elements in src")));
  }
  return {};
}

}  // namespace hir::host
