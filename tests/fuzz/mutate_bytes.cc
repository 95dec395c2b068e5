#include "tests/fuzz/mutate_bytes.h"

#include <algorithm>
#include <cstddef>

namespace hir::fuzz {

std::string MutateBytes(base::Prng& prng, std::string bytes) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(prng.Below(static_cast<int64_t>(n))); };
  for (int64_t times = prng.Between(1, 3); times > 0; --times) {
    if (bytes.empty()) bytes.push_back(static_cast<char>(prng.Below(256)));
    const size_t at = pick(bytes.size());
    const size_t length = std::min(bytes.size() - at, size_t{1} << pick(8));
    switch (prng.Below(5)) {
      case 0: bytes[at] = static_cast<char>(prng.Below(256)); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << prng.Below(8))); break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(pick(bytes.size()), bytes.substr(at, length)); break;
      default:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min<size_t>(length, 10), '\xff');
        break;
    }
  }
  return bytes;
}

}  // namespace hir::fuzz
