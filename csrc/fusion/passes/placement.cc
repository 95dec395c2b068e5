#include "csrc/fusion/passes/placement.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {
namespace {

using base::Cat;
using mesh::ParallelType;
using Kind = ir::LoopTransform::Kind;

// A leaf of a loop domain, as far as placements are concerned.
struct PlacedPart {
  int logical = -1;    // -1: of a merge.
  bool outer = true;   // Made by outer splits alone, or by what comes to the same.
  bool whole = true;   // The axis itself.
  bool inner = true;   // The element's number modulo the extent.
  int64_t extent = 0;  // Where it is a constant; else 0.
};

std::vector<PlacedPart> PlacedPartsOf(const ir::Value& value) {
  std::vector<PlacedPart> parts;
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
    PlacedPart outside = *at;
    PlacedPart inside = *at;
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
  HIR_CHECK(value.layout != nullptr && value.layout->mesh != nullptr && value.type->kind == ir::TypeKind::kTensor);
  const ir::Layout& layout = *value.layout;
  const mesh::DeviceMesh& mesh = layout.mesh->mesh;
  Placement placement = Replicated(layout.mesh, *value.type);
  const std::vector<PlacedPart> parts = PlacedPartsOf(value);
  HIR_CHECK(parts.size() == layout.parallel.size());
  std::vector<bool> blocked(value.type->axes.size(),
                            false);  // A serial part is outside: what follows is no block.
  for (size_t i = 0; i < parts.size(); ++i) {
    const PlacedPart& part = parts[i];
    const ParallelType type = layout.parallel[i];
    const auto logical = static_cast<size_t>(part.logical);
    if (type == ParallelType::kSerial || type == ParallelType::kStream) {
      if (part.logical >= 0 && part.extent != 1) blocked[logical] = true;
      continue;
    }
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

const ir::Layout* LayoutFor(ir::Graph& graph, const ir::Type& type, const Placement& placement,
                            const std::vector<StreamAxis>& streams) {
  std::vector<ir::LoopTransform> transforms;
  std::vector<ParallelType> parallel;
  const auto split = [&](Kind kind, int64_t factor, std::initializer_list<ParallelType> types) {
    transforms.push_back({.kind = kind, .axis = static_cast<int>(parallel.size()), .factor = factor});
    parallel.insert(parallel.end(), types);
  };
  for (size_t axis = 0; axis < type.axes.size(); ++axis) {
    const Types& types = placement.axes[axis];
    if (types.is_dealt()) {
      HIR_CHECK(types.size() == 1 && Ways(*placement.mesh, types) == types.dealt);
      transforms.push_back(
          {.kind = Kind::kInnerSplit, .axis = static_cast<int>(parallel.size()), .factor = types.dealt});
    } else {
      for (const ParallelType t : types) split(Kind::kOuterSplit, placement.mesh->mesh.Size(t), {t});
    }
    ParallelType rest = ParallelType::kSerial;
    bool is_dealt = false;
    for (const StreamAxis& stream : streams) {
      if (stream.axes[0] != static_cast<int>(axis)) continue;
      switch (stream.kind) {
        case StreamAxis::Kind::kWhole: rest = ParallelType::kStream; break;
        case StreamAxis::Kind::kWays: split(Kind::kOuterSplit, stream.factor, {ParallelType::kStream}); break;
        case StreamAxis::Kind::kChunks: split(Kind::kInnerSplit, stream.factor, {ParallelType::kStream}); break;
        case StreamAxis::Kind::kDealt:
          split(Kind::kInnerSplit, stream.factor, {ParallelType::kSerial, ParallelType::kStream});
          is_dealt = true;
          break;
      }
      for (size_t i = 1; i < stream.axes.size(); ++i, ++axis) {
        transforms.push_back({.kind = Kind::kMerge, .axis = static_cast<int>(parallel.size())});
      }
    }
    if (!is_dealt) parallel.push_back(rest);
    if (types.is_dealt()) parallel.push_back(types[0]);
  }
  return graph.New(
      ir::Layout{.mesh = placement.mesh, .transforms = graph.Copy(transforms), .parallel = graph.Copy(parallel)});
}

bool AreCutAlike(const Placement& a, std::span<const int> a_axes, const Placement& b, std::span<const int> b_axes) {
  return std::ranges::equal(
      a_axes, b_axes, [&](int x, int y) { return a.axes[static_cast<size_t>(x)] == b.axes[static_cast<size_t>(y)]; });
}

std::vector<StreamAxis> StreamsWithin(const Placement& placement, std::vector<StreamAxis> streams) {
  std::erase_if(streams, [&](const StreamAxis& stream) {
    for (size_t i = 0; stream.axes.size() > 1 && i < stream.axes.size(); ++i) {
      const Types& types = placement.axes[static_cast<size_t>(stream.axes[i])];
      if (types.is_dealt() || (i > 0 && !types.empty())) return true;
    }
    return false;
  });
  return streams;
}

namespace {

// A value that lies on no mesh is not cut.
Result<Placement> PlacementOrNone(const ir::Value& value) {
  if (value.layout != nullptr && value.layout->mesh != nullptr) return PlacementOf(value);
  return Placement{nullptr, std::vector<Types>(value.type->axes.size())};
}

}  // namespace

void CarryStreamsBack(ir::Graph& graph, const ir::Value& value, const std::function<bool(const ir::Value&)>& may) {
  const Result<std::vector<StreamAxis>> streams = StreamAxesOf(value);
  if (!streams.ok() || streams->empty() || value.def == nullptr || IsComposite(CodeOf(*value.def))) return;
  const StreamMap map(*value.def);
  const Result<Placement> own_placement = PlacementOrNone(value);
  if (!own_placement.ok()) return;
  for (size_t i = 0; i < value.def->operands.size(); ++i) {
    ir::Value& operand = *value.def->operands[i];
    if (operand.type->kind != ir::TypeKind::kTensor || operand.def == nullptr || !may(operand)) continue;
    const Result<std::vector<StreamAxis>> own = StreamAxesOf(operand);
    if (!own.ok() || !own->empty() || IsComposite(CodeOf(*operand.def))) continue;
    const StreamMap maker(*operand.def);
    const Result<Placement> placement = PlacementOrNone(operand);
    if (!placement.ok()) continue;
    std::vector<StreamAxis> carried;
    for (StreamAxis stream : *streams) {
      if (!map.CanCompute(stream)) break;
      const std::vector<int> axes = stream.axes;
      stream.axes = map.Needed(static_cast<int>(i), stream);
      if (std::ranges::count(stream.axes, -1) > 0) break;
      for (int& axis : stream.axes) axis = ir::LogicalIndex(*operand.type, axis);
      if (!maker.CanCompute(stream)) break;
      // Turns are whole of what the value has on a rank: of other parts they may be none.
      if (stream.kind == StreamAxis::Kind::kDealt && !AreCutAlike(*own_placement, axes, *placement, stream.axes)) break;
      carried.push_back(std::move(stream));
    }
    carried = StreamsWithin(*placement, std::move(carried));
    if (carried.empty()) continue;
    operand.layout = LayoutFor(graph, *operand.type, *placement, carried);
    CarryStreamsBack(graph, operand, may);
  }
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
