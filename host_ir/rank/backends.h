// What one rank is built from: its device, and what runs on it. A program (a worker, hostir-eval, a test) picks the
// backends of one kind of device; nothing else knows which kind it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/target.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "host_ir/eval/library.h"
#include "host_ir/host_ops.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::rank {

// Streams of a rank, shared by all its programs.
inline constexpr int kStreams = host::kFirstLoopStream + host::kLoopStreamsMax;

struct DeviceOptions {
  int64_t rank = 0;
  int64_t ordinal = 0;  // Which of this machine's devices of the kind; CPU devices have none.
  int num_threads = 1;
  int64_t memory_bytes_max = 0;  // 0: what the kind takes when nobody says.
};

// What planning, and people, read of a device.
struct DeviceFacts {
  std::string model = {};  // "NVIDIA H200"
  std::string uuid = {};   // 16 bytes; empty: it has none.
  codegen::Target target = {};
  int64_t memory_bytes = 0;  // 0: the machine's own.
};

struct CommOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> absent = {};  // Ranks that are not there, ascending, and in no team.
  int64_t generation = 0;
  base::Nanos setup_timeout = {};
  base::Nanos op_timeout = {};
  bool nvlink_multicast = false;  // Of GPUs (comm::NcclOptions); others have none.
  bool peer_memory = true;        // Of GPUs: what PeerMemory takes goes by it, where ranks reach each other.
};

enum class CopyWay { kFromExported, kToExported };

// Code for one plan of kernels, for the plan's target. Needs no device. Thread-safe.
using CompileKernels = std::function<Result<codegen::Artifact>(const codegen::KernelPlan&)>;

// Everything that is made for a device lives no longer than it. What a build lacks answers kUnimplemented and says so.
struct Backends {
  std::string kind = {};  // "cpu": of the device, and of the code it loads.
  // Whether the device works on the processes' memory: then shards are mapped, and nothing is copied.
  bool uses_host_memory = true;
  // How many devices of the kind this machine has; of CPUs, hardware threads.
  std::function<Result<int64_t>()> num_devices = {};
  // Without opening the device.
  std::function<Result<DeviceFacts>(int64_t ordinal)> facts_of = {};
  std::function<Result<std::unique_ptr<device::Device>>(const DeviceOptions&)> make_device = {};
  // Copies between the processes' memory and the device's; done when they return. REQUIRES: nothing that is queued
  // uses the bytes; as many of them on either side.
  std::function<Status(device::Device&, device::Buffer dst, std::span<const std::byte> src)> copy_from_host = {};
  std::function<Status(device::Device&, std::span<std::byte> dst, device::Buffer src)> copy_to_host = {};
  // The same, and as many bytes, with memory of any device of the kind that another process has exported by a
  // descriptor. Null: that is memory of the host's. Errors: kInvalidArgument: it is no such memory, or this device
  // cannot reach it.
  std::function<Status(device::Device&, device::Buffer, int exported, CopyWay way)> copy_exported = {};
  // The `bytes` of such memory, at an address of the device. Null: that is memory of the host's. Errors: as above.
  std::function<Result<std::unique_ptr<device::Allocation>>(device::Device&, int exported, int64_t bytes)>
      map_exported = {};
  // Collective over the ranks; the rendezvous outlives the communicator.
  std::function<Result<std::unique_ptr<comm::Communicator>>(const CommOptions&, comm::Rendezvous&, device::Device&)>
      make_communicator = {};
  // The kernels of all artifacts, by name.
  std::function<Result<std::unique_ptr<device::KernelSource>>(std::span<const codegen::Artifact>, device::Device&)>
      load_kernels = {};
  // `num_threads`: of one call.
  std::function<Result<std::unique_ptr<host::LibrarySource>>(device::Device&, int num_threads)> make_libraries = {};
  // A compiler that remembers what it compiled.
  std::function<CompileKernels()> make_compiler = {};
  // Does beforehand what the first compilation of a process does once; null where that is little. Needs no device;
  // any thread.
  std::function<Status()> warm_compiler = {};
  // Sets what is called where the compiler finds no memory past operator new, once a process; it must not return. Null:
  // it says so by a Status.
  std::function<void(void (*end)())> on_out_of_memory = {};
};

}  // namespace hir::rank
