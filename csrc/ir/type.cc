#include "csrc/ir/type.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::ir {

using base::Append;
using base::Cat;

bool Equal(const Type& a, const Type& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case TypeKind::kIndex: return true;
    case TypeKind::kEvent: return a.count == b.count;
    case TypeKind::kScalar: return a.dtype == b.dtype;
    case TypeKind::kTensor: break;
  }
  return a.dtype == b.dtype &&
         std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
                    [](const Axis& x, const Axis& y) { return x.kind == y.kind && Equal(x.extent, y.extent); });
}

std::string ToString(const Axis& axis) {
  switch (axis.kind) {
    case AxisKind::kIteration: return ToString(axis.extent);
    case AxisKind::kReduction: return Cat("r:", ToString(axis.extent));
    case AxisKind::kBroadcast: return axis.extent->IsConst(1) ? "b" : Cat("b:", ToString(axis.extent));
  }
  HIR_CHECK(false);
  return {};
}

std::string ToString(const Type& type) {
  switch (type.kind) {
    case TypeKind::kIndex: return "index";
    case TypeKind::kEvent: return Cat("event[", type.count, "]");
    case TypeKind::kScalar: return std::string(DTypeName(type.dtype));
    case TypeKind::kTensor: break;
  }
  std::string out = Cat(DTypeName(type.dtype), "[");
  for (size_t i = 0; i < type.axes.size(); ++i) Append(out, i == 0 ? "" : ", ", ToString(type.axes[i]));
  out += ']';
  return out;
}

std::vector<Axis> ValueAxes(const Type& type) {
  std::vector<Axis> axes;
  for (const Axis& axis : type.axes) {
    if (axis.kind != AxisKind::kReduction) axes.push_back(axis);
  }
  return axes;
}

int LogicalIndex(const Type& type, int axis) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].kind == AxisKind::kReduction) continue;
    if (axis-- == 0) return static_cast<int>(i);
  }
  HIR_CHECK(false);
  return -1;
}

namespace {
constexpr int64_t kElementBytesMax = 8;
}  // namespace

Status CheckType(const Type& type) {
  if (type.kind == TypeKind::kEvent && (type.count < 1 || type.count > kEventsMax)) {
    return InvalidArgument(Cat(ToString(type), ": an event array holds 1 to ", kEventsMax, " events"));
  }
  if (type.kind != TypeKind::kTensor) return {};
  if (std::ssize(type.axes) > kAxesMax) {
    return ResourceExhausted(Cat("a tensor has ", type.axes.size(), " axes; the limit is ", kAxesMax));
  }
  // An extent of 0 counts as 1, so that strides fit too; an element as 8 bytes, so that it can be cast.
  int64_t bytes = kElementBytesMax;
  for (const Axis& axis : type.axes) {
    if (!axis.extent->IsConst()) continue;
    if (axis.extent->value < 0) {
      return InvalidArgument(Cat(ToString(type), ": extent ", axis.extent->value, " is negative"));
    }
    const auto product = base::CheckedMul(bytes, std::max<int64_t>(axis.extent->value, 1));
    if (!product) return InvalidArgument(Cat(ToString(type), " has more than 2^60 - 1 elements"));
    bytes = *product;
  }
  return {};
}

bool Equal(const Layout& a, const Layout& b) {
  const auto same_step = [](const LoopTransform& x, const LoopTransform& y) {
    return x.kind == y.kind && x.axis == y.axis && (x.kind == LoopTransform::Kind::kMerge || x.factor == y.factor);
  };
  if ((a.mesh == nullptr) != (b.mesh == nullptr)) return false;
  return (a.mesh == nullptr || a.mesh->mesh == b.mesh->mesh) &&
         std::equal(a.transforms.begin(), a.transforms.end(), b.transforms.begin(), b.transforms.end(), same_step) &&
         std::equal(a.parallel.begin(), a.parallel.end(), b.parallel.begin(), b.parallel.end());
}

std::string ToString(const Layout& layout) {
  std::string out;
  if (layout.mesh != nullptr) Append(out, ", mesh=@", layout.mesh->name);
  for (const LoopTransform& step : layout.transforms) {
    switch (step.kind) {
      case LoopTransform::Kind::kOuterSplit: Append(out, ", outer_split(", step.axis, ", ", step.factor, ")"); break;
      case LoopTransform::Kind::kInnerSplit: Append(out, ", inner_split(", step.axis, ", ", step.factor, ")"); break;
      case LoopTransform::Kind::kMerge: Append(out, ", merge(", step.axis, ")"); break;
    }
  }
  for (size_t i = 0; i < layout.parallel.size(); ++i) {
    if (layout.parallel[i] == mesh::ParallelType::kSerial) continue;
    Append(out, ", parallelize(", i, ", ", mesh::ParallelTypeName(layout.parallel[i]), ")");
  }
  return out.empty() ? out : out.substr(2);
}

}  // namespace hir::ir
