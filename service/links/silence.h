// Silence: notices that nothing comes from the other end of a stream any more.
//
// Not gRPC's keepalive: its pings wait behind all that was handed to the socket, so that a slow link that is busy would
// be taken for a lost one. Here whatever comes is a sign of life, and shards come in small pieces.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace hir::service {

// Threads: any.
class Silence {
 public:
  // `noticed` is called once, on a thread of its own, when nothing was heard for five seconds in which this process
  // ran.
  explicit Silence(std::function<void()> noticed);
  ~Silence();

  void Heard() { looks_ = 0; }
  bool was_noticed() const { return was_noticed_; }

 private:
  void Loop();

  const std::function<void()> noticed_;
  std::atomic<int> looks_ = 0;  // Since something was heard.
  std::atomic<bool> was_noticed_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace hir::service
