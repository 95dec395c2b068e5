// A device that only writes down what it is asked, for tests of what a run queues and benchmarks of
// what queueing costs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/device/device.h"
#include "host_ir/eval/library.h"
#include "multidevice/comm/communicator.h"

namespace hir::host {

// What was queued, one letter a call: L launch, C copy, F fill, R record, W wait, P post, M library
// call.
struct CallLog {
  std::string calls;  // Reserved by the test, so that a run does not grow it.
  bool keep = true;
};

class NullEvent final : public device::Event {
 public:
  bool Fired() const override { return true; }
  Status Synchronize(base::Nanos) override { return {}; }
};

class NullStream final : public device::Stream {
 public:
  explicit NullStream(CallLog& log) : log_(log) {}
  void Add(char call) {
    if (log_.keep) log_.calls += call;
  }
  void Launch(const device::Kernel&, std::span<const int64_t> args, int64_t grid) override {
    Add('L');
    last_args = args;
    last_grid = grid;
  }
  void Copy(device::Buffer, device::Buffer) override { Add('C'); }
  void Fill(device::Buffer, uint64_t, int) override { Add('F'); }
  void Record(device::Event&) override { Add('R'); }
  void Wait(const device::Event&) override { Add('W'); }
  void Enqueue(device::AsyncOp&) override {}
  void HostCallback(std::function<Status()>) override {}
  Status Synchronize(base::Nanos) override { return {}; }
  Status status() const override { return {}; }
  void ClearError() override {}

  std::span<const int64_t> last_args;  // Valid until the binding changes.
  int64_t last_grid = -1;

 private:
  CallLog& log_;
};

class NullAllocation final : public device::Allocation {
 public:
  explicit NullAllocation(int64_t bytes)
      : bytes_(bytes), memory_(std::make_unique<std::byte[]>(static_cast<size_t>(bytes))) {}
  device::Buffer buffer() const override { return {memory_.get(), bytes_}; }

 private:
  const int64_t bytes_;
  const std::unique_ptr<std::byte[]> memory_;
};

class NullDevice final : public device::Device {
 public:
  explicit NullDevice(CallLog& log) : log_(log) {}
  std::string_view name() const override { return "null:0"; }
  Result<std::unique_ptr<device::Stream>> CreateStream() override {
    return std::unique_ptr<device::Stream>(std::make_unique<NullStream>(log_));
  }
  Result<std::unique_ptr<device::Event>> CreateEvent() override {
    return std::unique_ptr<device::Event>(std::make_unique<NullEvent>());
  }
  Result<std::unique_ptr<device::Allocation>> Allocate(int64_t bytes) override {
    allocated_ += bytes;
    return std::unique_ptr<device::Allocation>(std::make_unique<NullAllocation>(bytes));
  }
  int64_t allocated_bytes() const override { return allocated_; }
  int64_t memory_bytes_max() const override { return INT64_MAX; }

 private:
  CallLog& log_;
  int64_t allocated_ = 0;
};

class NullKernel final : public device::Kernel {
 public:
  NullKernel() {}  // So that a constant one can be made: it has no members.
  std::string_view name() const override { return "null"; }
};
class NullKernels final : public device::KernelSource {
 public:
  Result<const device::Kernel*> Get(std::string_view name) override {
    if (name == "missing") return Status(Code::kNotFound, "no kernel missing");
    return &kernel_;
  }

 private:
  const NullKernel kernel_;
};

class NullCommunicator final : public comm::Communicator {
 public:
  NullCommunicator(CallLog& log, int64_t size) : log_(log), size_(size) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return size_; }
  Result<comm::TeamId> Team(std::span<const int64_t>, int64_t lane) override { return static_cast<comm::TeamId>(lane); }
  Status Post(const comm::CommDesc& desc, device::Stream&) override {
    if (log_.keep) log_.calls += 'P';
    last = desc;
    return fail;
  }
  Status GroupBegin() override { return {}; }
  Status GroupEnd() override { return {}; }
  void Abort(Status) override {}
  comm::CommProgress Progress() const override { return {}; }

  comm::CommDesc last;
  Status fail;  // What Post says.

 private:
  CallLog& log_;
  const int64_t size_;
};

class NullCall final : public LibraryCall {
 public:
  void Queue(std::span<const device::Buffer>, std::span<const device::Buffer>, device::Stream& stream) override {
    static_cast<NullStream&>(stream).Add('M');
  }
};
class NullLibrary final : public LibrarySource {
 public:
  Result<std::unique_ptr<LibraryCall>> Make(const LibraryDesc& desc) override {
    made.push_back(desc);
    return std::unique_ptr<LibraryCall>(std::make_unique<NullCall>());
  }
  std::vector<LibraryDesc> made;
};

}  // namespace hir::host
