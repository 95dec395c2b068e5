#include "service/os/process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "csrc/base/text.h"
#include "service/os/error.h"

extern char** environ;

namespace hir::service {

Result<Process> Process::Spawn(const std::string& path, const std::vector<std::string>& args,
                               const base::Fd& inherited) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, inherited.get(), kInheritedFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kInheritedFd + 1);
  // The daemon blocks signals in its threads; the child starts with none blocked.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  errno = posix_spawn(&pid, path.c_str(), &actions, &attributes, argv.data(), environ);
  const bool spawned = errno == 0;
  const Status failure = spawned ? Status() : ErrnoStatus(base::Cat("cannot start ", path));
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (!spawned) return failure;

  Process process;
  process.pid_ = pid;
  process.pidfd_ = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // Close-on-exec by definition.
  if (!process.pidfd_.valid()) {
    const Status status = ErrnoStatus("pidfd_open");
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    process.pid_ = 0;
    return status;
  }
  return process;
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(ending_, other.ending_);
  std::swap(signal_, other.signal_);
  std::swap(exit_code_, other.exit_code_);
  return *this;
}

Process::~Process() {
  if (pid_ == 0 || ending_.has_value()) return;
  Kill();
  Ended(kKillTimeout);
}

void Process::Kill() {
  if (pid_ != 0 && !ending_.has_value()) syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

std::optional<std::string> Process::Ended(base::Nanos timeout) {
  if (pid_ == 0 || ending_.has_value()) return ending_;
  const base::Nanos deadline = base::Clock::Steady().Now() + timeout;
  const auto left = [&] { return std::max(base::Nanos(0), deadline - base::Clock::Steady().Now()); };
  siginfo_t info = {};
  for (;;) {
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    const int ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left()).count());
    if (poll(&ended, 1, ms) <= 0) return std::nullopt;
    if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0) return std::nullopt;
    if (info.si_pid != 0) break;
    // It has ended, and whoever traces it has not heard of it yet.
    if (left() == base::Nanos(0)) return std::nullopt;
    std::this_thread::sleep_for(std::min(left(), base::Nanos(std::chrono::milliseconds(5))));
  }
  signal_ = info.si_code == CLD_EXITED ? 0 : info.si_status;
  exit_code_ = info.si_code == CLD_EXITED ? info.si_status : -1;
  ending_ = info.si_code == CLD_EXITED ? base::Cat("exited with ", info.si_status)
                                       : base::Cat("killed by signal ", info.si_status);
  return ending_;
}

}  // namespace hir::service
