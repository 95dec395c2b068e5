// Annotate: one command on a value's layout, checked against the loop domain it applies to.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"

namespace hir::ir {
namespace {

using base::Cat;
using mesh::ParallelType;
using Kind = Annotation::Kind;

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kMesh: return "mesh";
    case Kind::kOuterSplit: return "outer_split";
    case Kind::kInnerSplit: return "inner_split";
    case Kind::kMerge: return "merge";
    case Kind::kParallelize: return "parallelize";
    case Kind::kShard: return "shard";
    case Kind::kStrideOrder: return "stride_order";
  }
  HIR_CHECK(false);
  return {};
}

std::string DomainText(std::span<const Leaf> leaves) {
  std::vector<std::string> extents;
  for (const Leaf& leaf : leaves) extents.push_back(ToString(leaf.extent));
  return Cat("[", base::Join(extents, ", "), "]");
}

// A layout being changed; written back only when the command has succeeded.
struct Draft {
  const Mesh* mesh = nullptr;  // Null: not set yet.
  std::vector<LoopTransform> transforms;
  std::vector<ParallelType> parallel;
};

class Annotator {
 public:
  Annotator(Graph& graph, const Value& value) : graph_(graph), value_(value) {
    draft_.parallel.assign(value.type->axes.size(), ParallelType::kSerial);
    if (value.layout != nullptr) {
      const Layout& layout = *value.layout;
      draft_.mesh = layout.mesh;
      draft_.transforms.assign(layout.transforms.begin(), layout.transforms.end());
      draft_.parallel.assign(layout.parallel.begin(), layout.parallel.end());
    }
    leaves_ = LoopDomain(graph.exprs(), *value.type, draft_.transforms);
  }

  Status Apply(const Annotation& a) {
    if (a.kind == Kind::kMesh) return SetMesh(a);
    if (a.kind == Kind::kShard) return Shard(a);
    HIR_ASSIGN(const size_t axis, LoopAxis(a.axis));
    if (a.kind == Kind::kParallelize) return Parallelize(axis, a.type);
    return a.kind == Kind::kMerge ? Merge(axis) : Split(axis, a.kind, a.factor);
  }

  const Layout* Finish() {
    const bool serial = std::ranges::count(draft_.parallel, ParallelType::kSerial) == std::ssize(draft_.parallel);
    // Splits alone say nothing yet; the next command may.
    if (draft_.mesh == nullptr && serial && draft_.transforms.empty()) return nullptr;
    return graph_.New(Layout{
        .mesh = draft_.mesh, .transforms = graph_.Copy(draft_.transforms), .parallel = graph_.Copy(draft_.parallel)});
  }

 private:
  Result<size_t> LoopAxis(int64_t axis) const {
    const int64_t n = std::ssize(leaves_);
    if (axis < -n || axis >= n) {
      return InvalidArgument(Cat("axis ", axis, " is out of range: the loop domain ", DomainText(leaves_), " has ", n,
                                 n == 1 ? " axis" : " axes"));
    }
    return static_cast<size_t>(axis < 0 ? axis + n : axis);
  }

  Status SetMesh(const Annotation& a) {
    HIR_CHECK(a.mesh != nullptr);
    if (draft_.mesh != nullptr && draft_.mesh != a.mesh) {
      return InvalidArgument(Cat("the value is on @", draft_.mesh->name, " = ", draft_.mesh->mesh.ToString(),
                                 " already, got @", a.mesh->name, " = ", a.mesh->mesh.ToString()));
    }
    draft_.mesh = a.mesh;
    return {};
  }

  Status CheckSerial(size_t axis) const {
    if (draft_.parallel[axis] == ParallelType::kSerial) return {};
    return InvalidArgument(
        Cat("axis ", axis, " is parallel on ", mesh::ParallelTypeName(draft_.parallel[axis]), " already"));
  }

  void Take(const LoopTransform& step) {
    draft_.transforms.push_back(step);
    leaves_ = LoopDomain(graph_.exprs(), *value_.type, draft_.transforms);
  }

  Status CheckLength() const {
    if (std::ssize(draft_.transforms) < kTransformsMax) return {};
    return ResourceExhausted(Cat("the layout has ", kTransformsMax, " splits and merges, which is the limit"));
  }

  Status Split(size_t axis, Kind kind, int64_t factor) {
    HIR_TRY(CheckLength());
    HIR_TRY(CheckSerial(axis));
    if (factor < 1) return InvalidArgument(Cat("factor ", factor, "; it must be at least 1"));
    const bool outer = kind == Kind::kOuterSplit;
    Take({.kind = outer ? LoopTransform::Kind::kOuterSplit : LoopTransform::Kind::kInnerSplit,
          .axis = static_cast<int>(axis),
          .factor = factor});
    draft_.parallel.insert(draft_.parallel.begin() + static_cast<ptrdiff_t>(axis), ParallelType::kSerial);
    return {};
  }

  Status Merge(size_t axis) {
    HIR_TRY(CheckLength());
    if (axis + 1 >= leaves_.size()) {
      return InvalidArgument(
          Cat("axis ", axis, " is the last of ", DomainText(leaves_), "; there is none to merge it with"));
    }
    HIR_TRY(CheckSerial(axis));
    HIR_TRY(CheckSerial(axis + 1));
    Take({.kind = LoopTransform::Kind::kMerge, .axis = static_cast<int>(axis)});
    draft_.parallel.erase(draft_.parallel.begin() + static_cast<ptrdiff_t>(axis));
    return {};
  }

  Status Parallelize(size_t axis, ParallelType type) {
    if (type == ParallelType::kSerial) {
      draft_.parallel[axis] = type;
      return {};
    }
    if (type == ParallelType::kStream) {
      if (draft_.parallel[axis] != type) HIR_TRY(CheckSerial(axis));
      draft_.parallel[axis] = type;
      return {};
    }
    const std::string_view name = mesh::ParallelTypeName(type);
    const auto used = std::find(draft_.parallel.begin(), draft_.parallel.end(), type);
    if (used == draft_.parallel.begin() + static_cast<ptrdiff_t>(axis)) return {};
    if (used != draft_.parallel.end()) {
      return InvalidArgument(Cat(name, " is on axis ", used - draft_.parallel.begin(), " already"));
    }
    HIR_TRY(CheckSerial(axis));
    HIR_TRY(CheckHas(type));
    draft_.parallel[axis] = type;
    const int64_t size = draft_.mesh->mesh.Size(type);
    const Expr* extent = leaves_[axis].extent;
    if (extent->IsConst() && !extent->IsConst(size)) {
      return InvalidArgument(Cat("axis ", axis, " of ", DomainText(leaves_), " has extent ", extent->value, ", but ",
                                 name, " of @", draft_.mesh->name, " has ", size, size == 1 ? " device" : " devices"));
    }
    return Builder::Unify(graph_, extent, graph_.exprs().Const(size),
                          Cat(value_.name, ": loop axis ", axis, " is parallel on ", name, " of @", draft_.mesh->name));
  }

  Status CheckHas(ParallelType type) const {
    if (draft_.mesh == nullptr) return InvalidArgument("the value has no mesh yet; set it first");
    if (draft_.mesh->mesh.Has(type)) return {};
    return InvalidArgument(
        Cat("@", draft_.mesh->name, " = ", draft_.mesh->mesh.ToString(), " has no ", mesh::ParallelTypeName(type)));
  }

  // Splits the outermost part of the axis that nothing is parallel on yet.
  Status Shard(const Annotation& a) {
    const int64_t n = std::ssize(ValueAxes(*value_.type));
    if (a.axis < -n || a.axis >= n) {
      return InvalidArgument(Cat("axis ", a.axis, " is out of range: the value has ", n, n == 1 ? " axis" : " axes"));
    }
    if (!mesh::IsMesh(a.type)) {
      return InvalidArgument(Cat("axis ", a.axis, ": ", mesh::ParallelTypeName(a.type), " is no mesh dimension",
                                 a.type == ParallelType::kStream ? "; use outer_split and parallelize" : ""));
    }
    HIR_TRY(CheckHas(a.type));
    const int logical = LogicalIndex(*value_.type, static_cast<int>(a.axis < 0 ? a.axis + n : a.axis));
    size_t axis = 0;
    while (axis < leaves_.size() &&
           (leaves_[axis].logical != logical || draft_.parallel[axis] != ParallelType::kSerial)) {
      ++axis;
    }
    if (axis == leaves_.size()) {
      return InvalidArgument(Cat("axis ", a.axis, " was merged with another in ", DomainText(leaves_)));
    }
    HIR_TRY(Split(axis, Kind::kOuterSplit, draft_.mesh->mesh.Size(a.type)));
    return Parallelize(axis, a.type);
  }

  Graph& graph_;
  const Value& value_;
  Draft draft_;
  std::vector<Leaf> leaves_;
};

Status SetStrideOrder(Graph& graph, Value& value, std::span<const int64_t> order) {
  const size_t num_axes = ValueAxes(*value.type).size();
  std::vector<bool> seen(num_axes);
  for (const int64_t place : order) {
    if (place >= 0 && static_cast<size_t>(place) < num_axes) seen[static_cast<size_t>(place)] = true;
  }
  if (order.size() != num_axes || std::ranges::find(seen, false) != seen.end()) {
    return InvalidArgument(Cat("[", base::JoinInts(order, ", "), "] is not a permutation of the ", num_axes, " axes"));
  }
  value.stride_order = graph.Copy(order);
  return {};
}

}  // namespace

Status Annotate(Graph& graph, Value& value, const Annotation& annotation) {
  const auto fail = [&](const Status& status) {
    return WithLocation(status.WithContext(Cat(value.name, ": ", KindName(annotation.kind))), annotation.location);
  };
  if (value.type->kind != TypeKind::kTensor) {
    return fail(InvalidArgument(Cat("only a tensor has a layout, this is ", ToString(*value.type))));
  }
  if (annotation.kind == Kind::kStrideOrder) {
    const Status status = SetStrideOrder(graph, value, annotation.order);
    return status.ok() ? status : fail(status);
  }
  Annotator annotator(graph, value);
  if (const Status status = annotator.Apply(annotation); !status.ok()) return fail(status);
  if (const Status status = graph.exprs().status(); !status.ok()) return fail(status);
  value.layout = annotator.Finish();
  return {};
}

Status AnnotateAll(Graph& graph, Value& value, std::span<const Annotation> annotations) {
  value.layout = nullptr;
  value.stride_order = {};
  for (const Annotation& annotation : annotations) HIR_TRY(Annotate(graph, value, annotation));
  return {};
}

}  // namespace hir::ir
