// A seeded mutator of program text: what a careless or hostile client might send.
#pragma once

#include <span>
#include <string>

#include "csrc/base/prng.h"

namespace hir::fuzz {

// One to four changes to one of `corpus`: bytes flipped, tokens swapped, repeated, dropped or taken
// from another program, lines moved, numbers made large, negative or off by one.
std::string MutateText(base::Prng& prng, std::span<const std::string> corpus);
// The same changes to `text`, with tokens and lines of `other`. REQUIRES: it is not empty.
std::string MutateText(base::Prng& prng, std::string text, const std::string& other);

}  // namespace hir::fuzz
