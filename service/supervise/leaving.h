// Leaving: processes that were killed and have not ended yet. Mostly that takes milliseconds; one that is frozen, in a
// driver, or held by a debugger may never end, and nothing that serves others waits for it.
#pragma once

#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "service/os/process.h"

namespace hir::service {

// Threads: one at a time.
class Leaving {
 public:
  Leaving() = default;
  Leaving(Leaving&&) = default;
  Leaving& operator=(Leaving&&) = default;
  // Waits kLeaveTimeout at most, for all together: the daemon's end does not depend on them.
  ~Leaving();

  // Kills it. `name`: "rank 3".
  void Add(std::string name, Process process);
  // Whether all have ended, after `timeout` at most.
  bool Wait(base::Nanos timeout);
  bool empty() const { return left_.empty(); }
  // Those that have not kKillTimeout after they were killed: "rank 3 (process 4711)".
  std::vector<std::string> Lingering() const;

 private:
  struct One {
    std::string name;
    Process process;
    base::Nanos killed_at = {};
  };
  std::vector<One> left_;
};

// A process with a GPU's memory takes a second or two to give it back.
inline constexpr base::Nanos kLeaveTimeout = std::chrono::seconds(3);

}  // namespace hir::service
