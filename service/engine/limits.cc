#include "service/engine/limits.h"

#include <algorithm>

namespace hir::service {
namespace {

constexpr int64_t kChunkEnvelopeBytes = 1024;  // What a message may hold beside a chunk.
// Shares of the memory: all of them full at once leave some for the daemon, its processes and the system.
constexpr int64_t kTensorsPercent = 50;
constexpr int64_t kCpuDevicesPercent = 30;  // For what runs allocate beside their inputs and outputs.
constexpr int64_t kStagingPercent = 25;     // With devices that have memory of their own, in place of those two.
constexpr int64_t kRequestsPercent = 5;
constexpr int64_t kTransportPercent = 5;
constexpr int64_t kPlannersPercent = 5;
static_assert(kTensorsPercent + kCpuDevicesPercent + kRequestsPercent + kTransportPercent + kPlannersPercent <= 95);
// More than that serves nobody; less than the least holds no message.
constexpr int64_t kRequestBytesMost = int64_t{256} << 20;
constexpr int64_t kTransportBytesLeast = int64_t{64} << 20;
constexpr int64_t kPlannerBytesLeast = int64_t{256} << 20;  // Of each; a program rarely takes more.

int64_t Percent(const Machine& machine, int64_t percent) { return machine.memory_bytes / 100 * percent; }

}  // namespace

Limits Resolved(Limits limits, const Machine& machine) {
  const bool own_memory = machine.device_memory_bytes > 0;
  if (limits.tensor_bytes_max == 0) {
    limits.tensor_bytes_max = own_memory ? machine.device_memory_bytes : Percent(machine, kTensorsPercent);
  }
  if (limits.device_bytes_max == 0 && machine.num_cpu_devices > 0) {
    limits.device_bytes_max = std::max<int64_t>(1, Percent(machine, kCpuDevicesPercent) / machine.num_cpu_devices);
  }
  if (limits.recycled_bytes_max == 0) limits.recycled_bytes_max = std::max<int64_t>(1, limits.tensor_bytes_max / 4);
  limits.chunk_bytes_max = std::min(limits.chunk_bytes_max, limits.message_bytes_max - kChunkEnvelopeBytes);
  if (limits.staging_bytes_max == 0) limits.staging_bytes_max = Percent(machine, kStagingPercent);
  if (limits.requests_bytes_max == 0)
    limits.requests_bytes_max = std::clamp<int64_t>(Percent(machine, kRequestsPercent), 1, kRequestBytesMost);
  if (limits.transport_bytes_max == 0) {
    limits.transport_bytes_max =
        std::clamp(Percent(machine, kTransportPercent), kTransportBytesLeast, kRequestBytesMost);
  }
  if (limits.planner_bytes_max == 0) {
    limits.planner_bytes_max = std::max(Percent(machine, kPlannersPercent) / limits.planners, kPlannerBytesLeast);
  }
  // There is always room for who is not yet here.
  if (limits.principal_bytes_max == 0) limits.principal_bytes_max = limits.tensor_bytes_max;
  if (limits.principal_tensors_max == 0) limits.principal_tensors_max = limits.tensors_max - limits.tensors_max / 8;
  if (limits.principal_sessions_max == 0) limits.principal_sessions_max = limits.sessions_max - limits.sessions_max / 8;
  if (limits.setup_timeout_ms == 0) limits.setup_timeout_ms = own_memory ? 60000 : 10000;
  // A run that is ended takes the mesh with it: that costs a second, and on GPUs what all have there.
  if (limits.cancel_grace_ms == 0) limits.cancel_grace_ms = own_memory ? limits.run_timeout_ms : 1000;
  return limits;
}

}  // namespace hir::service
