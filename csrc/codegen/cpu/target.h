// The CPU that code is for.
#pragma once

#include <string>

namespace hir::codegen::cpu {

// A value. Code runs only on a CPU of an equal target: features are named one by one.
struct Target {
  std::string cpu;       // LLVM's name, for instruction costs.
  std::string features;  // "+avx2,+fma,...": what the code may use; sorted.
  int vector_bytes = 16;
  bool fma = false;
  bool half = false;  // Converts float16 in hardware.

  bool operator==(const Target&) const = default;
};

}  // namespace hir::codegen::cpu
