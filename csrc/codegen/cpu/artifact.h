// The bytes of an artifact: a header that says what they are, and object files. Private to csrc/codegen/cpu.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/cpu/target.h"

namespace hir::codegen::cpu {

struct Code {
  Target target;
  std::vector<int64_t> grains;       // One per kernel; k0, k1, ... are their symbols.
  std::vector<std::string> objects;  // Of each kernel.
};

std::string Pack(const Code& code);
Result<Code> Unpack(std::string_view bytes);

// LLVM, in compile.cc and load.cc.
Result<std::string> CompileObject(const std::string& ir, const Target& target);
// An output of so many bytes is stored past the caches, where that pays: whoever reads a smaller one next finds it in
// the last-level cache.
inline constexpr int64_t kStreamedBytesMin = int64_t{64} << 20;
// From how many bytes on this machine stores so: kStreamedBytesMin, or no size that there is. Measured once a process,
// in some milliseconds, when code that asks for it is loaded: kernels read it as @hir_streamed_bytes, so what was
// compiled on one machine is right for another. Thread-safe.
int64_t StreamedBytes();
// The same from the times of writing one memory through the caches and past them.
int64_t StreamedBytesFor(double cached_ms, double streamed_ms);
// All beside the IR that makes an object: LLVM's version, and what it is told.
std::string CompilerIdentity();

}  // namespace hir::codegen::cpu
