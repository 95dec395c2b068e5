#include "csrc/base/free_ranges.h"

#include <algorithm>
#include <iterator>

#include "csrc/base/check.h"

namespace hir::base {

void FreeRanges::Add(int64_t offset, int64_t bytes) {
  HIR_CHECK(bytes > 0);
  auto next = bytes_by_offset_.upper_bound(offset);
  HIR_CHECK(next == bytes_by_offset_.end() || offset + bytes <= next->first);
  if (next != bytes_by_offset_.begin()) {
    const auto previous = std::prev(next);
    HIR_CHECK(previous->first + previous->second <= offset);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
    }
  }
  if (next != bytes_by_offset_.end() && offset + bytes == next->first) {
    bytes += next->second;
    bytes_by_offset_.erase(next);
  }
  bytes_by_offset_[offset] = bytes;
}

std::optional<int64_t> FreeRanges::Take(int64_t bytes) {
  HIR_CHECK(bytes > 0);
  auto best = bytes_by_offset_.end();
  for (auto range = bytes_by_offset_.begin(); range != bytes_by_offset_.end(); ++range) {
    if (range->second < bytes) continue;
    if (best == bytes_by_offset_.end() || range->second < best->second) best = range;
  }
  if (best == bytes_by_offset_.end()) return std::nullopt;
  const auto [offset, have] = *best;
  bytes_by_offset_.erase(best);
  if (have > bytes) bytes_by_offset_[offset + bytes] = have - bytes;
  return offset;
}

int64_t FreeRanges::largest() const {
  int64_t largest = 0;
  for (const auto& [offset, bytes] : bytes_by_offset_) largest = std::max(largest, bytes);
  return largest;
}

int64_t FreeRanges::BytesBefore(int64_t end) const {
  if (bytes_by_offset_.empty()) return 0;
  const auto [offset, bytes] = *bytes_by_offset_.rbegin();
  return offset + bytes == end ? bytes : 0;
}

}  // namespace hir::base
