// Stream: work that a device runs in the order in which it was queued. Event: a point in a stream's
// work.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/kernel.h"

namespace hir::device {

// The state of a stream at its latest Record. Made by Device::CreateEvent, recorded any number of
// times. Before the first Record it counts as fired.
//
// Threads: Record and Wait calls that name one event come from one thread at a time; Fired and
// Synchronize too.
class Event {
 public:
  virtual ~Event() = default;
  // Whether the work before the latest Record is done or skipped.
  virtual bool Fired() const = 0;
  // Blocks the caller until Fired; then the failure of that work, if it failed. kDeadlineExceeded
  // after `timeout`.
  virtual Status Synchronize(base::Nanos timeout) = 0;
};

// The right, used exactly once, to say that an AsyncOp is over. Movable; any thread may use it.
class Completion {
 public:
  // What is told; a stream's own.
  class Target {
   public:
    virtual ~Target() = default;
    virtual void Complete(Status status) = 0;
  };

  Completion() = default;
  explicit Completion(Target& target) : target_(&target) {}
  Completion(Completion&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Completion& operator=(Completion&& other) noexcept {
    HIR_CHECK(target_ == nullptr);
    target_ = std::exchange(other.target_, nullptr);
    return *this;
  }
  ~Completion() { HIR_CHECK(target_ == nullptr); }

  // The stream goes on, or fails with `status`. Never runs the stream's work on the calling thread.
  void Done(Status status) {
    HIR_CHECK(target_ != nullptr);
    std::exchange(target_, nullptr)->Complete(std::move(status));
  }

 private:
  Target* target_ = nullptr;
};

// Work that a stream starts and something else finishes: a communication. While it is pending no
// thread is held. Owned by whoever queued it, who keeps it until it has been completed or skipped.
class AsyncOp {
 public:
  virtual ~AsyncOp() = default;
  // Called once, when all work before it in the stream is done: on a thread of the device, inside
  // Stream::Enqueue or Synchronize, or on the thread that completes another operation. Must not block.
  virtual void Start(Completion completion) = 0;
  // Called instead of Start when the stream failed with `cause` before.
  virtual void Skip(const Status& cause) = 0;
};

// In-order work on one device.
//
// Calls queue work and return: they never block, and report nothing. When an operation fails, the
// stream fails with that Status, its first: later operations are skipped, but events recorded later
// still fire, and a stream that waits for one of them fails with the same Status. Buffers and
// kernels stay valid until the work is done.
//
// Threads: one thread at a time queues; Synchronize and status may be called from any thread.
class Stream {
 public:
  virtual ~Stream() = default;

  // Runs `kernel` over [0, grid) with `args`, which are copied. REQUIRES: a kernel of this device;
  // grid >= 0.
  virtual void Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) = 0;
  // REQUIRES: as many bytes in dst as in src; dst is src, or they do not overlap.
  virtual void Copy(Buffer dst, Buffer src) = 0;
  // Repeats the low `pattern_bytes` bytes of `pattern`, the lowest address first. REQUIRES:
  // pattern_bytes is 1, 2, 4 or 8 and divides dst.bytes.
  virtual void Fill(Buffer dst, uint64_t pattern, int pattern_bytes) = 0;

  // `event` now means this point of this stream.
  virtual void Record(Event& event) = 0;
  // Work queued later starts after the latest Record of `event` that was called before this call.
  virtual void Wait(const Event& event) = 0;

  // Starts `op` in stream order; the stream goes on when the op is completed.
  virtual void Enqueue(AsyncOp& op) = 0;
  // Runs `callback` in stream order, on a thread of the device or one that waits in Synchronize; its Status counts like
  // an operation's. For rare work: it may allocate, and it holds a thread while it runs. It must not wait for other
  // work of the device.
  virtual void HostCallback(std::function<Status()> callback) = 0;

  // Blocks until everything queued before this call is done or skipped; then status().
  // kDeadlineExceeded, and the stream goes on, after `timeout`, or after the launch or callback that this thread
  // itself runs by then: while it waits it may work, kernels of up to 1.5 MiB of stack among it.
  virtual Status Synchronize(base::Nanos timeout) = 0;
  // The first failure so far, or OK.
  virtual Status status() const = 0;
  // As status(), as far as it is known without asking the device: for who queues much.
  virtual Status known_status() const { return status(); }
  // Forgets the failure. REQUIRES: everything queued is done or skipped.
  virtual void ClearError() = 0;
};

}  // namespace hir::device
