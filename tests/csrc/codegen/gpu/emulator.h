// Runs the CUDA C++ of plans on a CPU, in tests: the same text with other intrinsics, compiled by the machine's C++
// compiler. Threads of a CTA are fibers that meet at barriers and shuffles; CTAs follow each other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/gpu/gpu.h"

namespace hir::codegen::gpu {

// Whether this machine has a C++ compiler to call.
bool CanEmulate();

// Many plans in one compilation.
class Emulator {
 public:
  Emulator();
  ~Emulator();
  // Returns the plan's number.
  Result<int> Add(const KernelPlan& plan);
  // Kernels that are written by hand.
  int Add(const Source& source);
  // Compiles what was added.
  Status Build();
  // Kernel `kernel` of plan `plan` on `args` for a grid of `items`. Misaligned and wild accesses trap.
  void Run(int plan, int kernel, std::span<const int64_t> args, int64_t items);
  const std::string& TextOf(int plan) const { return plans_[static_cast<size_t>(plan)].text; }

 private:
  struct Plan {
    std::string text;
    std::vector<KernelInfo> kernels;
  };
  std::vector<Plan> plans_;
  void* library_ = nullptr;
  std::string directory_;
};

}  // namespace hir::codegen::gpu
