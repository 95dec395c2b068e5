// FrameWatch: looks over what gRPC reads of a connection for two things that gRPC 1.51 does not bound: a header that
// does not end, and calls that are cancelled as soon as they are begun.
//
// gRPC has the descriptor and offers no place to look; so recvmsg, by which it reads, is ours in this program. It costs
// 0.2 us a read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "csrc/base/clock.h"

namespace hir::service {

// Watches one connection, from its first byte on. A header's block is bytes of HEADERS and CONTINUATION until its end.
class FrameWatch {
 public:
  struct Limits {
    int64_t header_block_bytes = 64 << 10;  // Eight times what gRPC then refuses by itself.
    int64_t resets_at_once = 2048;          // Twice the calls that a connection may have at a time.
    int64_t resets_per_second = 256;
  };
  FrameWatch() = default;
  explicit FrameWatch(const Limits& limits) : limits_(limits), resets_left_(limits.resets_at_once) {}

  // The fault of the connection, once these bytes have come; null: none.
  const char* See(std::span<const std::byte> bytes, base::Nanos now);

 private:
  static constexpr int64_t kPrefaceBytes = 24;
  static constexpr size_t kHeaderBytes = 9;  // Of a frame: length (3), type, flags, stream (4).

  const char* SeeFrame(base::Nanos now);

  Limits limits_;
  int64_t skip_ = kPrefaceBytes;  // Bytes that are no frame's header.
  std::byte header_[kHeaderBytes] = {};
  size_t header_size_ = 0;
  int64_t block_bytes_ = 0;  // Of the block that has not ended.
  int64_t resets_left_ = Limits().resets_at_once;
  base::Nanos refilled_at_ = {};
};

// From now on, until the descriptor is closed, what this process reads of the connection is looked over. One with which
// something is wrong is shut down, and reading fails (ECONNRESET). Nothing of it has been read. Thread-safe.
void WatchFrames(int fd);

}  // namespace hir::service
