#include "service/engine/limits.h"

#include <unistd.h>

#include <algorithm>

namespace hir::service {
namespace {

constexpr int64_t kChunkEnvelopeBytes = 1024;  // What a message may hold beside a chunk.

}  // namespace

Limits Resolved(Limits limits) {
  if (limits.tensor_bytes_max == 0) {
    limits.tensor_bytes_max = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE) / 2;
  }
  limits.chunk_bytes_max =
      std::min(limits.chunk_bytes_max, limits.message_bytes_max - kChunkEnvelopeBytes);
  return limits;
}

}  // namespace hir::service
