// CompletionWords: what streams wait for while a communication is under way that the driver knows nothing of.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/device/cuda/context.h"

namespace hir::device::cuda {

// A word in pinned memory, one a stream: the number of the stream's latest AsyncOp that is over.
struct CompletionWord {
  int64_t index = 0;
  std::atomic<uint32_t>* host = nullptr;
  CUdeviceptr address = 0;
  uint32_t issued = 0;  // Numbers given out; the queueing thread's. Goes on when another stream takes the word.
};

class CompletionWords;

// One AsyncOp on its way through a stream: the driver calls Start, the op's owner completes it.
class PendingOp final : public Completion::Target {
 public:
  PendingOp(CompletionWords& words) : words_(words) {}  // NOLINT: made in place.
  void Set(AsyncOp& op, std::shared_ptr<StreamHistory> history, int64_t index, CompletionWord& word, uint32_t number);
  static void Start(void* pending);  // A CUhostFn.
  void Complete(Status status) override;

 private:
  CompletionWords& words_;
  AsyncOp* op_ = nullptr;
  std::shared_ptr<StreamHistory> history_;
  int64_t index_ = 0;
  CompletionWord* word_ = nullptr;
  uint32_t number_ = 0;
};

// The words of a device's streams and the pending ops, which serve again. Thread-safe.
class CompletionWords {
 public:
  CompletionWords(Context& context, int64_t streams_max) : context_(context), streams_max_(streams_max) {}

  // Null when streams_max are out.
  Result<CompletionWord*> TakeWord();
  void GiveWord(CompletionWord& word);
  PendingOp& TakeOp();
  void GiveOp(PendingOp& op);

 private:
  Context& context_;
  const int64_t streams_max_;
  std::mutex mutex_;
  std::unique_ptr<Allocation> memory_;  // Guarded by mutex_, as is the rest.
  std::deque<CompletionWord> words_;
  std::vector<CompletionWord*> free_words_;
  std::deque<PendingOp> ops_;
  std::vector<PendingOp*> free_ops_;
};

}  // namespace hir::device::cuda
