// Where elements lie in memory, and which of them lie there as vectors. Private to csrc/codegen/gpu.
#pragma once

#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

// A load, done where a guard holds.
struct Access {
  const fusion::Element* load = nullptr;
  int guard = 0;
  bool operator==(const Access&) const = default;
};

class Places {
 public:
  using Element = fusion::Element;

  struct Offset {
    const ir::Expr* affine = nullptr;
    std::vector<std::pair<const Element*, const ir::Expr*>> data;  // Indices that are data, with their strides,
    int guard = 0;                                                 // where they may be read.
  };

  // All outlive this.
  Places(IndexMath& math, const Vector& vector, const Arguments& arguments, Dependences& dependences,
         Conditions& conditions, Guards& guards)
      : math_(math),
        vector_(vector),
        arguments_(arguments),
        dependences_(dependences),
        conditions_(conditions),
        guards_(guards) {}

  // Whether `load` reads a tensor, not the result of an accumulator.
  bool IsInMemory(const Element* load) const;
  Offset OffsetOf(int tensor, std::span<const Element* const> index);
  // The same of a load, remembered: it is asked for from every place that may take it in.
  Offset OffsetOf(const Access& access);
  // Where a load lies; null where that is data.
  const ir::Expr* AffineOf(const Access& access);

  uint64_t VarsOf(const Offset& offset);
  bool IsLane(const Offset& offset) { return dependences_.IsLane(VarsOf(offset)); }
  // Whether a load varies with any of `loops`.
  bool Varies(const Access& access, std::span<const Loop> loops);

  // Whether a vector of elements of `tensor` lies there, its address a multiple of its size: by conditions.
  bool IsVector(const Offset& offset, int tensor);
  bool IsVectorLoad(const Access& access);
  // Where rows begin anywhere: whether its elements lie side by side, as a vector's, but may begin between vectors.
  bool IsAcrossVectors(const Access& access);
  bool IsVectorStore(const Store& store) { return IsVector(OffsetOf(store.tensor, store.index), store.tensor); }
  // Bytes of a vector.
  int BytesOf(const Access& access) const;

 private:
  IndexMath& math_;
  const Vector& vector_;
  const Arguments& arguments_;
  Dependences& dependences_;
  Conditions& conditions_;
  Guards& guards_;
  std::unordered_map<const Element*, Offset> load_offsets_;  // As if without a guard.
};

}  // namespace hir::codegen::gpu
