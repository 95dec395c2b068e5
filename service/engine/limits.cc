#include "service/engine/limits.h"

#include <unistd.h>

namespace hir::service {

Limits Resolved(Limits limits) {
  if (limits.tensor_bytes_max == 0) {
    limits.tensor_bytes_max = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE) / 2;
  }
  return limits;
}

}  // namespace hir::service
