#include "tools/cli/ending.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "csrc/base/clock.h"

namespace hir::cli {

Ending::Ending() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  signals_ = base::Fd(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  // In the background, setting the mode would stop the process.
  termios mode = {};
  if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &mode) != 0) return;
  before_ = mode;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  mode.c_cc[VMIN] = 0;  // A read takes what there is.
  mode.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &mode);
}

Ending::~Ending() {
  if (before_) tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

bool Ending::Within(double seconds) {
  using std::chrono::milliseconds;
  const base::Nanos deadline =
      base::Clock::Steady().Now() + std::chrono::ceil<base::Nanos>(std::chrono::duration<double>(seconds));
  for (;;) {
    pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {before_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const base::Nanos left = deadline - base::Clock::Steady().Now();
    const int64_t ms = std::max<int64_t>(0, std::chrono::ceil<milliseconds>(left).count());
    const int ready = poll(fds, 2, static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
    if (ready == 0) return false;
    if (ready < 0) continue;
    if (fds[0].revents != 0 || (fds[1].revents != 0 && AskedByKey())) return true;
  }
}

bool Ending::AskedByKey() {
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
  if (count <= 0) return true;  // The terminal has gone.
  const std::string_view pressed(keys, static_cast<size_t>(count));
  return pressed.find_first_of("qQ") != std::string_view::npos;
}

}  // namespace hir::cli
