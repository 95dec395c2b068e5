// TaskQueue: what a stream has yet to do. One thread pushes, one thread at a time pops; neither
// waits for the other.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/device/host/host_kernel.h"
#include "csrc/device/stream.h"

namespace hir::device {

class StreamCore;

struct Task {
  enum class Kind : uint8_t { kLaunch, kWait, kAsync, kCallback };
  static constexpr int64_t kInlineArgs = 20;  // Enough for what fused kernels take, in a Task of 256 bytes.

  Kind kind = Kind::kLaunch;
  HostFunction function = nullptr;  // kLaunch
  int64_t grid = 0;
  int64_t grain = 1;
  std::array<int64_t, kInlineArgs> args;  // Unless more_args is set.
  std::unique_ptr<int64_t[]> more_args;
  StreamCore* source = nullptr;  // kWait: until `source` has done `position` operations.
  int64_t position = 0;
  AsyncOp* op = nullptr;             // kAsync
  std::function<Status()> callback;  // kCallback

  void SetArgs(std::span<const int64_t> values) {
    if (values.size() > args.size()) more_args = std::make_unique<int64_t[]>(values.size());
    std::copy(values.begin(), values.end(), more_args ? more_args.get() : args.data());
  }
  const int64_t* Args() const { return more_args ? more_args.get() : args.data(); }
};

// A list of blocks of tasks; a popped block is kept for the next push that needs one, so a stream
// in steady use allocates nothing. Counts are since construction and never go back.
class TaskQueue {
 public:
  TaskQueue() : head_(new Block), tail_(head_) {}
  ~TaskQueue() {
    for (Block* block = head_; block != nullptr;) delete std::exchange(block, block->next);
    delete spare_.load();
  }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // The pushing thread: the slot to fill, then Push.
  Task& Back() {
    const int64_t slot = pushed_.load(std::memory_order_relaxed) % kBlockTasks;
    if (slot == 0 && pushed_.load(std::memory_order_relaxed) > 0 && !tail_is_fresh_) {
      Block* block = spare_.exchange(nullptr);
      if (block == nullptr) block = new Block;
      block->next = nullptr;
      tail_->next = block;  // Published by the next Push.
      tail_ = block;
      tail_is_fresh_ = true;
    }
    return tail_->tasks[static_cast<size_t>(slot)];
  }
  void Push() {
    tail_is_fresh_ = false;
    pushed_.fetch_add(1);
  }

  // The popping thread: the oldest task, or null.
  Task* Front() {
    const int64_t popped = popped_.load(std::memory_order_relaxed);
    if (pushed_.load() == popped) return nullptr;
    if (popped % kBlockTasks == 0 && popped > 0 && popped != head_begin_) {
      Block* const old = std::exchange(head_, head_->next);
      head_begin_ = popped;
      delete spare_.exchange(old);
    }
    return &head_->tasks[static_cast<size_t>(popped % kBlockTasks)];
  }
  void Pop() { popped_.fetch_add(1); }

  // Any thread.
  int64_t pushed() const { return pushed_.load(); }
  int64_t popped() const { return popped_.load(); }

 private:
  static constexpr int64_t kBlockTasks = 64;
  struct Block {
    std::array<Task, kBlockTasks> tasks;
    Block* next = nullptr;
  };

  std::atomic<int64_t> pushed_ = 0;
  std::atomic<int64_t> popped_ = 0;
  std::atomic<Block*> spare_ = nullptr;
  Block* head_;  // The popping thread's.
  int64_t head_begin_ = 0;
  Block* tail_;                 // The pushing thread's.
  bool tail_is_fresh_ = false;  // Has a block been appended for the slot that is being filled?
};

}  // namespace hir::device
