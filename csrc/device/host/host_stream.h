// The faces of a StreamCore: HostStream queues on it, HostEvent remembers a position in it.
#pragma once

#include <functional>

#include "csrc/device/host/stream_core.h"
#include "csrc/device/stream.h"

namespace hir::device {

class HostEvent final : public Event {
 public:
  bool Fired() const override;
  Status Synchronize(base::Nanos timeout) override;

 private:
  friend class HostStream;
  StreamCore* core_ = nullptr;  // Null before the first Record.
  int64_t position_ = 0;
};

class HostStream final : public Stream {
 public:
  // `release` gets the core back when the stream is destroyed.
  HostStream(StreamCore& core, std::function<void(StreamCore&)> release);
  ~HostStream() override;

  void Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) override;
  void Copy(Buffer dst, Buffer src) override;
  void Fill(Buffer dst, uint64_t pattern, int pattern_bytes) override;
  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void Enqueue(AsyncOp& op) override;
  void HostCallback(std::function<Status()> callback) override;
  Status Synchronize(base::Nanos timeout) override { return core_.Synchronize(core_.queued(), timeout); }
  Status status() const override { return core_.failed() ? core_.FailureBefore(core_.queued() + 1) : Status(); }
  void ClearError() override { core_.ClearError(); }

 private:
  void Queue(HostFunction function, std::span<const int64_t> args, int64_t grid, int64_t grain);

  StreamCore& core_;
  const std::function<void(StreamCore&)> release_;
};

}  // namespace hir::device
