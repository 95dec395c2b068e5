// Channel: whole messages with file descriptors between two processes, over a SEQPACKET socket pair.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

inline constexpr int kChannelFdsMax = 128;                       // Of one message.
inline constexpr int64_t kChannelBytesMax = int64_t{256} << 20;  // The same.

// Threads: one at a time receives; any may send.
class Channel {
 public:
  explicit Channel(base::Fd socket) : socket_(std::move(socket)) {}

  // Both ends; neither survives exec.
  static Result<std::pair<base::Fd, base::Fd>> Pair();

  struct Message {
    std::string bytes;
    std::vector<base::Fd> fds;
  };

  // A message of any size; beyond what a packet holds it goes through shared memory. REQUIRES: at most kChannelFdsMax.
  // Errors: kDeadlineExceeded   the peer did not read for `timeout`;
  //         kUnavailable        the peer is gone;
  //         kResourceExhausted  more than kChannelBytesMax.
  Status Send(std::string_view bytes, std::span<const int> fds, base::Nanos timeout);

  // The next message; nothing when there is none and `block` is false.
  // Errors: kUnavailable  the peer is gone; kDataLoss  not a message of this class, whatever the peer may be.
  Result<std::optional<Message>> Receive(bool block);

  int fd() const { return socket_.get(); }

 private:
  base::Fd socket_;
  std::mutex sending_;
  std::string buffer_;
};

}  // namespace hir::service
