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
  bool reduces;     // `reduce` is an operation, not none.
  bool along;       // In each team along `dim`; else from `mesh` to `to`, dim=none.
  bool scaled_src;  // src holds one chunk a member of the team; else one in all.
  bool scaled_dst;
};
constexpr Rule kRules[] = {
    {"allgather", false, true, false, true},     {"allreduce", true, true, false, false},
    {"reduce_scatter", true, true, true, false}, {"all_to_all", false, true, true, true},
    {"broadcast", false, false, false, false},   {"send_recv", false, false, false, false},
};

const Rule* FindRule(std::string_view type) {
  for (const Rule& rule : kRules) {
    if (rule.type == type) return &rule;
  }
  return nullptr;
}

Status CheckReduce(const Rule& rule, std::string_view reduce) {
  const bool known = reduce == "sum" || reduce == "prod" || reduce == "min" || reduce == "max";
  if (rule.reduces ? known : reduce == "none") return {};
  return InvalidArgument(Cat("reduce is ", reduce, "; ", rule.type, " wants ",
                             rule.reduces ? "sum, prod, min or max" : "none"));
}

Status CheckMeshes(const Rule& rule, const ir::Op& op) {
  const ir::Mesh& mesh = *op.MeshOf("mesh");
  const ir::Mesh& to = *op.MeshOf("to");
  const std::string_view dim = op.Name("dim");
  if (!rule.along) {
    if (dim != "none") return InvalidArgument(Cat("dim is ", dim, "; ", rule.type, " wants none"));
    if (rule.type == "send_recv" && mesh.mesh.num_devices() != to.mesh.num_devices()) {
      return InvalidArgument(Cat("@", mesh.name, " has ", mesh.mesh.num_devices(), " devices, @",
                                 to.name, " has ", to.mesh.num_devices(),
                                 "; send_recv pairs them"));
    }
    return {};
  }
  const auto type = mesh::ParseParallelType(dim);
  if (!type.has_value() || !mesh::IsMesh(*type)) {
    return InvalidArgument(Cat("dim is ", dim, ", not mesh_x, mesh_y or mesh_z"));
  }
  if (!mesh.mesh.Has(*type)) return InvalidArgument(Cat("@", mesh.name, " has no ", dim));
  if (&mesh != &to)
    return InvalidArgument(Cat("to is @", to.name, "; ", rule.type, " stays in @", mesh.name));
  return {};
}

}  // namespace

Status InferCommunication(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  const Rule* rule = FindRule(op.Name("type"));
  if (rule == nullptr) {
    return InvalidArgument(
        Cat("type is ", op.Name("type"),
            ", not allgather, allreduce, reduce_scatter, all_to_all, broadcast or send_recv"));
  }
  HIR_TRY(CheckReduce(*rule, op.Name("reduce")));
  HIR_TRY(CheckMeshes(*rule, op));
  for (const ir::Value* value : op.operands) {
    if (value->type->kind != ir::TypeKind::kTensor) {
      return InvalidArgument(
          Cat("%", value->name, " is ", ToString(*value->type), ", not a buffer"));
    }
  }
  const ir::Type& src = *op.operands[0]->type;
  const ir::Type& dst = *op.operands[1]->type;
  if (src.dtype != dst.dtype) {
    return InvalidArgument(
        Cat("src is ", ToString(src), ", dst is ", ToString(dst), "; the dtypes must be equal"));
  }
  const int64_t size =
      rule->along ? op.MeshOf("mesh")->mesh.Size(*mesh::ParseParallelType(op.Name("dim"))) : 1;
  const bool same = rule->scaled_src == rule->scaled_dst;
  ir::ExprPool& pool = graph.exprs();
  const ir::Expr* have_src =
      pool.Mul(StorageElements(pool, src), pool.Const(!same && rule->scaled_dst ? size : 1));
  const ir::Expr* have_dst =
      pool.Mul(StorageElements(pool, dst), pool.Const(!same && rule->scaled_src ? size : 1));
  if (!ir::Equal(have_src, have_dst)) {
    return InvalidArgument(
        Cat("src is ", ToString(src), ", dst is ", ToString(dst), "; ", rule->type, " of ", size,
            same ? " wants as many elements in both"
                 : (rule->scaled_dst ? " wants as many times the elements in dst"
                                     : " wants as many times the elements in src")));
  }
  return {};
}

}  // namespace hir::host
