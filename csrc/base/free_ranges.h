// FreeRanges: which parts of a range of addresses are free. Offsets and sizes are multiples of one grain.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hir::base {

// Best fit: the smallest range that is large enough, the lowest of those. One thread at a time.
class FreeRanges {
 public:
  // REQUIRES: bytes > 0, and nothing of [offset, offset + bytes) is free.
  void Add(int64_t offset, int64_t bytes);
  // The offset of `bytes` that are free no more; nothing when no range holds them. REQUIRES: bytes > 0.
  std::optional<int64_t> Take(int64_t bytes);

  int64_t largest() const;
  // How many free bytes end at `end`.
  int64_t BytesBefore(int64_t end) const;

 private:
  std::map<int64_t, int64_t> bytes_by_offset_;
};

}  // namespace hir::base
