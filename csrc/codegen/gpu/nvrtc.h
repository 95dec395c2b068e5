// NVRTC, loaded at run time. Private to csrc/codegen/gpu.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace hir::codegen::gpu {

// What CompileCuda asks for beside the architecture; it makes the cubin, so it is part of a cache's key.
inline constexpr std::string_view kNvrtcOptions = "--std=c++17 --ptxas-options=-v --no-cache --minimal";

// The files that may be NVRTC, the one that is loaded if it can be first.
std::vector<std::string> NvrtcFiles();

// What tells this machine's NVRTC from every other: the one that is loaded, or else the file that will be, which is not
// loaded for it. Errors: kFailedPrecondition: no NVRTC.
Result<std::string> NvrtcIdentity();

// What one compilation gives.
struct Compiled {
  std::string cubin;
  std::string log;  // With the assembler's words on each kernel: registers, spills.
};

// `more`: further options, for measurements. Thread-safe. Errors: kFailedPrecondition: no NVRTC; kInternal: it refuses
// the text, with its words.
Result<Compiled> CompileCuda(const std::string& text, int architecture, std::span<const std::string> more = {});

// What the log says of function `name`.
struct Resources {
  int registers = 0;
  int spill_bytes = 0;
};
Resources ResourcesOf(const std::string& log, const std::string& name);

}  // namespace hir::codegen::gpu
