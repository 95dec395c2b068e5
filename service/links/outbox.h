// Outbox: what waits to be written to a stream, and a sign of life where nothing does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

namespace hir::service {

// An end that writes nothing for so long says that it is there (Silence).
inline constexpr std::chrono::seconds kBeatEvery{1};
inline constexpr size_t kQueuedBytesMax = size_t{16} << 20;

// For a `Message` of proto, which has a beat. Threads: any, but one for Write.
template <typename Message>
class Outbox {
 public:
  void Open() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
  }
  // Drops what waits.
  void Close() {
    const std::scoped_lock lock(mutex_);
    is_open_ = false;
    queue_.clear();
    bytes_ = 0;
    changed_.notify_all();
  }
  // Waits while there is no room. A closed one takes nothing.
  void Push(Message message) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_open_ || bytes_ <= kQueuedBytesMax; });
    if (!is_open_) return;
    bytes_ += BytesOf(message);
    queue_.push_back(std::move(message));
    changed_.notify_all();
  }
  // Until it is closed, or a write fails, which closes it.
  template <typename Stream>
  void Write(Stream& stream) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait_for(lock, kBeatEvery, [this] { return !is_open_ || !queue_.empty(); });
      if (!is_open_) return;
      Message message;
      if (queue_.empty()) {
        message.mutable_beat();
      } else {
        message = std::move(queue_.front());
        queue_.pop_front();
        bytes_ -= BytesOf(message);
      }
      changed_.notify_all();
      lock.unlock();
      if (!stream.Write(message)) return Close();
      lock.lock();
    }
  }

 private:
  static size_t BytesOf(const Message& message) { return sizeof(Message) + message.ByteSizeLong(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> queue_;  // Guarded by mutex_, as all here.
  size_t bytes_ = 0;
  bool is_open_ = false;
};

}  // namespace hir::service
