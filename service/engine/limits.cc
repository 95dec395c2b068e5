#include "service/engine/limits.h"

#include <algorithm>

namespace hir::service {
namespace {

constexpr int64_t kChunkEnvelopeBytes = 1024;  // What a message may hold beside a chunk.
// Of the memory, for what runs on CPUs allocate beside their inputs and outputs; the rest is the system's and ours.
constexpr int64_t kCpuDevicesPercent = 90;

}  // namespace

Limits Resolved(Limits limits, const Machine& machine) {
  const bool own_memory = machine.device_memory_bytes > 0;
  if (limits.tensor_bytes_max == 0) {
    limits.tensor_bytes_max = own_memory ? machine.device_memory_bytes : machine.memory_bytes / 2;
  }
  if (limits.device_bytes_max == 0 && machine.num_cpu_devices > 0) {
    limits.device_bytes_max =
        std::max<int64_t>(1, machine.memory_bytes / 100 * kCpuDevicesPercent / machine.num_cpu_devices);
  }
  if (limits.recycled_bytes_max == 0) limits.recycled_bytes_max = std::max<int64_t>(1, limits.tensor_bytes_max / 4);
  limits.chunk_bytes_max = std::min(limits.chunk_bytes_max, limits.message_bytes_max - kChunkEnvelopeBytes);
  if (limits.staging_bytes_max == 0) limits.staging_bytes_max = machine.memory_bytes / 4;
  if (limits.setup_timeout_ms == 0) limits.setup_timeout_ms = own_memory ? 60000 : 10000;
  return limits;
}

}  // namespace hir::service
