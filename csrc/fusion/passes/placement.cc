#include "csrc/fusion/passes/placement.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::fusion {
namespace {

using base::Cat;
using mesh::ParallelType;
using Kind = ir::LoopTransform::Kind;

// A leaf of a loop domain, as far as placements are concerned.
struct Part {
  int logical = -1;    // -1: of a merge.
  bool outer = true;   // Made by outer splits alone, or by what comes to the same.
  bool whole = true;   // The axis itself.
  bool inner = true;   // The element's number modulo the extent.
  int64_t extent = 0;  // Where it is a constant; else 0.
};

std::vector<Part> PartsOf(const ir::Value& value) {
  std::vector<Part> parts;
  for (size_t i = 0; i < value.type->axes.size(); ++i) {
    const ir::Expr* extent = value.type->axes[i].extent;
    parts.push_back({.logical = static_cast<int>(i), .extent = extent->IsConst() ? extent->value : 0});
  }
  for (const ir::LoopTransform& step : value.layout->transforms) {
    const auto at = parts.begin() + step.axis;
    if (step.kind == Kind::kMerge) {
      *at = {.logical = -1, .outer = false, .whole = false, .inner = false};
      parts.erase(at + 1);
      continue;
    }
    Part outside = *at;
    Part inside = *at;
    const int64_t rest = base::CeilDiv(at->extent, step.factor);
    const bool outer = step.kind == Kind::kOuterSplit;
    outside.extent = outer ? step.factor : rest;
    inside.extent = outer ? rest : step.factor;
    // Blocks of `factor` elements are the blocks of an outer split where that would make them as long.
    const bool same = at->extent > 0 && base::CeilDiv(at->extent, rest) == step.factor;
    outside.outer = inside.outer = at->outer && (outer || same);
    const bool divides = inside.extent > 0 && at->extent > 0 && at->extent % inside.extent == 0;
    outside.whole = inside.whole = outside.inner = false;
    inside.inner = at->inner && (at->whole || divides);
    *at = outside;
    parts.insert(at + 1, inside);
  }
  return parts;
}

Status NotBuilt(const ir::Value& value, int logical, ParallelType type) {
  const std::string axis = logical < 0 ? "a merged axis" : Cat("axis ", logical);
  return Unimplemented(Cat(value.name, ": ", axis, " of ", ir::ToString(*value.type), " is parallel on ",
                           mesh::ParallelTypeName(type),
                           " other than in as many blocks, one behind the other, as the mesh has "
                           "devices along it, or with elements dealt in turns over that dimension "
                           "alone; merged axes, blocks of another size and blocks dealt in turns "
                           "are not built (docs/decisions/0007): use an outer split"));
}

// `axis` of `value`, dealt over `type`.
Result<Types> Dealt(const ir::Value& value, size_t axis, ParallelType type) {
  mesh::Sharding sharding = mesh::Sharding::Replicated(value.layout->mesh->mesh, value.type->axes.size());
  sharding.axes[axis] = {type};
  sharding.axes[axis].dealt = sharding.mesh.Size(type);
  std::vector<int64_t> extents;  // Symbolic ones are left to guards.
  for (const ir::Axis& a : value.type->axes) extents.push_back(a.extent->IsConst() ? a.extent->value : 0);
  if (Status s = mesh::CheckDealt(sharding, extents); !s.ok()) return s.WithContext(value.name);
  // Without an element it is in blocks, too: the normal form.
  if (value.type->axes[axis].extent->IsConst(0)) sharding.axes[axis].dealt = 1;
  return sharding.axes[axis];
}

}  // namespace

int64_t Ways(const ir::Mesh& mesh, const Types& types) {
  int64_t ways = 1;
  for (const ParallelType type : types) ways *= mesh.mesh.Size(type);
  return ways;
}

int64_t Shares(const Placement& placement) {
  int64_t shares = 1;
  for (const Types& types : placement.axes) shares *= Ways(*placement.mesh, types);
  return shares;
}

Result<Placement> PlacementOf(const ir::Value& value) {
  HIR_CHECK(value.layout != nullptr && value.type->kind == ir::TypeKind::kTensor);
  const ir::Layout& layout = *value.layout;
  const mesh::DeviceMesh& mesh = layout.mesh->mesh;
  Placement placement = Replicated(layout.mesh, *value.type);
  const std::vector<Part> parts = PartsOf(value);
  HIR_CHECK(parts.size() == layout.parallel.size());
  std::vector<bool> blocked(value.type->axes.size(),
                            false);  // A serial part is outside: what follows is no block.
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const ParallelType type = layout.parallel[i];
    const auto logical = static_cast<size_t>(part.logical);
    if (type == ParallelType::kSerial) {
      if (part.logical >= 0 && part.extent != 1) blocked[logical] = true;
      continue;
    }
    if (!mesh::IsMesh(type)) return NotBuilt(value, part.logical, type);
    if (mesh.Size(type) == 1) continue;
    if (part.logical < 0 || part.extent != mesh.Size(type)) return NotBuilt(value, part.logical, type);
    if (part.outer && !blocked[logical]) {
      placement.axes[logical].push_back(type);
    } else if (part.inner && placement.axes[logical].empty()) {
      HIR_ASSIGN(placement.axes[logical], Dealt(value, logical, type));
    } else {
      return NotBuilt(value, part.logical, type);
    }
  }
  return placement;
}

Placement Replicated(const ir::Mesh* mesh, const ir::Type& type) {
  return {mesh, std::vector<Types>(type.axes.size())};
}

const ir::Layout* LayoutFor(ir::Graph& graph, const ir::Type& type, const Placement& placement) {
  std::vector<ir::LoopTransform> transforms;
  std::vector<ParallelType> parallel;
  for (size_t axis = 0; axis < type.axes.size(); ++axis) {
    const Types& types = placement.axes[axis];
    if (types.is_dealt()) {
      HIR_CHECK(types.size() == 1 && Ways(*placement.mesh, types) == types.dealt);
      transforms.push_back(
          {.kind = Kind::kInnerSplit, .axis = static_cast<int>(parallel.size()), .factor = types.dealt});
      parallel.insert(parallel.end(), {ParallelType::kSerial, types[0]});
      continue;
    }
    for (const ParallelType split : types) {
      transforms.push_back({.kind = Kind::kOuterSplit,
                            .axis = static_cast<int>(parallel.size()),
                            .factor = placement.mesh->mesh.Size(split)});
      parallel.push_back(split);
    }
    parallel.push_back(ParallelType::kSerial);
  }
  return graph.New(
      ir::Layout{.mesh = placement.mesh, .transforms = graph.Copy(transforms), .parallel = graph.Copy(parallel)});
}

bool HasPartial(const ir::Type& type, const Placement& placement) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind == ir::AxisKind::kReduction && !placement.axes[i].empty()) return true;
  }
  return false;
}

Placement WithoutPartial(const ir::Type& type, Placement placement) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind == ir::AxisKind::kReduction) placement.axes[i] = {};
  }
  return placement;
}

std::vector<Types> ValueTypes(const ir::Type& type, const Placement& placement) {
  std::vector<Types> types;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind != ir::AxisKind::kReduction) types.push_back(placement.axes[i]);
  }
  return types;
}

Placement FromValueTypes(const ir::Type& type, const ir::Mesh* mesh, const std::vector<Types>& types) {
  Placement placement = Replicated(mesh, type);
  size_t next = 0;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind != ir::AxisKind::kReduction) placement.axes[i] = types[next++];
  }
  return placement;
}

mesh::Sharding ToSharding(const ir::Type& type, const Placement& placement) {
  mesh::Sharding sharding = {placement.mesh->mesh, ValueTypes(type, placement), {}};
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind != ir::AxisKind::kReduction) continue;
    sharding.partial.insert(sharding.partial.end(), placement.axes[i].begin(), placement.axes[i].end());
  }
  std::ranges::sort(sharding.partial);
  return sharding;
}

}  // namespace hir::fusion
