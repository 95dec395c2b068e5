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
// All beside the IR that makes an object: LLVM's version, and what it is told.
std::string CompilerIdentity();

}  // namespace hir::codegen::cpu
