// Progress: what takes long, on a terminal's stderr: one line that is rewritten, and gone when it is over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "csrc/base/clock.h"

namespace hir::cli {

// Thread-safe. Where stderr is no terminal nothing is written.
class Progress {
 public:
  Progress();
  ~Progress();

  // While it lives the line says `what` and for how long. One at a time.
  class Stage {
   public:
    Stage(Progress& progress, std::string what);
    ~Stage();
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;
    // Of so many bytes so many have moved; the line shows the share and the rate.
    void Moved(int64_t bytes, int64_t total_bytes) const;

   private:
    Progress& progress_;
  };

 private:
  void Loop();
  std::string Line() const;  // REQUIRES: mutex_ is held.

  const bool shown_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable changed_;
  std::string what_;  // Empty: nothing is under way.
  base::Nanos start_ = {};
  int64_t bytes_ = 0, total_bytes_ = 0;
  bool drawn_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hir::cli
