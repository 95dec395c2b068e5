// Kernel: compiled code that a Stream can launch. KernelSource: where an evaluator gets kernels by
// name.
#pragma once

#include <string_view>

#include "csrc/base/status.h"

namespace hir::device {

// Code loaded for one device kind; each device folder has its own subclass. Immutable, thread-safe.
// Must outlive the work launched with it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;
};

// The only view of kernels that an evaluator has: asked at prepare, never in a run.
class KernelSource {
 public:
  virtual ~KernelSource() = default;
  // The kernel `name`, owned by the source and valid as long as it. kNotFound when there is none.
  virtual Result<const Kernel*> Get(std::string_view name) = 0;
};

}  // namespace hir::device
