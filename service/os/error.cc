#include "service/os/error.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

// What to do about limits of a process, for the end of a message.
std::string Remedy(int error) {
  rlimit limit = {};
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return base::Cat("; a process may have ", limit.rlim_cur,
                     " descriptors here, and every shard is one: free tensors, or start the daemon "
                     "with a higher limit (ulimit -n)");
  }
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return base::Cat("; a file may have ", limit.rlim_cur,
                     " bytes here, and shared memory is one: start the daemon with a higher limit "
                     "(ulimit -f)");
  }
  return "";
}

}  // namespace

Status ErrnoStatus(std::string_view what) {
  const int error = errno;
  const bool exhausted =
      error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EAGAIN || error == EFBIG;
  return {exhausted ? Code::kResourceExhausted : Code::kUnavailable,
          base::Cat(what, ": ", std::generic_category().message(error), Remedy(error))};
}

}  // namespace hir::service
