#include "csrc/fusion/passes/choose_execution.h"

#include <algorithm>

namespace hir::fusion {
namespace {

using mesh::ParallelType;

constexpr int64_t kUnknownExtent = 1024;
constexpr size_t kNone = ~size_t{0};
constexpr double kBytesPerCommunication = 1 << 16;  // What could be sent in the time that starting one takes.

double BytesOf(const ir::Value& value) {
  double bytes = static_cast<double>(DTypeBytes(value.type->dtype));
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind != ir::AxisKind::kIteration) continue;
    const Result<int64_t> extent =
        ir::Evaluate(axis.extent, [](std::string_view) { return std::optional(kUnknownExtent); });
    bytes *= static_cast<double>(extent.ok() ? *extent : kUnknownExtent);
  }
  return bytes;
}

// What a mesh dimension splits, and whether into blocks or by dealing.
struct Place {
  size_t axis = kNone;
  bool dealt = false;

  bool operator==(const Place&) const = default;
};

Place PlaceOf(const std::vector<Types>& axes, ParallelType type) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (std::ranges::find(axes[i], type) != axes[i].end()) return {i, axes[i].is_dealt()};
  }
  return {};
}

// Bytes that a rank receives when what splits a tensor of `bytes` `size` ways changes.
double Moved(double bytes, Place from, Place to, int64_t size) {
  if (from == to || from.axis == kNone) return 0;  // Each rank has its part already.
  const double d = static_cast<double>(size);
  return kBytesPerCommunication + bytes * (to.axis == kNone ? (d - 1) / d : (d - 1) / (d * d));
}

class Choice {
 public:
  Choice(const AxisMap& map, const std::vector<Placement>& operands, const Placement& wanted)
      : map_(map), result_(*map.op().results[0]), operands_(operands), wanted_(wanted) {
    const ir::Mesh* mesh = ChooseMesh();
    execution_ = Replicated(mesh, *result_.type);
    for (const int i : map_.tensors()) {
      const Placement& p = operands_[static_cast<size_t>(i)];
      const ir::Type& type = *map_.op().operands[static_cast<size_t>(i)]->type;
      // What comes from another mesh comes whole.
      lies_.push_back(p.mesh == mesh ? ValueTypes(type, p) : std::vector<Types>(ir::ValueAxes(type).size()));
    }
    goal_ = wanted_.mesh == mesh ? wanted_.axes : std::vector<Types>(wanted_.axes.size());
  }

  Placement Run() {
    for (size_t k = std::size(mesh::kMeshTypes); k-- > 0;) {
      const ParallelType type = mesh::kMeshTypes[k];
      if (execution_.mesh->mesh.Size(type) == 1) continue;
      const Place place = ChoosePlace(type);
      if (place.axis == kNone) continue;
      execution_.axes[place.axis].push_back(type);
      if (place.dealt) execution_.axes[place.axis].dealt = execution_.mesh->mesh.Size(type);
    }
    for (size_t axis = 0; axis < execution_.axes.size(); ++axis) Order(axis);
    return execution_;
  }

 private:
  // Where all operands are, or where the result belongs: whichever moves less.
  const ir::Mesh* ChooseMesh() const {
    const ir::Mesh* common = nullptr;
    double bytes = 0;
    for (const int i : map_.tensors()) {
      const ir::Mesh* mesh = operands_[static_cast<size_t>(i)].mesh;
      if (common != nullptr && mesh != common) return wanted_.mesh;
      common = mesh;
      bytes += BytesOf(*map_.op().operands[static_cast<size_t>(i)]);
    }
    return common == nullptr || bytes < BytesOf(result_) ? wanted_.mesh : common;
  }

  bool CanAdd(Place place, ParallelType type) const {
    Types types = execution_.axes[place.axis];
    if (types.is_dealt() || (place.dealt && !types.empty())) return false;
    types.push_back(type);
    const int64_t ways = Ways(*execution_.mesh, types);
    if (place.dealt) types.dealt = ways;
    return map_.Fits(place.axis, *execution_.mesh, types) && (types.size() == 1 || IsEvenFor(place.axis, ways));
  }

  // Whether an operand or the goal is split so: two splits that come together only here could refuse sizes that all of
  // them allow.
  bool IsEvenFor(size_t axis, int64_t ways) const {
    const ir::Mesh& mesh = *execution_.mesh;
    if (Ways(mesh, goal_[axis]) % ways == 0) return true;
    for (size_t n = 0; n < lies_.size(); ++n) {
      for (size_t k = 0; k < lies_[n].size(); ++k) {
        if (map_.ResultAxis(map_.tensors()[n], k) == axis && Ways(mesh, lies_[n][k]) % ways == 0) return true;
      }
    }
    return false;
  }

  Place ChoosePlace(ParallelType type) const {
    std::vector<Place> candidates;
    const auto add = [&](Place place) {
      candidates.push_back(place);
      if (place.dealt) candidates.push_back({place.axis, false});  // Where it cannot be dealt.
    };
    const Place goal = PlaceOf(goal_, type);
    if (goal.axis != kNone) add(goal);
    for (size_t n = 0; n < lies_.size(); ++n) {
      const Place lies = PlaceOf(lies_[n], type);
      if (lies.axis == kNone) continue;
      if (const std::optional<size_t> to = map_.ResultAxis(map_.tensors()[n], lies.axis)) add({*to, lies.dealt});
    }
    std::erase_if(candidates, [&](Place place) { return !CanAdd(place, type); });
    for (const Place place : candidates) {
      if (map_.IsReduced(place.axis) && MovedBefore(place, type) == 0) return place;
    }
    Place best;
    // A copy of the work on every rank counts as a byte, so that it loses a tie.
    double least = 1 + MovedBefore({}, type) + MovedBehind({}, type);
    for (const Place place : candidates) {
      const double moved = MovedBefore(place, type) + MovedBehind(place, type);
      if (moved < least) {
        best = place;
        least = moved;
      }
    }
    return best;
  }

  double MovedBefore(Place place, ParallelType type) const {
    double moved = 0;
    for (size_t n = 0; n < lies_.size(); ++n) {
      const int operand = map_.tensors()[n];
      const ir::Value& value = *map_.op().operands[static_cast<size_t>(operand)];
      Place to;
      for (size_t k = 0; k < lies_[n].size() && place.axis != kNone; ++k) {
        if (map_.ResultAxis(operand, k) == place.axis) to = {k, place.dealt};
      }
      const Place from = PlaceOf(lies_[n], type);
      if (from.axis != kNone && ir::ValueAxes(*value.type)[from.axis].kind == ir::AxisKind::kBroadcast)
        continue;  // Everyone has it.
      moved += Moved(BytesOf(value), from, to, execution_.mesh->mesh.Size(type));
    }
    return moved;
  }

  double MovedBehind(Place place, ParallelType type) const {
    const Place goal = PlaceOf(goal_, type);
    const int64_t size = execution_.mesh->mesh.Size(type);
    if (place.axis == kNone || !map_.IsReduced(place.axis)) return Moved(BytesOf(result_), place, goal, size);
    const double d = static_cast<double>(size);
    return kBytesPerCommunication + BytesOf(result_) * (goal.axis == kNone ? 2 : 1) * (d - 1) / d;
  }

  // Puts the types of `axis` into the order in which the result or an operand has them.
  void Order(size_t axis) {
    Types& types = execution_.axes[axis];
    if (types.size() < 2) return;
    std::vector<const Types*> orders = {&goal_[axis]};
    for (size_t n = 0; n < lies_.size(); ++n) {
      for (size_t k = 0; k < lies_[n].size(); ++k) {
        if (map_.ResultAxis(map_.tensors()[n], k) == axis) orders.push_back(&lies_[n][k]);
      }
    }
    for (const Types* order : orders) {
      const auto place = [&](ParallelType t) { return std::ranges::find(*order, t) - order->begin(); };
      if (std::ranges::any_of(types, [&](ParallelType t) { return place(t) == std::ssize(*order); })) continue;
      std::ranges::sort(types, std::less(), place);
      return;
    }
  }

  const AxisMap& map_;
  const ir::Value& result_;
  const std::vector<Placement>& operands_;
  const Placement& wanted_;
  Placement execution_;
  std::vector<std::vector<Types>> lies_;  // One per tensor operand: what splits its value axes on the chosen mesh.
  std::vector<Types> goal_;               // What is to split the result's logical axes, on the chosen mesh.
};

}  // namespace

Placement ChooseExecution(const AxisMap& map, const std::vector<Placement>& operands, const Placement& wanted) {
  return Choice(map, operands, wanted).Run();
}

}  // namespace hir::fusion
