// CudaKernel: a function of a loaded cubin, and how it is launched.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/device/cuda/context.h"

namespace hir::device::cuda {

// The parameter block of a kernel: 4 KiB, what every architecture takes.
inline constexpr int kSlotsMax = 512;

class CudaKernel final : public Kernel {
 public:
  CudaKernel(CudaKernelInfo info, CudaKernelFacts facts, CUfunction function, int multiprocessors)
      : info_(std::move(info)), facts_(facts), function_(function), multiprocessors_(multiprocessors) {}

  std::string_view name() const override { return info_.name; }
  const CudaKernelInfo& info() const { return info_; }
  const CudaKernelFacts& facts() const { return facts_; }
  CUfunction function() const { return function_; }
  // How many CTAs run for a launch of `grid`.
  int64_t NumCtas(int64_t grid) const;

 private:
  const CudaKernelInfo info_;
  const CudaKernelFacts facts_;
  const CUfunction function_;
  const int multiprocessors_;
};

Result<std::unique_ptr<KernelSource>> LoadCubin(Context& context, std::string_view cubin,
                                                std::span<const CudaKernelInfo> kernels);

}  // namespace hir::device::cuda
