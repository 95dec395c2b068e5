#include "host_ir/rank/cpu/cpu_backends.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/disk_cache.h"
#include "csrc/device/host/host_device.h"
#include "host_ir/rank/cpu/libraries.h"
#include "host_ir/rank/joined_kernels.h"
#include "multidevice/comm/ucx/ucx.h"

namespace hir::rank {
namespace {

Result<int64_t> NumThreads() { return static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency())); }

Result<DeviceFacts> Facts(int64_t) { return DeviceFacts{.model = "CPU"}; }

Status CopyFromHost(device::Device&, device::Buffer dst, std::span<const std::byte> src) {
  if (!src.empty()) std::memcpy(dst.data, src.data(), src.size());
  return {};
}

Status CopyToHost(device::Device&, std::span<std::byte> dst, device::Buffer src) {
  if (!dst.empty()) std::memcpy(dst.data(), src.data, dst.size());
  return {};
}

Result<std::unique_ptr<device::Device>> MakeDevice(const DeviceOptions& options) {
  device::HostDeviceOptions host;
  host.name = base::Cat("cpu:", options.rank);
  host.num_threads = options.num_threads;
  if (options.memory_bytes_max > 0) host.memory_bytes_max = options.memory_bytes_max;
  return device::CreateHostDevice(host);
}

Result<std::unique_ptr<comm::Communicator>> MakeCommunicator(const CommOptions& options, comm::Rendezvous& rendezvous,
                                                             device::Device&) {
  return comm::CreateUcx({.rank = options.rank,
                          .size = options.size,
                          .absent = options.absent,
                          .generation = options.generation,
                          .setup_timeout = options.setup_timeout,
                          .op_timeout = options.op_timeout},
                         rendezvous);
}

Result<std::unique_ptr<device::KernelSource>> LoadKernels(std::span<const codegen::Artifact> artifacts,
                                                          device::Device&) {
  auto joined = std::make_unique<JoinedKernels>();
  for (const codegen::Artifact& artifact : artifacts) {
    HIR_ASSIGN(auto source, codegen::cpu::Load(artifact));
    joined->Add(artifact.kernels, std::move(source));
  }
  return std::unique_ptr<device::KernelSource>(std::move(joined));
}

CompileKernels MakeCompiler() {
  codegen::cpu::Compiler::Options options;
  options.cache_directory = codegen::DefaultCacheDirectory();
  auto compiler = std::make_shared<codegen::cpu::Compiler>(std::move(options));
  return [compiler](const codegen::KernelPlan& plan) { return compiler->Compile(plan); };
}

}  // namespace

Backends CpuBackends() {
  Backends backends;
  backends.kind = "cpu";
  backends.num_devices = &NumThreads;
  backends.facts_of = &Facts;
  backends.make_device = &MakeDevice;
  backends.copy_from_host = &CopyFromHost;
  backends.copy_to_host = &CopyToHost;
  backends.make_communicator = &MakeCommunicator;
  backends.load_kernels = &LoadKernels;
  backends.make_libraries = [](device::Device&, int num_threads) {
    return Result<std::unique_ptr<host::LibrarySource>>(MakeCpuLibraries(num_threads));
  };
  backends.make_compiler = &MakeCompiler;
  backends.on_out_of_memory = &codegen::cpu::OnOutOfMemory;
  return backends;
}

}  // namespace hir::rank
