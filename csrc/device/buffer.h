// Device memory: a Buffer refers to bytes, an Allocation owns them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hir::device {

// A range of a device's memory; a value that owns nothing. data may be null when bytes is 0.
struct Buffer {
  std::byte* data = nullptr;
  int64_t bytes = 0;

  // REQUIRES: 0 <= offset, 0 <= size, offset + size <= bytes.
  Buffer Slice(int64_t offset, int64_t size) const { return {data + offset, size}; }
  bool operator==(const Buffer&) const = default;
};

// As kernels take it.
inline int64_t Address(const Buffer& buffer) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data)); }

// True when the two ranges share a byte.
inline bool Overlap(const Buffer& a, const Buffer& b) {
  return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

// Owns device memory; the memory goes back when it is destroyed. Immutable; the bytes are the
// caller's to order.
class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual Buffer buffer() const = 0;
};

}  // namespace hir::device
