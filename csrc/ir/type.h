// Types and layouts of values. Plain data in the graph's arena.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/ir/expr.h"
#include "multidevice/mesh.h"

namespace hir::ir {

inline constexpr int64_t kAxesMax = 16;       // Axes of one tensor, reduced ones counted.
inline constexpr int64_t kEventsMax = 65536;  // Events of one array.

enum class AxisKind : uint8_t {
  kIteration,  // stored, seen by consumers
  kBroadcast,  // seen by consumers with `extent`, stored once
  kReduction,  // left by the op that reduced it; not stored, unseen by consumers
};

struct Axis {
  AxisKind kind = AxisKind::kIteration;
  const Expr* extent = nullptr;  // kBroadcast: 1, or what it is expanded to. kReduction: how many were reduced.
};

enum class TypeKind : uint8_t {
  kTensor,  // "f32[i0, 4096]"
  kScalar,  // "f64": one number on the host
  kIndex,   // "index": a loop index of a host program
  kEvent,   // "event[4]"
};

struct Type {
  TypeKind kind = TypeKind::kTensor;
  DType dtype = DType::kFloat32;    // kTensor, kScalar.
  std::span<const Axis> axes = {};  // kTensor; reduction axes count.
  int64_t count = 0;                // kEvent: how many.
};

bool Equal(const Type& a, const Type& b);  // Extents compared by contents.
std::string ToString(const Axis& axis);
std::string ToString(const Type& type);
// Errors: kInvalidArgument for a negative constant extent or constant extents of more elements
// than int64 counts bytes of the largest type of; kResourceExhausted for too many axes.
Status CheckType(const Type& type);

// The axes that consumers see: all but the reduced ones.
std::vector<Axis> ValueAxes(const Type& type);
// The index in type.axes of value axis `axis`. REQUIRES: 0 <= axis < ValueAxes(type).size().
int LogicalIndex(const Type& type, int axis);

// One step from the logical axes to the loop domain; axes are numbered as they are when the step is taken.
struct LoopTransform {
  enum class Kind : uint8_t { kOuterSplit, kInnerSplit, kMerge };
  Kind kind = Kind::kOuterSplit;
  int axis = 0;        // Splits: becomes axis and axis + 1. Merge: axis and axis + 1 become axis.
  int64_t factor = 1;  // kOuterSplit: the extent left at `axis`. kInnerSplit: the extent at `axis` + 1.
};

// A mesh under its name in one graph.
struct Mesh {
  std::string name;  // "m", without the @.
  mesh::DeviceMesh mesh;
};

// Where a tensor lies, on which devices and which part of it on each, and over which loop axes the host goes through it
// when it is computed (parallel type stream). A null layout is not decided yet.
struct Layout {
  // Null: where it lies is not decided, only its stream axes are, of the part that a rank will hold.
  const Mesh* mesh = nullptr;
  std::span<const LoopTransform> transforms = {};     // From the logical axes (reduced ones count), in order.
  std::span<const mesh::ParallelType> parallel = {};  // One per leaf of the loop domain.
};

// Equal mesh, shards and stream axes.
bool Equal(const Layout& a, const Layout& b);
// "mesh=@m, outer_split(1, 4), parallelize(1, mesh_x)": the mesh where there is one, steps in order, parallel axes.
std::string ToString(const Layout& layout);

}  // namespace hir::ir
