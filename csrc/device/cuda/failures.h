// What failed on the host in a device's streams, and which later work it reaches through events.
//
// A stream counts the operations that matter here (its positions). Most work cannot fail this way: while
// nothing is unsettled in the whole device, waits note nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"

namespace hir::device::cuda {

class StreamHistory;

// Shared by the streams of a device. Thread-safe.
class FailureLog {
 public:
  // Host functions under way and failures not cleared.
  bool settled() const { return unsettled_.load() == 0; }

 private:
  friend class StreamHistory;
  std::atomic<int64_t> unsettled_ = 0;
  std::atomic<int64_t> failed_ = 0;  // Streams that failed and were not cleared.
  std::mutex mutex_;                 // Guards the histories of all its streams.
};

// One stream's. Kept by its stream, its events and the streams that waited for them. Thread-safe, but that
// Next and AddWait come from the thread that queues.
class StreamHistory {
 public:
  explicit StreamHistory(FailureLog& log) : log_(log) {}
  ~StreamHistory();
  StreamHistory(const StreamHistory&) = delete;
  StreamHistory& operator=(const StreamHistory&) = delete;

  int64_t position() const { return position_.load(); }
  // The index of an operation that is queued now.
  int64_t Next() { return position_.fetch_add(1); }

  // An operation that ends by End is under way.
  void Begin() { ++log_.unsettled_; }
  void End(int64_t index, const Status& status);
  // The operation `index` failed. The first failure of a stream stays.
  void Fail(int64_t index, const Status& status);

  // The stream waits from here on for what `other` queued before `position`.
  void AddWait(const std::shared_ptr<StreamHistory>& other, int64_t position);
  // The first failure that reaches the stream before its `position`, or OK.
  Status FailureBefore(int64_t position) const;

  // Forgets failures and waits. REQUIRES: the stream is drained.
  void Clear();
  // The stream is drained up to `position`: keeps the failure that came before it, and forgets the waits.
  void Settle(int64_t position);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  struct Source {
    int64_t at;
    std::shared_ptr<const StreamHistory> from;
    int64_t position;
  };
  using Visited = std::vector<std::pair<const StreamHistory*, int64_t>>;
  // REQUIRES in these: the log's mutex is held.
  void FailLocked(int64_t index, const Status& status);
  std::pair<int64_t, Status> Find(int64_t position, Visited& visited) const;

  FailureLog& log_;
  std::atomic<int64_t> position_ = 0;
  int64_t failed_at_ = kNever;  // Guarded by the log's mutex, as are the next two.
  Status failure_;
  std::vector<Source> sources_;
};

}  // namespace hir::device::cuda
