// A child that SIGKILL does not end for its parent: another process traces it, and has not heard of its end.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "csrc/base/fd.h"

namespace hir::service {

class Tracer {
 public:
  explicit Tracer(pid_t traced) {
    int told[2] = {}, kept[2] = {};
    if (pipe(told) != 0 || pipe(kept) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(kept[1]);
      const int error = ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 0 : errno;
      (void)!write(told[1], &error, sizeof(error));
      char end = 0;
      (void)!read(kept[0], &end, 1);  // Until the test lets go.
      _exit(0);
    }
    close(kept[0]);
    kept_ = base::Fd(kept[1]);
    (void)!read(told[0], &error_, sizeof(error_));
    close(told[0]);
    close(told[1]);
  }
  ~Tracer() { LetGo(); }

  int error() const { return error_; }  // 0: it traces.
  void LetGo() {
    if (pid_ <= 0) return;
    kept_.Close();
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int error_ = ECHILD;
  base::Fd kept_;
};

}  // namespace hir::service
