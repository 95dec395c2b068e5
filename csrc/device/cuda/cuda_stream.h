// CudaStream and CudaEvent: the driver's, with what the host knows of failures and captures.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/device/cuda/capture.h"
#include "csrc/device/cuda/completion_words.h"
#include "csrc/device/cuda/context.h"

namespace hir::device::cuda {

class CudaEvent final : public Event {
 public:
  CudaEvent(Context& context, CUevent event, bool timed) : context_(context), event_(event), timed_(timed) {}
  ~CudaEvent() override;

  bool Fired() const override;
  Status Synchronize(base::Nanos timeout) override;
  CUevent handle() const { return event_; }
  // Recorded, and not in a capture: then the driver knows a time.
  bool recorded() const { return history_ != nullptr && capture_ == 0; }
  bool timed() const { return timed_; }
  const Context& context() const { return context_; }

 private:
  friend class CudaStream;
  Context& context_;
  const CUevent event_;
  const bool timed_;
  // Of the latest Record.
  std::shared_ptr<StreamHistory> history_;
  int64_t position_ = 0;
  int64_t capture_ = 0;  // The number of the capture it was in; 0: none.
};

class CudaStream final : public Stream {
 public:
  CudaStream(Context& context, CompletionWords& words, CUstream stream, CompletionWord& word, std::string name);
  ~CudaStream() override;

  void Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) override;
  void Copy(Buffer dst, Buffer src) override;
  void Fill(Buffer dst, uint64_t pattern, int pattern_bytes) override;
  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void Enqueue(AsyncOp& op) override;
  void HostCallback(std::function<Status()> callback) override;
  Status Synchronize(base::Nanos timeout) override;
  Status status() const override;
  Status known_status() const override { return history_->FailureBefore(history_->position()); }
  void ClearError() override { history_->Clear(); }

  CUstream handle() const { return stream_; }
  // See cuda_device.h.
  void* NativeHandle() {
    ++mark_;
    return stream_;
  }
  int64_t mark() const { return mark_; }
  const std::string& name() const { return name_; }
  Context& context() const { return context_; }
  // See cuda_device.h.
  Completion BeginWork();
  void TakeWord(Buffer word);
  // A graph is queued.
  void Launch(CUgraphExec graph);

  // Null: what is queued runs.
  Capture* capture() const { return capture_; }
  void set_capture(Capture* capture) { capture_ = capture; }

 private:
  // Notes the failure of a call that queues; true when it was OK.
  bool Queued(CUresult result, std::string_view call);
  void Fail(const Status& status);
  // Whether a failure that is known makes it pointless to queue more.
  bool Skips() const;

  Context& context_;
  CompletionWords& words_;
  const CUstream stream_;
  CompletionWord& word_;
  const std::string name_;
  const std::shared_ptr<StreamHistory> history_;
  Capture* capture_ = nullptr;
  int64_t mark_;
};

}  // namespace hir::device::cuda
