// NVRTC, loaded at run time. Private to csrc/codegen/gpu.
#pragma once

#include <span>
#include <string>

#include "csrc/base/status.h"

namespace hir::codegen::gpu {

// What one compilation gives.
struct Compiled {
  std::string cubin;
  std::string log;  // With the assembler's words on each kernel: registers, spills.
};

// `more`: further options, for measurements. Thread-safe. Errors: kFailedPrecondition: no NVRTC; kInternal: it refuses the text, with its words.
Result<Compiled> CompileCuda(const std::string& text, int architecture,
                             std::span<const std::string> more = {});

// What the log says of function `name`.
struct Resources {
  int registers = 0;
  int spill_bytes = 0;
};
Resources ResourcesOf(const std::string& log, const std::string& name);

}  // namespace hir::codegen::gpu
