// What kernels are planned for: the kind of device, and the sizes that are known.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hir::codegen {

// What a measurement tries for kernels that go through rows in order (gpu/carried.cc); 0: what the schedule chooses.
struct RowsInOrder {
  enum class Staging : uint8_t { kChosen, kRegisters, kCopies, kBulk };
  Staging staging = Staging::kChosen;
  int stages = 0;       // Rows that are loaded ahead.
  int threads = 0;      // Of a CTA.
  int ctas_per_sm = 0;  // Resident, and as many parts.
  int strided = 0;      // 1: a part's rows lie apart, those of all parts side by side; 2: together.
  int repack = 0;       // 1: rows stay packed between their phases; 2: as the compiler likes.

  bool operator==(const RowsInOrder&) const = default;
};

// A value. Plans for equal targets and sizes are equal.
struct Target {
  enum class Kind : uint8_t { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  // Of GPUs; 0 elsewhere.
  int architecture = 0;      // 90: compute capability 9.0.
  int multiprocessors = 0;   // Of the smallest device that will run the plan.
  int64_t shared_bytes = 0;  // The most that a block may have.
  bool cudnn = false;        // All devices have it, for fused attention.
  RowsInOrder rows_in_order = {};

  bool operator==(const Target&) const = default;
};

// An H200, for plans that are made where there is none: tests, tools.
inline constexpr Target kHopper = {
    .kind = Target::Kind::kGpu, .architecture = 90, .multiprocessors = 132, .shared_bytes = 227 * 1024, .cudnn = true};

// Values of symbols, where they are known. They only choose among schedules: a plan is right for all sizes that
// meet its guards.
using Sizes = std::map<std::string, int64_t>;

}  // namespace hir::codegen
