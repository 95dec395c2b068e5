// Runs plans of GPU kernels on a GPU, in tests and measurements.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/device/cuda/cuda_device.h"
#include "csrc/fusion/interpret/interpret.h"

namespace hir::codegen::gpu {

// Buffers of values on a device, each with room around it that is watched.
class DeviceRunner {
 public:
  explicit DeviceRunner(device::Device& device) : device_(device) {}

  Status Start() {
    HIR_ASSIGN(stream_, device_.CreateStream());
    return {};
  }
  device::Stream& stream() { return *stream_; }

  // Room for `bytes` at an address that is a multiple of 256, or that plus `shift`; filled with `fill`.
  Result<device::Buffer> Allocate(int64_t bytes, int64_t shift, uint8_t fill) {
    HIR_ASSIGN(auto allocation, device_.Allocate(bytes + 2 * kRedZone + shift));
    const device::Buffer whole = allocation->buffer();
    stream_->Fill(whole, fill, 1);
    allocations_.push_back(std::move(allocation));
    return whole.Slice(kRedZone + shift, bytes);
  }
  Status Upload(device::Buffer to, std::span<const std::byte> from) {
    HIR_TRY(stream_->Synchronize(std::chrono::seconds(60)));
    return device::CopyFromHost(device_, to, from);
  }
  // The bytes of `from` with `around` on either side.
  Result<std::vector<std::byte>> Download(device::Buffer from, int64_t around = 0) {
    HIR_TRY(stream_->Synchronize(std::chrono::seconds(60)));
    const device::Buffer whole = {from.data - around, from.bytes + 2 * around};
    std::vector<std::byte> bytes(static_cast<size_t>(whole.bytes));
    HIR_TRY(device::CopyToHost(device_, bytes, whole));
    return bytes;
  }
  void Forget() { allocations_.clear(); }

  // A plan that is loaded and knows its arguments.
  struct Ready {
    std::unique_ptr<device::KernelSource> kernels;
    std::vector<const device::Kernel*> launches;
    std::vector<std::vector<int64_t>> args;
    std::vector<int64_t> grids;
  };
  Result<Ready> Prepare(const KernelPlan& plan, const Artifact& artifact,
                        const std::map<const ir::Value*, device::Buffer>& buffers, const fusion::SymbolValues& symbols,
                        const std::map<const ir::Value*, int64_t>& scalars) {
    Ready ready;
    HIR_ASSIGN(ready.kernels, Load(artifact, device_));
    std::vector<device::Buffer> workspaces;
    for (const Workspace& workspace : plan.workspaces) {
      HIR_ASSIGN(const int64_t bytes, fusion::ValueOf(workspace.bytes, symbols));
      HIR_ASSIGN(const device::Buffer buffer, Allocate(bytes, 0, 0xa5));
      workspaces.push_back(buffer);
    }
    for (const codegen::Launch& launch : plan.launches) {
      std::vector<int64_t>& args = ready.args.emplace_back();
      const auto pass = [&](device::Buffer buffer) { args.push_back(reinterpret_cast<int64_t>(buffer.data)); };
      for (const ir::Value* input : launch.inputs) pass(buffers.at(input));
      for (const ir::Value* output : launch.outputs) pass(buffers.at(output));
      for (const int workspace : launch.workspaces) pass(workspaces[static_cast<size_t>(workspace)]);
      for (const ir::Expr* extent : launch.extents) {
        HIR_ASSIGN(const int64_t value, fusion::ValueOf(extent, symbols));
        args.push_back(value);
      }
      for (const ir::Value* scalar : launch.scalars) args.push_back(scalars.at(scalar));
      HIR_ASSIGN(const int64_t grid, fusion::ValueOf(launch.grid, symbols));
      ready.grids.push_back(grid);
      HIR_ASSIGN(const device::Kernel* kernel, ready.kernels->Get(launch.kernel));
      ready.launches.push_back(kernel);
    }
    return ready;
  }
  void Launch(const Ready& ready) { Launch(ready, ready.launches.size()); }
  // The first `count` launches.
  void Launch(const Ready& ready, size_t count) {
    for (size_t i = 0; i < count; ++i) stream_->Launch(*ready.launches[i], ready.args[i], ready.grids[i]);
  }

  // A multiple of the 128 bytes of a cache line: what straddles lines is slower to copy.
  static constexpr int64_t kRedZone = 1024;

 private:
  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::Allocation>> allocations_;
};

}  // namespace hir::codegen::gpu
