// Shortened: an error whose text has a bound, so that what keeps many of them, or sends them, has one too.
#pragma once

#include <cstddef>

#include "csrc/base/status.h"

namespace hir::base {

// Of one message. It travels in HTTP/2 headers, which have a limit of 8 KiB: beyond, the peer sees no message at all.
inline constexpr size_t kErrorBytesMax = 4096;

// The same status; of a longer message the beginning, where its cause is, in whole characters, and " ...".
Status Shortened(const Status& status);

}  // namespace hir::base
