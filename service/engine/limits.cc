#include "service/engine/limits.h"

#include <unistd.h>

#include <algorithm>

namespace hir::service {
namespace {

constexpr int64_t kChunkEnvelopeBytes = 1024;  // What a message may hold beside a chunk.

}  // namespace

Limits Resolved(Limits limits, int64_t device_memory_bytes) {
  const int64_t machine_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (limits.tensor_bytes_max == 0) {
    limits.tensor_bytes_max = device_memory_bytes > 0 ? device_memory_bytes : machine_bytes / 2;
  }
  if (limits.recycled_bytes_max == 0)
    limits.recycled_bytes_max = std::max<int64_t>(1, limits.tensor_bytes_max / 4);
  limits.chunk_bytes_max =
      std::min(limits.chunk_bytes_max, limits.message_bytes_max - kChunkEnvelopeBytes);
  if (limits.staging_bytes_max == 0) limits.staging_bytes_max = machine_bytes / 4;
  if (limits.setup_timeout_ms == 0)
    limits.setup_timeout_ms = device_memory_bytes > 0 ? 60000 : 10000;
  return limits;
}

}  // namespace hir::service
