// How the parts of a function belong together, and its first lines.
#include "csrc/codegen/gpu/emitter.h"

namespace hir::codegen::gpu {

Emitter::Emitter(const LoopNest& nest, const Options& options)
    : math(pool),
      arguments(nest),
      dependences(code, math, vector),
      conditions(pool, vector, arguments, dependences, options.sizes),
      guards(math, vector, dependences, conditions),
      places(math, vector, arguments, dependences, conditions, guards),
      loads(math, vector, dependences, conditions, guards, places),
      indices(code, math, vector, arguments, dependences, conditions, guards, options.narrow),
      values(code, math, vector, arguments, dependences, guards, indices, places, loads, loaded, options.fast),
      stores(code, math, arguments, guards, indices, places, values),
      lanes(code, vector, guards, places, indices, loaded, values, stores) {
  code.Line("typedef ", options.narrow ? "int" : "i64", " ix;");
  code.Line("typedef ", options.narrow ? "u32" : "u64", " ux;");
  code.Line("const int t = TID;");
  arguments.Declare(code);
}

void Emitter::StartRegion(const Region& region) {
  dependences.StartRegion(region);
  loaded.ForgetScalars();
  values.SetInnerRows(-1);
}

}  // namespace hir::codegen::gpu
