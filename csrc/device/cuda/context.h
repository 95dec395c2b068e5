// Context: one GPU opened by this process, and what all of its streams share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/device/cuda/cuda_device.h"
#include "csrc/device/cuda/driver.h"
#include "csrc/device/cuda/failures.h"

namespace hir::device::cuda {

class Capture;

// The address of device memory, as a number and as a pointer.
inline CUdeviceptr Address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }
inline std::byte* Pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

Result<CudaFacts> ReadFacts(const Driver& driver, int64_t ordinal, CUdevice* device);

// Thread-safe.
class Context {
 public:
  static Result<std::unique_ptr<Context>> Open(std::string_view driver, int64_t ordinal);
  ~Context();

  const Driver& driver() const { return *driver_; }
  const CudaFacts& facts() const { return facts_; }
  const std::string& name() const { return name_; }  // "cuda:0"
  CUcontext handle() const { return context_; }
  CUdevice device() const { return device_; }
  int64_t ordinal() const { return ordinal_; }
  FailureLog& failures() { return failures_; }
  // Of a new stream: never the same twice.
  int64_t NewStreamNumber() { return ++num_streams_; }
  // The capture under way, or null. The queueing thread's.
  Capture* capture() const { return capture_; }
  void set_capture(Capture* capture) { capture_ = capture; }

  // Makes the context current on this thread.
  void Enter() const;
  // OK, or an error behind the device's name.
  Status Check(CUresult result, std::string_view call) const;
  int Attribute(CUdevice_attribute attribute) const;

  // An event without timing. Given back, it serves again.
  Result<CUevent> TakeEvent();
  void GiveEvent(CUevent event);

  // Waits until `event` has fired. kDeadlineExceeded naming `who` after `timeout`.
  Status Await(CUevent event, std::string_view who, base::Nanos timeout) const;

 private:
  Context() = default;

  std::shared_ptr<const Driver> driver_;
  int64_t ordinal_ = 0;
  std::string name_;
  CudaFacts facts_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  FailureLog failures_;
  Capture* capture_ = nullptr;
  std::atomic<int64_t> num_streams_ = 0;
  std::mutex mutex_;
  std::vector<CUevent> events_;  // Guarded by mutex_.
};

}  // namespace hir::device::cuda
