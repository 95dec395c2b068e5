// Found: how a target says that it found a fault.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/target.h"

namespace hir::fuzz {

void Found(std::string_view what) {
  std::fprintf(stderr, "FOUND: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace hir::fuzz
