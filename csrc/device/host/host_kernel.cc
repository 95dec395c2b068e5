#include "csrc/device/host/host_kernel.h"

#include <utility>

#include "csrc/base/check.h"

namespace hir::device {

HostKernel::HostKernel(Options options) : options_(std::move(options)) {
  HIR_CHECK(options_.function != nullptr);
  HIR_CHECK(options_.grain > 0);
}

}  // namespace hir::device
