#include "service/os/first_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>

namespace hir::service {
namespace {

constexpr int kOfSignal = 128;  // As shells count.

// Ends with `child`. All `signals` are blocked.
[[noreturn]] void BeFirst(pid_t child, const sigset_t& signals) {
  close_range(STDERR_FILENO + 1, UINT_MAX, 0);  // Their readers wait until all who have them have ended.
  for (;;) {
    siginfo_t said = {};
    const int number = sigwaitinfo(&signals, &said);
    if (number == SIGCHLD) {
      int status = 0;
      for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (ended == child) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : kOfSignal + WTERMSIG(status));
      }
    } else if (number > 0 && said.si_code != SI_KERNEL) {  // A terminal's Ctrl-C reaches the child by itself.
      kill(child, number);
    }
  }
}

}  // namespace

void LeaveFirstProcess() {
  if (getpid() != 1) return;
  sigset_t signals, before;
  sigfillset(&signals);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = fork();
  if (child > 0) BeFirst(child, signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);  // Where there is no other process it is the first after all.
}

}  // namespace hir::service
