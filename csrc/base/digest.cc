#include "csrc/base/digest.h"

#include <cstdint>
#include <cstdio>

namespace hir::base {

std::string Digest(std::string_view bytes) {
  uint64_t a = 0x9e3779b97f4a7c15u ^ bytes.size(), b = 0xc2b2ae3d27d4eb4fu;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b = (b + static_cast<unsigned char>(c)) * 0x9fb21c651e98df25u;
    b ^= b >> 29;
  }
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a ^ (a >> 31)),
                static_cast<unsigned long long>(b));
  return text;
}

}  // namespace hir::base
