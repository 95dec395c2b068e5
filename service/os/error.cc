#include "service/os/error.h"

#include <cerrno>
#include <system_error>

#include "csrc/base/text.h"

namespace hir::service {

Status ErrnoStatus(std::string_view what) {
  const int error = errno;
  const bool exhausted =
      error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EAGAIN;
  return {exhausted ? Code::kResourceExhausted : Code::kUnavailable,
          base::Cat(what, ": ", std::generic_category().message(error))};
}

}  // namespace hir::service
