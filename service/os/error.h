// The errors of system calls as Status.
#pragma once

#include <string_view>

#include "csrc/base/status.h"

namespace hir::service {

// "what: No such file or directory" of the calling thread's errno. kResourceExhausted when it says that memory or
// descriptors have run out, else kUnavailable.
Status ErrnoStatus(std::string_view what);

}  // namespace hir::service
