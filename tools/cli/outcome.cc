#include "tools/cli/outcome.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "csrc/base/text.h"

namespace hir::cli {

Outcome FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  // Where an earlier write failed and the flush had nothing to write the cause is gone.
  return Usage(
      Unavailable(base::Cat("cannot write standard output", errno == 0 ? "" : base::Cat(": ", std::strerror(errno)))));
}

}  // namespace hir::cli
