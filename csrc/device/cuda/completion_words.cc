#include "csrc/device/cuda/completion_words.h"

#include <new>
#include <utility>

#include "csrc/device/cuda/staging.h"

namespace hir::device::cuda {
namespace {

constexpr int64_t kWordBytes = 64;  // A cache line each.

}  // namespace

void PendingOp::Set(AsyncOp& op, std::shared_ptr<StreamHistory> history, int64_t index, CompletionWord& word,
                    uint32_t number) {
  op_ = &op;
  history_ = std::move(history);
  index_ = index;
  word_ = &word;
  number_ = number;
}

void PendingOp::Start(void* pending) {
  auto& self = *static_cast<PendingOp*>(pending);
  const Status failure = self.history_->FailureBefore(self.index_);
  if (failure.ok()) return self.op_->Start(Completion(self));
  self.op_->Skip(failure);
  self.Complete({});
}

// The stream goes on once the word is written; by then the failure is known.
void PendingOp::Complete(Status status) {
  const auto history = std::move(history_);
  std::atomic<uint32_t>& word = *word_->host;
  const uint32_t number = number_;
  const int64_t index = index_;
  words_.GiveOp(*this);
  history->End(index, status);
  word.store(number, std::memory_order_release);
}

Result<CompletionWord*> CompletionWords::TakeWord() {
  std::lock_guard lock(mutex_);
  if (free_words_.empty()) {
    const auto index = static_cast<int64_t>(words_.size());
    if (index >= streams_max_) return nullptr;
    if (memory_ == nullptr) {
      HIR_ASSIGN(memory_, AllocatePinned(context_, streams_max_ * kWordBytes));
    }
    std::byte* const place = memory_->buffer().data + index * kWordBytes;
    words_.push_back(
        {.index = index, .host = new (place) std::atomic<uint32_t>(0), .address = Address(place), .issued = 0});
    free_words_.push_back(&words_.back());
  }
  CompletionWord* const word = free_words_.back();
  free_words_.pop_back();
  return word;
}

void CompletionWords::GiveWord(CompletionWord& word) {
  std::lock_guard lock(mutex_);
  free_words_.push_back(&word);
}

PendingOp& CompletionWords::TakeOp() {
  std::lock_guard lock(mutex_);
  if (free_ops_.empty()) return ops_.emplace_back(*this);
  PendingOp* const op = free_ops_.back();
  free_ops_.pop_back();
  return *op;
}

void CompletionWords::GiveOp(PendingOp& op) {
  std::lock_guard lock(mutex_);
  free_ops_.push_back(&op);
}

}  // namespace hir::device::cuda
