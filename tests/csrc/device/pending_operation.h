// An operation that a test completes, in place of a communication.
#pragma once

#include <atomic>
#include <utility>

#include "csrc/device/stream.h"

namespace hir::device {

// Completed when the test likes.
class PendingOperation final : public AsyncOp {
 public:
  void Start(Completion completion) override {
    completion_ = std::move(completion);
    started_ = true;
    started_.notify_all();
  }
  void Skip(const Status& cause) override {
    skipped_ = cause;
    is_skipped_ = true;
  }
  void WaitStarted() { started_.wait(false); }
  bool started() const { return started_; }
  void Done(Status status = {}) { completion_.Done(std::move(status)); }
  Status skipped() const { return is_skipped_ ? skipped_ : Status(); }

 private:
  Completion completion_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> is_skipped_ = false;
  Status skipped_;
};

}  // namespace hir::device
