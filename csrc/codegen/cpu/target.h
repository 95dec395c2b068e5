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

// Whether its cores read fastest what lies in a row, unasked: AMD's. Sums of rows of 16 KiB, two cores each, share of
// triad: a row from its start .79 to .87, in four places at once .52 to .67, with the row after the next asked for .64
// to .71 (Zen 4); .75, .84 and 1.02 (a Xeon).
inline bool ReadsBestInOrder(const Target& target) { return target.cpu.starts_with("znver"); }

}  // namespace hir::codegen::cpu
