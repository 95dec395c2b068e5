#include "tools/cli/outcome.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "csrc/base/text.h"

namespace hir::cli {

Outcome FlushOutput() { return WriteOutput({}); }

Outcome WriteOutput(std::string_view text) {
  errno = 0;
  // Text that is longer than its buffer goes out at once: where that fails a flush has nothing to write.
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 &&
      std::ferror(stdout) == 0)
    return {};
  // Where an earlier write failed and the flush had nothing to write the cause is gone.
  return Usage(
      Unavailable(base::Cat("cannot write standard output", errno == 0 ? "" : base::Cat(": ", std::strerror(errno)))));
}

}  // namespace hir::cli
