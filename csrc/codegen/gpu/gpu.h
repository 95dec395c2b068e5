// Code for GPUs: kernel plans to cubins by NVRTC, cubins to kernels. NVRTC is loaded at run time; no header of it is
// needed to build.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/disk_cache.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"

namespace hir::codegen::gpu {

// Elements of the widest vectors, 8, 4 or 1, that an axis of `size` is made of. Where a symbol's size is known, kernels
// have its vectors, and are quick for sizes alike in it.
constexpr int64_t VectorOfSize(int64_t size) { return size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : 1; }

struct SizeRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

// Sizes of a symbol for which a kernel made for `size` is quick, too: it is right for all. Rows in registers, threads
// and shares of a multiprocessor are chosen from sizes that a plan's guards do not mention. There are eight ranges, a
// factor of 4 each where rows change from a warp's to a block's to more than a multiprocessor holds.
SizeRange SizesLike(int64_t size);

// How one kernel is launched, beside its code.
struct KernelInfo {
  int threads = 0;            // Of a CTA.
  int ctas_per_sm = 0;        // 0: not persistent.
  int64_t items_per_cta = 1;  // Items of the plan's grid.
  int64_t shared_bytes = 0;   // Dynamic shared memory of a CTA.
  bool dependent = false;     // May start before its predecessor ends.
  int num_slots = 0;
  bool operator==(const KernelInfo&) const = default;
};

// The parameters of a kernel's schedule, for whoever measures others than its heuristics choose. 0: as those choose.
struct Tuning {
  std::string schedule;  // "rows", "columns", ...: what it is, never what it is to be.
  int64_t vectors = 0;   // The same: of the longest phase.
  int lanes = 0;         // The same: elements of a vector.
  int threads = 0;       // Of a CTA.
  int rows = 0;          // Of a CTA, of "rows".
  int width = 0;         // Threads along the columns, of "columns".
  int unroll = 0;        // Vectors in flight a thread.
  int ctas_per_sm = 0;   // That the registers allow; an explicit cap, below, goes first.
  int held = 0;          // A row stays in registers: 1, or is read again for each phase: -1. Of "rows".
  int stream = 0;        // Last reads do not stay in cache: 1, or do: -1.
  int keep = 0;  // What is read again stays in the second-level cache meanwhile: 1, or as it happens: -1. Of "rows".
  bool operator==(const Tuning&) const = default;
};

// The CUDA C++ of a plan: kernels "k0", "k1", ... in the plan's order, a text each. `caps`: for each kernel how many
// CTAs of it a multiprocessor is to hold, which limits its registers; 0: what its schedule asks for. `tunings`: one a
// kernel; of kernels of several regions they have no effect.
struct Source {
  std::string prelude;             // What every text starts with.
  std::vector<std::string> parts;  // A kernel each; with `prelude` in front, what is compiled.
  std::vector<KernelInfo> kernels;
  std::vector<int> caps;        // Those used.
  std::vector<Tuning> tunings;  // The same.
};
// Errors: kUnimplemented for what no kernel can hold. REQUIRES: a plan for a GPU.
Result<Source> EmitCuda(const KernelPlan& plan, std::span<const int> caps = {}, std::span<const Tuning> tunings = {});
// The kernels alone, without what every text starts with, under comments that name them, how they run, and what their
// parameters are. For tests and people.
Result<std::string> EmitKernels(const KernelPlan& plan);
// In words, without names: "rows, 512 threads, vectors of 8, ...".
std::string DescribeSchedule(const Source& source, size_t index);

// "13.0". Errors: kFailedPrecondition: no NVRTC on this machine, naming what was tried.
Result<std::string> NvrtcVersion();

// Does beforehand what the first compilation of a process does once: loads NVRTC and runs it on a kernel that does
// nothing. Errors: kFailedPrecondition without NVRTC. Thread-safe.
Status WarmCompiler();

// The contents of an artifact.
struct Code {
  int architecture = 0;
  std::vector<KernelInfo> kernels;
  std::vector<int> registers;          // Per thread, as the compiler said.
  std::vector<int> spill_bytes;        // Of the path that is taken when its conditions hold.
  std::vector<int> caps;               // CTAs a multiprocessor that the registers were limited for.
  std::vector<std::string> schedules;  // In words.
  std::vector<std::string> cubins;
};

// Compiles plans; equal kernels, whatever their names and plans, are compiled once, and once a machine when there is a
// cache directory. Needs no device. Thread-safe; compiles on the caller's thread, and the other kernels of a plan on
// threads that end before it returns.
class Compiler {
 public:
  struct Options {
    int architecture = 90;                         // At least 80. Plans for a target that names one get that one.
    size_t cached_kernels_max = 4096;              // In memory; beyond, the cache is emptied.
    std::string cache_directory;                   // Empty: none on disk. Made when missing; shared by processes.
    int64_t cache_bytes_max = int64_t{256} << 20;  // On disk; beyond, the oldest entries go.
  };
  explicit Compiler(Options options)
      : options_(std::move(options)), disk_(options_.cache_directory, options_.cache_bytes_max) {}

  // `tunings` as of EmitCuda, for measurements.
  // Errors: kUnimplemented for what no kernel can hold; kFailedPrecondition without NVRTC; kInternal with its words.
  Result<Artifact> Compile(const KernelPlan& plan, std::span<const Tuning> tunings = {});

  // Kernels that are written by hand: `names`, one a part of `source`, for `architecture`. Errors: as of plans.
  Result<Artifact> Compile(const Source& source, std::span<const std::string> names, int architecture);

  int64_t num_compiled() const;   // Kernels that were in no cache.
  int64_t num_from_disk() const;  // Kernels that were read from disk.

 private:
  using BuildFn = std::function<Result<Code>(size_t index)>;
  // Parts of `source` that no cache has are made by `build`, on several threads.
  Result<Artifact> Compile(const Source& source, std::vector<std::string> names, int architecture,
                           const BuildFn& build);
  std::optional<std::string> Find(const std::string& key);
  void Keep(const std::string& key, const std::string& bytes, int64_t& counter);

  const Options options_;
  const DiskCache disk_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> cache_;  // Packed kernels by all that makes them. Guarded by mutex_.
  int64_t num_compiled_ = 0;                            // Guarded by mutex_.
  int64_t num_from_disk_ = 0;                           // Guarded by mutex_.
};

Result<Code> Unpack(std::string_view bytes);
// For `explain`, a line a kernel: "k0: rows, 512 threads, ...; 32 registers a thread, ...".
Result<std::vector<std::string>> NotesOf(const Artifact& artifact);

// The kernels of `artifact` on `device`, a GPU of csrc/device/cuda.
// Errors: kInvalidArgument for other bytes, or when the driver refuses them; kFailedPrecondition naming both
// architectures when the device is older than the artifact is for.
Result<std::unique_ptr<device::KernelSource>> Load(const Artifact& artifact, device::Device& device);

}  // namespace hir::codegen::gpu
