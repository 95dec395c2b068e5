// The parts that write one function of a kernel, each on those before it; the schedules (pointwise.cc, rows.cc, ...)
// write the loops around it with them. Private to csrc/codegen/gpu.
#pragma once

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/indices.h"
#include "csrc/codegen/gpu/lanes.h"
#include "csrc/codegen/gpu/loaded.h"
#include "csrc/codegen/gpu/loads.h"
#include "csrc/codegen/gpu/places.h"
#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/stores.h"
#include "csrc/codegen/gpu/values.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

struct Emitter {
  struct Options {
    bool narrow = false;  // 32-bit index arithmetic, under a condition.
    bool fast = false;    // See PrimText.
    // Sizes of symbols, where known: they decide which vectors there are (Conditions::Divisible).
    const Sizes* sizes = nullptr;
  };
  Emitter(const LoopNest& nest, const Options& options);  // `nest` and sizes outlive this.
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  // Makes the variables of `region` known; none has a value yet.
  void StartRegion(const Region& region);

  ir::ExprPool pool;
  // Makes the elements that a schedule computes instead of the nest's.
  fusion::ElementBuilder elements;
  IndexMath math;
  Scopes code;
  Vector vector;
  Arguments arguments;
  Dependences dependences;
  Conditions conditions;
  Guards guards;
  Places places;
  Loads loads;
  Indices indices;
  Loaded loaded;
  Values values;
  Stores stores;
  Lanes lanes;
};

}  // namespace hir::codegen::gpu
