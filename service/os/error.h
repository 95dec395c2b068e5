// The errors of system calls as Status.
#pragma once

#include <string_view>

#include "csrc/base/status.h"

namespace hir::service {

// "what: No such file or directory" of the calling thread's errno. kResourceExhausted when it says that memory,
// descriptors or a file's size have run out, with what to do about the process's limit; else kUnavailable.
Status ErrnoStatus(std::string_view what);

}  // namespace hir::service
