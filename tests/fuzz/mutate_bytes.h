// A seeded mutator of bytes that are text or no message.
#pragma once

#include <string>

#include "csrc/base/prng.h"

namespace hir::fuzz {

// One to three of: a byte changed, some bytes repeated, dropped or made extreme.
std::string MutateBytes(base::Prng& prng, std::string bytes);

}  // namespace hir::fuzz
