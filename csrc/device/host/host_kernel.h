// HostKernel: a function in this process, with whatever keeps its code alive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/device/kernel.h"

namespace hir::device {

// Computes the part [begin, end) of a launch's grid. args: the launch's 64-bit slots. Called by
// several threads at once for disjoint parts; must not block.
using HostFunction = void (*)(const int64_t* args, int64_t begin, int64_t end);

class HostKernel final : public Kernel {
 public:
  struct Options {
    std::string name = {};
    HostFunction function = nullptr;
    std::shared_ptr<const void> code = {};  // Kept as long as the kernel; null for linked-in functions.
    int64_t grain = 1;                      // The fewest grid items worth a thread of their own.
  };
  // REQUIRES: function is not null, grain > 0.
  explicit HostKernel(Options options);

  std::string_view name() const override { return options_.name; }
  HostFunction function() const { return options_.function; }
  int64_t grain() const { return options_.grain; }

 private:
  const Options options_;
};

}  // namespace hir::device
