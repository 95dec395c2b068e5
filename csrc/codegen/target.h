// What kernels are planned for: the kind of device, and the sizes that are known.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hir::codegen {

// A value. Plans for equal targets and sizes are equal.
struct Target {
  enum class Kind : uint8_t { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  // Of GPUs; 0 elsewhere.
  int architecture = 0;      // 90: compute capability 9.0.
  int multiprocessors = 0;   // Of the smallest device that will run the plan.
  int64_t shared_bytes = 0;  // The most that a block may have.
  bool cudnn = false;        // All devices have it, for fused attention.

  bool operator==(const Target&) const = default;
};

// An H200, for plans that are made where there is none: tests, tools.
inline constexpr Target kHopper = {
    .kind = Target::Kind::kGpu, .architecture = 90, .multiprocessors = 132, .shared_bytes = 227 * 1024, .cudnn = true};

// Values of symbols, where they are known. They only choose among schedules: a plan is right for all sizes that
// meet its guards.
using Sizes = std::map<std::string, int64_t>;

}  // namespace hir::codegen
