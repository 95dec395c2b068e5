// Process: a child that is watched, killed and reaped by descriptor, so never mistaken for another.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

// A process that SIGKILL has not ended by then may never end: it is frozen, in a driver, or held by a debugger.
inline constexpr base::Nanos kKillTimeout = std::chrono::seconds(2);

// The child's number of the descriptor given to Spawn.
inline constexpr int kInheritedFd = 3;

// Destruction kills and reaps; one that has not ended kKillTimeout later is abandoned. Threads: one at a time.
class Process {
 public:
  // Runs `path` with `args`; it inherits standard streams and `inherited`, nothing else. When the calling THREAD ends,
  // a child that asked for PR_SET_PDEATHSIG dies: spawn from one that stays.
  static Result<Process> Spawn(const std::string& path, const std::vector<std::string>& args,
                               const base::Fd& inherited);

  Process() = default;
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        pidfd_(std::move(other.pidfd_)),
        ending_(std::move(other.ending_)),
        signal_(other.signal_),
        exit_code_(other.exit_code_) {}
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }       // 0: none.
  int fd() const { return pidfd_.get(); }  // Readable when the process has ended.

  void Kill();
  // From here on it is nobody's: neither killed nor reaped.
  void Abandon() { pid_ = 0; }
  // How it ended ("killed by signal 9", "exited with 1"), once it has, and it is reaped; nothing after `timeout`.
  std::optional<std::string> Ended(base::Nanos timeout);
  // The signal that ended it, once Ended has said so; 0: none.
  int signal() const { return signal_; }
  // The code it exited with, once Ended has said so; -1: none.
  int exit_code() const { return exit_code_; }

 private:
  pid_t pid_ = 0;
  base::Fd pidfd_;
  std::optional<std::string> ending_;  // Set when reaped.
  int signal_ = 0;
  int exit_code_ = -1;
};

}  // namespace hir::service
