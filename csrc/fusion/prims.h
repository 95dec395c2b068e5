// The primitive scalar operations and the reductions as enums and as rows; the tables are in prims.def.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hir::fusion {

enum class Prim : uint8_t {
#define PRIM(Name, ...) k##Name,
#include "csrc/fusion/prims.def"
};

// The cheapest first.
enum class PrimCost : uint8_t {
  kPlain,  // A few instructions.
  kRoot,   // A function, but an instruction that takes as long as a division.
  kShort,  // A function of the time that four bytes take to pass through memory.
  kLong,   // A function of several times that.
};

struct PrimInfo {
  std::string_view name;
  int operands;
  PrimCost cost;
  // The function of the C library that it is on doubles; with an f behind it on floats (erfinv and erfcinv as CUDA has
  // them). Empty where there is none.
  std::string_view library;
  // Texts for code generators; empty where it takes more than one operator, function or instruction.
  std::string_view c_floats, c_integers, llvm_floats, llvm_integers;
};

inline constexpr PrimInfo kPrims[] = {
#define PRIM(Name, name, operands, cost, floats, integers, c_floats, c_integers, llvm_floats, llvm_integers) \
  {name, operands, PrimCost::cost, "", c_floats, c_integers, llvm_floats, llvm_integers},
#define LIBRARY(Name, name, operands, cost, function, integers, c_integers, llvm_floats) \
  {name, operands, PrimCost::cost, #function, "", c_integers, llvm_floats, ""},
#include "csrc/fusion/prims.def"
};

constexpr const PrimInfo& InfoOf(Prim prim) { return kPrims[static_cast<size_t>(prim)]; }
// Worth computing once.
constexpr bool IsFunction(Prim prim) { return InfoOf(prim).cost != PrimCost::kPlain; }

enum class ReduceKind : uint8_t {
#define REDUCTION(Name, ...) k##Name,
#include "csrc/fusion/prims.def"
};

struct ReduceInfo {
  std::string_view name;
  std::string_view c_name;  // The type in the prelude of GPU kernels.
  Prim combine;
  double neutral;  // Of floats; prim_eval.h has that of integers.
};

inline constexpr ReduceInfo kReductions[] = {
#define REDUCTION(Name, name, combine, neutral) {name, #Name, Prim::combine, neutral},
#include "csrc/fusion/prims.def"
};

constexpr const ReduceInfo& InfoOf(ReduceKind kind) { return kReductions[static_cast<size_t>(kind)]; }

}  // namespace hir::fusion
