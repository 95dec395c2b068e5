// Code for CPUs: kernel plans to object bytes, object bytes to kernels. Without LLVM every call answers
// kUnimplemented.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/cpu/target.h"
#include "csrc/codegen/disk_cache.h"
#include "csrc/device/kernel.h"

namespace hir::codegen::cpu {

// This machine's.
Target HostTarget();

// Compiles plans; equal kernels, whatever their names, are compiled once, also when several threads want them at the
// same time, and once a machine when there is a cache directory. Needs no device and no CPU of the target.
// Thread-safe; a plan's kernels are compiled side by side.
class Compiler {
 public:
  struct Options {
    Target target = HostTarget();
    size_t cached_plans_max = 4096;  // In memory; beyond, the cache is emptied.
    // Empty: none on disk. Made when missing; shared by processes.
    std::string cache_directory = {};
    int64_t cache_bytes_max = int64_t{256} << 20;  // On disk; beyond, the oldest entries go.
  };
  explicit Compiler(Options options)
      : options_(std::move(options)), disk_(options_.cache_directory, options_.cache_bytes_max) {}

  // Errors: kUnimplemented for what no kernel can hold, or without LLVM; kInternal with LLVM's words.
  Result<Artifact> Compile(const KernelPlan& plan);

  const Target& target() const { return options_.target; }
  int64_t num_compiled() const;   // Plans that were in no cache.
  int64_t num_from_disk() const;  // Plans that were read from disk.

 private:
  // The artifact's bytes for `modules`, which are `ir`, and whether they are the disk cache's.
  Result<std::string> ReadOrCompile(const std::string& ir, std::span<const std::string> modules,
                                    std::vector<int64_t> grains, bool& from_disk) const;

  const Options options_;
  const DiskCache disk_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> cache_;  // Artifact bytes by IR text. Guarded by mutex_.
  std::unordered_set<std::string> under_way_;           // IR text being compiled. Guarded by mutex_.
  std::condition_variable done_;                        // One of under_way_ is.
  int64_t num_compiled_ = 0;                            // Guarded by mutex_.
  int64_t num_from_disk_ = 0;                           // Guarded by mutex_.
};

// Has LLVM call `end`, which must not return, where it finds no memory past operator new; else it aborts. Once a
// process.
void OnOutOfMemory(void (*end)());

// The LLVM IR of a plan, before optimisation: a module for each of its kernels "k0", "k1", ... in its order.
Result<std::string> EmitIr(const KernelPlan& plan, const Target& target);

// The kernels of `artifact`, as device::HostKernel, ready to run in this process. The code lives as long as a
// kernel source or
// a shared_ptr of it does. Code memory is never writable and executable at once. Thread-safe.
// Errors: kFailedPrecondition naming both targets when the artifact is for another one; kInvalidArgument for
// other bytes.
Result<std::unique_ptr<device::KernelSource>> Load(const Artifact& artifact);

}  // namespace hir::codegen::cpu
