// Progress: what takes longer than a second, on a terminal's stderr: one line that is rewritten, and gone when it is
// over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "csrc/base/clock.h"
#include "hostir/v1/plan.pb.h"

namespace hir::cli {

// Thread-safe. Where stderr is no terminal nothing is written, unless that is `asked` for: then a line whenever
// something else is under way, and once a second while it counts.
class Progress {
 public:
  explicit Progress(bool asked);
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

  bool shown() const { return shown_ != Shown::kNothing; }
  // How far the plan is that the stage waits for: "compiling 3 of 7 kernels".
  void Plan(const ::hostir::v1::PlanProgress& progress);

 private:
  enum class Shown { kNothing, kLine, kLog };
  void Loop();
  std::string Line() const;              // REQUIRES: mutex_ is held; of the one below, too.
  void Log(std::string_view what_kind);  // Of kLog: the line, unless that kind has one of this second.

  const Shown shown_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable changed_;
  std::string what_;    // Empty: nothing is under way.
  std::string plan_;    // What is said in its place while a plan is made.
  std::string logged_;  // The kind that had a line last, at
  base::Nanos logged_at_ = {};
  base::Nanos start_ = {};
  int64_t bytes_ = 0, total_bytes_ = 0;
  bool drawn_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hir::cli
