#include "host_ir/rank/cuda/cuda_backends.h"

#include <utility>

#include "csrc/device/cuda/cuda_device.h"

namespace hir::rank {
namespace {

Result<int64_t> NumDevices() { return device::NumCudaDevices(); }

Result<DeviceFacts> Facts(int64_t ordinal) {
  HIR_ASSIGN(const device::CudaFacts facts, device::CudaFactsOf(ordinal));
  return DeviceFacts{.model = facts.model,
                     .target = {.kind = codegen::Target::Kind::kGpu,
                                .architecture = facts.architecture,
                                .multiprocessors = facts.multiprocessors,
                                .shared_bytes = facts.shared_bytes_per_block},
                     .memory_bytes = facts.memory_bytes};
}

Result<std::unique_ptr<device::Device>> MakeDevice(const DeviceOptions& options) {
  return device::OpenCudaDevice(
      {.ordinal = options.ordinal, .memory_bytes_max = options.memory_bytes_max});
}

Result<std::unique_ptr<comm::Communicator>> MakeCommunicator(const CommOptions&, comm::Rendezvous&,
                                                             device::Device&) {
  return Unimplemented("this build has no NCCL: GPUs cannot communicate");
}

Result<std::unique_ptr<device::KernelSource>> LoadKernels(std::span<const codegen::Artifact>,
                                                          device::Device&) {
  return Unimplemented("this build has no code generation for GPUs");
}

}  // namespace

Backends CudaBackends() {
  Backends backends;
  backends.kind = "cuda";
  backends.uses_host_memory = false;
  backends.num_devices = &NumDevices;
  backends.facts_of = &Facts;
  backends.make_device = &MakeDevice;
  backends.copy_from_host = &device::CopyFromHost;
  backends.copy_to_host = &device::CopyToHost;
  backends.make_communicator = &MakeCommunicator;
  backends.load_kernels = &LoadKernels;
  backends.make_libraries = [](device::Device&,
                               int) -> Result<std::unique_ptr<host::LibrarySource>> {
    return Unimplemented("this build has no cuBLASLt");
  };
  backends.make_builtins = [](device::Device&) -> Result<std::unique_ptr<device::KernelSource>> {
    return Unimplemented("this build has no built-in kernels for GPUs");
  };
  backends.make_compiler = []() -> CompileKernels {
    return [](const codegen::KernelPlan&) -> Result<codegen::Artifact> {
      return Unimplemented("this build has no code generation for GPUs");
    };
  };
  return backends;
}

}  // namespace hir::rank
