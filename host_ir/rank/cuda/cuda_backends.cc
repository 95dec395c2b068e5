#include "host_ir/rank/cuda/cuda_backends.h"

#include <memory>
#include <optional>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/codegen/library/cudnn/cudnn.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/cuda_libraries.h"
#include "host_ir/rank/joined_kernels.h"
#include "multidevice/comm/nccl/nccl.h"
#include "multidevice/comm/peer/peer_memory.h"

namespace hir::rank {
namespace {

namespace gpu = codegen::gpu;

// Fused attention is for tensor cores that know bf16.
constexpr int kLeastForCudnn = 80;

Result<int64_t> NumDevices() { return device::NumCudaDevices(); }

Result<DeviceFacts> Facts(int64_t ordinal) {
  HIR_ASSIGN(const device::CudaFacts facts, device::CudaFactsOf(ordinal));
  return DeviceFacts{.model = facts.model,
                     .uuid = facts.uuid,
                     .target = {.kind = codegen::Target::Kind::kGpu,
                                .architecture = facts.architecture,
                                .multiprocessors = facts.multiprocessors,
                                .shared_bytes = facts.shared_bytes_per_block,
                                .cudnn = facts.architecture >= kLeastForCudnn && codegen::library::LoadCudnn().ok()},
                     .memory_bytes = facts.memory_bytes};
}

Result<std::unique_ptr<device::Device>> MakeDevice(const DeviceOptions& options) {
  return device::OpenCudaDevice({.ordinal = options.ordinal, .memory_bytes_max = options.memory_bytes_max});
}

// A cubin that any process may have compiled before.
Result<std::string> CompileText(std::string_view text, int architecture) {
  static const codegen::DiskCache cache(codegen::DefaultCacheDirectory(), gpu::Compiler::Options().cache_bytes_max);
  const auto key = [&]() -> Result<std::string> {
    HIR_ASSIGN(const std::string compiler, gpu::NvrtcIdentity());
    return base::Cat("cubin of a text\n", compiler, "\n", gpu::kNvrtcOptions, "\n", architecture, "\n", text);
  };
  HIR_ASSIGN(const std::string known, key());
  if (std::optional<std::string> cubin = cache.Read(known)) return *std::move(cubin);
  HIR_ASSIGN(gpu::Compiled compiled, gpu::CompileCuda(std::string(text), architecture));
  HIR_ASSIGN(const std::string made, key());  // By the compiler that was loaded.
  cache.Write(made, compiled.cubin);
  return std::move(compiled.cubin);
}

// Null where the ranks do not reach each other's memory: NCCL does all then.
Result<std::shared_ptr<comm::PeerMemory>> MakePeers(const CommOptions& options, comm::Rendezvous& rendezvous,
                                                    device::Device& device) {
  if (!options.peer_memory || options.size == 1) return std::shared_ptr<comm::PeerMemory>();
  auto peers = comm::PeerMemory::Create({.rank = options.rank,
                                         .size = options.size,
                                         .absent = options.absent,
                                         .generation = options.generation,
                                         .setup_timeout = options.setup_timeout,
                                         .op_timeout = options.op_timeout,
                                         .device = &device,
                                         .compile = &CompileText},
                                        rendezvous);
  if (peers.ok()) return std::shared_ptr<comm::PeerMemory>(*std::move(peers));
  if (peers.status().code() == Code::kUnavailable) return std::shared_ptr<comm::PeerMemory>();
  return peers.status();
}

Result<std::unique_ptr<comm::Communicator>> MakeCommunicator(const CommOptions& options, comm::Rendezvous& rendezvous,
                                                             device::Device& device) {
  HIR_ASSIGN(const std::shared_ptr<comm::PeerMemory> peers, MakePeers(options, rendezvous, device));
  return comm::CreateNccl({.rank = options.rank,
                           .size = options.size,
                           .absent = options.absent,
                           .generation = options.generation,
                           .setup_timeout = options.setup_timeout,
                           .op_timeout = options.op_timeout,
                           .nvlink_multicast = options.nvlink_multicast,
                           .device = &device,
                           .native_stream = &device::NativeStream,
                           .begin_work = &device::BeginWork,
                           .work_mark = &device::WorkMark,
                           .is_capturing = &device::IsCapturing,
                           .peers = peers},
                          rendezvous);
}

Result<std::unique_ptr<device::KernelSource>> LoadKernels(std::span<const codegen::Artifact> artifacts,
                                                          device::Device& device) {
  auto joined = std::make_unique<JoinedKernels>();
  for (const codegen::Artifact& artifact : artifacts) {
    HIR_ASSIGN(auto source, gpu::Load(artifact, device));
    joined->Add(artifact.kernels, std::move(source));
  }
  return std::unique_ptr<device::KernelSource>(std::move(joined));
}

CompileKernels MakeCompiler() {
  gpu::Compiler::Options options;
  options.cache_directory = codegen::DefaultCacheDirectory();
  auto compiler = std::make_shared<gpu::Compiler>(options);
  return [compiler](const codegen::KernelPlan& plan) { return compiler->Compile(plan); };
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
  backends.copy_exported = [](device::Device& device, device::Buffer buffer, int exported, CopyWay way) {
    return device::CopyShared(device, buffer, exported, way == CopyWay::kToExported);
  };
  backends.map_exported = [](device::Device& device, int exported, int64_t bytes) {
    auto mapped = device::MapShared(device, exported, bytes);
    if (mapped.ok()) return mapped;
    return Result<std::unique_ptr<device::Allocation>>(InvalidArgument(base::Cat(
        device.name(), ": no memory of a GPU of ", bytes, " bytes that it can reach: ", mapped.status().message())));
  };
  backends.make_communicator = &MakeCommunicator;
  backends.load_kernels = &LoadKernels;
  backends.make_libraries = [](device::Device& device, int) {
    return Result<std::unique_ptr<host::LibrarySource>>(MakeCudaLibraries(device));
  };
  backends.make_compiler = &MakeCompiler;
  backends.warm_compiler = &gpu::WarmCompiler;
  return backends;
}

}  // namespace hir::rank
