// A GPU for the fake libnccl: a host device whose streams have what comm/nccl asks of a GPU's.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/host/host_device.h"
#include "tests/multidevice/comm/nccl/fake_nccl.h"

namespace hir::comm {

class FakeGpuStream final : public device::Stream {
 public:
  explicit FakeGpuStream(std::unique_ptr<device::Stream> host)
      : host_(std::move(host)), native_{.queue = [this](auto start) { Queue(std::move(start)); }} {}

  FakeStream& native() { return native_; }
  // It may be told when the stream is gone.
  device::Completion BeginWork() { return device::Completion(*new Work(failure_)); }

  void Launch(const device::Kernel& kernel, std::span<const int64_t> args, int64_t grid) override {
    if (status().ok()) host_->Launch(kernel, args, grid);
  }
  void Copy(device::Buffer dst, device::Buffer src) override {
    if (status().ok()) host_->Copy(dst, src);
  }
  void Fill(device::Buffer dst, uint64_t pattern, int pattern_bytes) override {
    if (status().ok()) host_->Fill(dst, pattern, pattern_bytes);
  }
  void Record(device::Event& event) override { host_->Record(event); }
  void Wait(const device::Event& event) override { host_->Wait(event); }
  void Enqueue(device::AsyncOp& op) override { host_->Enqueue(op); }
  void HostCallback(std::function<Status()> callback) override { host_->HostCallback(std::move(callback)); }
  // A stream that has failed is waited for all the same: the device may still be in its work.
  Status Synchronize(base::Nanos timeout) override {
    HIR_TRY(host_->Synchronize(timeout));
    return status();
  }
  Status status() const override {
    std::lock_guard lock(failure_->mutex);
    return failure_->status.ok() ? host_->status() : failure_->status;
  }
  void ClearError() override { host_->ClearError(); }

 private:
  struct Failure {
    std::mutex mutex;
    Status status;  // Guarded by mutex.
  };
  class Work final : public device::Completion::Target {
   public:
    explicit Work(std::shared_ptr<Failure> failure) : failure_(std::move(failure)) {}
    void Complete(Status status) override {
      const std::unique_ptr<Work> self(this);
      std::lock_guard lock(failure_->mutex);
      if (failure_->status.ok()) failure_->status = std::move(status);
    }

   private:
    const std::shared_ptr<Failure> failure_;
  };
  class Op final : public device::AsyncOp {
   public:
    explicit Op(std::function<void(FakeStream::Done)> start) : start_(std::move(start)) {}
    void Start(device::Completion completion) override {
      start_([held = std::make_shared<device::Completion>(std::move(completion))] { held->Done({}); });
    }
    void Skip(const Status&) override {}

   private:
    const std::function<void(FakeStream::Done)> start_;
  };
  void Queue(std::function<void(FakeStream::Done)> start) { host_->Enqueue(ops_.emplace_back(std::move(start))); }

  std::deque<Op> ops_;  // Grows only: one test's.
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  const std::unique_ptr<device::Stream> host_;
  FakeStream native_;
};

class FakeGpu final : public device::Device {
 public:
  explicit FakeGpu(int64_t rank) : host_(*device::CreateHostDevice({.name = base::Cat("fake gpu:", rank)})) {}

  std::string_view name() const override { return host_->name(); }
  Result<std::unique_ptr<device::Stream>> CreateStream() override {
    HIR_ASSIGN(std::unique_ptr<device::Stream> stream, host_->CreateStream());
    return std::make_unique<FakeGpuStream>(std::move(stream));
  }
  Result<std::unique_ptr<device::Event>> CreateEvent() override { return host_->CreateEvent(); }
  Result<std::unique_ptr<device::Allocation>> Allocate(int64_t bytes) override { return host_->Allocate(bytes); }
  int64_t allocated_bytes() const override { return host_->allocated_bytes(); }
  int64_t memory_bytes_max() const override { return host_->memory_bytes_max(); }

  static void* NativeStream(device::Stream& stream) { return &static_cast<FakeGpuStream&>(stream).native(); }
  static device::Completion BeginWork(device::Stream& stream) {
    return static_cast<FakeGpuStream&>(stream).BeginWork();
  }

 private:
  const std::unique_ptr<device::Device> host_;
};

}  // namespace hir::comm
