// Numbers that a person gives a test: HOSTIR_SEEDS=1000, HOSTIR_SEED=7.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace hir::testing {

inline int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace hir::testing
