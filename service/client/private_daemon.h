// PrivateDaemon: a hostird of this process alone.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

// It listens in a directory that only this user can enter, and ends, with its workers, when this process does: it
// holds the reading end of a pipe whose writing end is open nowhere but here. Destruction lets it finish what is under
// way.
class PrivateDaemon {
 public:
  // Starts `program` on `devices` and waits until it is ready. Errors: kUnavailable with how it ended and the last
  // lines of its log. `exit_code`: that of a daemon that ended, else -1.
  static Result<std::unique_ptr<PrivateDaemon>> Start(const std::string& program, const std::string& devices,
                                                      base::Nanos timeout, int* exit_code);
  // $HOSTIR_DAEMON, else the hostird beside this program.
  static std::string FindProgram();
  ~PrivateDaemon();

  const std::string& address() const { return address_; }

 private:
  PrivateDaemon() = default;
  Status Spawn(const std::string& program, const std::string& devices);
  // How it ended, once it has; empty after `timeout`.
  std::string Ended(base::Nanos timeout, int* exit_code);
  std::string LogTail() const;

  std::string directory_;
  std::string address_;
  pid_t pid_ = 0;
  base::Fd pidfd_;
  base::Fd alive_;  // The writing end.
  base::Fd ready_;  // The reading end.
};

}  // namespace hir::service
