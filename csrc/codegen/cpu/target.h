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

// Whether its cores have masks: then a masked access costs what another does.
inline bool HasMasks(const Target& target) { return target.vector_bytes == 64; }

// Whether its cores read fastest what lies in a row: AMD's. Sums of rows of 16 KiB, two cores each, share of triad: a
// row from its start .79 to .87, in four places at once .52 to .67, with the row after the next asked for .64 to .71
// (Zen 4); .75, .84 and 1.02 (a Xeon). Sums of columns, four rows side by side .81 to .84, one row in four places with
// the row after the next asked for .60 (Zen 5); share of reading alone, four rows .93, eight .98 (Zen 4).
inline bool ReadsBestInOrder(const Target& target) { return target.cpu.starts_with("znver"); }

// Whether a row to come is asked for by all phases of the one before, into the first level, and not by the last alone:
// Zen 5's, which has 48 KiB there. Rows of 4096, two cores, share of triad: layer norm of float32 .77 to .84, of
// bfloat16 .87 to .89, RMS norm .86 to .88, softmax .65 to .80.
inline bool AsksInEveryPhase(const Target& target) { return target.cpu == "znver5"; }

// Instructions an element above which loops that only store are four registers wide, so that long chains have others
// beside them: fewer where the units for floating point look no further ahead than 64 instructions, AMD's. One core of
// Zen 4, a chain in bfloat16: 26.1 GB/s above 40, 24.5 above 64; bias and GELU 8.9 and 8.0. A Xeon's gains nothing.
inline size_t LongChain(const Target& target) { return target.cpu.starts_with("znver") ? 40 : 64; }

}  // namespace hir::codegen::cpu
