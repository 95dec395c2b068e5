// A program's tensors on a GPU and the time that kernels take on them. Of gpu_kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/csrc/codegen/gpu/gpu/device_runner.h"

namespace hir::codegen::gpu {

// Of samples, each after 256 MiB are written.
struct Times {
  double median_ms = 0, low_ms = 0, high_ms = 0;  // low, high: the quartiles.
};

class GpuBench {
 public:
  // `plan` and `device` outlive it. `shifted`: tensors lie off the boundaries of vectors.
  GpuBench(device::Device& device, const host::ProgramPlan& plan, bool shifted)
      : device_(device), plan_(plan), shifted_(shifted), runner_(device) {}

  // Allocates; draws inputs, the same ones whenever it is asked.
  Status Start();
  // One artifact for each of the plan's kernels.
  Status Load(std::span<const Artifact> artifacts);
  // Runs what is loaded once, on outputs that hold garbage.
  Status Run();
  // Times what is loaded. `first_only`: of each plan the first launch alone.
  Result<Times> Time(int samples, bool first_only = false);
  bool HasSecondLaunches() const;
  // Of every output `most` bytes from its start, its middle and its end.
  using Outputs = std::map<const ir::Value*, std::vector<std::byte>>;
  Result<Outputs> Read(int64_t most);

  int64_t bytes() const { return bytes_; }  // Of inputs and outputs.

 private:
  Result<device::Buffer> BufferOf(const ir::Value* value);

  device::Device& device_;
  const host::ProgramPlan& plan_;
  const bool shifted_;
  DeviceRunner runner_;
  int64_t bytes_ = 0;
  std::map<const ir::Value*, device::Buffer> buffers_;
  std::vector<const ir::Value*> outputs_;
  std::vector<DeviceRunner::Ready> ready_;
  std::unique_ptr<device::Allocation> flush_;
};

// The largest relative Frobenius error of an output; NaN when there is one.
double LargestError(const GpuBench::Outputs& got, const GpuBench::Outputs& want);

}  // namespace hir::codegen::gpu
