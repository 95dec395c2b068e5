// Broadcast: one short message at a time from a process to several others, through memory that all of them map. It
// wakes them together, and the last one to answer wakes the sender: beside a packet and a reply for each that is one
// system call in place of two for every receiver, and one wake of the sender.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/os/shared_memory.h"

namespace hir::service {

inline constexpr size_t kBroadcastBytesMax = size_t{32} << 10;  // Of one message.
inline constexpr int64_t kReceiversMax = 1024;

// What both sides map. Only the sender writes what is not an atomic, while nobody reads it.
struct BroadcastPage {
  alignas(64) std::atomic<uint32_t> bell;    // Changes with every message and every ring; receivers sleep on it.
  alignas(64) std::atomic<uint32_t> posted;  // How many messages there were.
  std::atomic<uint32_t> rings;
  uint32_t bytes;
  alignas(64) std::atomic<uint32_t> left;  // Receivers that have not answered.
  std::atomic<uint32_t> failed;            // Of the latest message.
  std::atomic<uint32_t> looked_for;        // The last answer need wake nobody.
  alignas(64) std::byte message[kBroadcastBytesMax];
  alignas(64) std::atomic<uint32_t> heard[kReceiversMax];  // By receiver: the rings it has taken.
};

// Threads: one at a time; answered() from any.
class BroadcastSender {
 public:
  // Errors: kResourceExhausted when memory or descriptors have run out; kInvalidArgument beyond kReceiversMax.
  static Result<BroadcastSender> Create(int64_t num_receivers);

  // What a receiver is made from: the memory and the descriptor of answers, both to be passed on.
  int memory_fd() const { return memory_.fd(); }
  int answered_fd() const { return answered_.get(); }

  // Where the next message is to be written, and then sent. REQUIRES: the one before was answered by all.
  std::span<std::byte, kBroadcastBytesMax> message() { return page().message; }
  void Post(size_t bytes);
  // Wakes the receivers that sleep: there is something for them elsewhere.
  void Ring();
  // Receivers that have not taken the latest ring: who sleeps for the next message does within microseconds.
  std::vector<int64_t> Deaf() const;

  // Between the two somebody looks at answered() all the time, and the last answer wakes nobody. Of the latest message;
  // nothing is lost: what was answered between makes answered_fd() readable afterwards.
  void Look() { page().looked_for.store(1); }
  void StopLooking();

  // Whether all have answered the latest message. When they do, answered_fd() gets readable, until Clear. It may be so
  // too when they have not.
  bool answered() const { return page().left.load(std::memory_order_acquire) == 0; }
  // Whether one of them said that it failed. REQUIRES: answered().
  bool failed() const { return page().failed.load(std::memory_order_acquire) != 0; }
  void Clear();

 private:
  BroadcastPage& page() const { return *reinterpret_cast<BroadcastPage*>(memory_.data()); }

  SharedMemory memory_;
  base::Fd answered_;
  uint32_t num_receivers_ = 0;
};

// Threads: one.
class BroadcastReceiver {
 public:
  // The receiver `index`. Errors: kInvalidArgument when `memory` is too small, or has no such.
  static Result<BroadcastReceiver> Map(base::Fd memory, base::Fd answered, int64_t index);

  // A message that has not been taken; valid until it is answered.
  std::optional<std::string_view> Take();
  // Whether the sender rang since the last time.
  bool TakeRing();
  // Answers the latest message taken.
  void Answer(bool failed);

  // Sleep(bell()), with a look between the two for what else there is, misses nothing: it returns at once when there
  // was a message or a ring after bell(). It also returns at `timeout`, and may at any time.
  uint32_t bell() const { return page().bell.load(std::memory_order_acquire); }
  void Sleep(uint32_t bell, base::Nanos timeout);

 private:
  BroadcastPage& page() const { return *reinterpret_cast<BroadcastPage*>(memory_.data()); }

  SharedMemory memory_;
  base::Fd answered_;
  size_t index_ = 0;
  uint32_t taken_ = 0;  // Messages.
  uint32_t rings_ = 0;
};

}  // namespace hir::service
