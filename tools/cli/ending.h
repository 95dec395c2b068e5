// Ending: what asks a command that goes on and on to stop: SIGINT, SIGTERM, or the key q.
#pragma once

#include <termios.h>

#include <optional>

#include "csrc/base/fd.h"

namespace hir::cli {

// REQUIRES: no other threads yet: those that start later block the signals, too. Keys are read where standard input is
// a terminal and the command is in its foreground; until the end it then neither echoes nor waits for whole lines.
class Ending {
 public:
  Ending();
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  // Blocks for `seconds` at most; true as soon as the end is asked for.
  bool Within(double seconds);

 private:
  // Whether q is among the keys that were pressed.
  bool AskedByKey();

  base::Fd signals_;
  std::optional<termios> before_;  // The terminal's mode; nothing where no keys are read.
};

}  // namespace hir::cli
