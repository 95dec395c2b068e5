// LineQueue: lines on their way to a descriptor, written by a thread of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"

namespace hir::service {

// Thread-safe. Nobody who adds a line waits for who takes it: beyond `bytes_max` that wait, lines are dropped and
// counted; where they are missing there is a line that says so, `notice(how many)`.
class LineQueue {
 public:
  using Notice = std::function<std::string(int64_t dropped)>;
  // `fd` stays the caller's, and open. All signals are blocked in the thread.
  LineQueue(int fd, size_t bytes_max, Notice notice);
  // Does not wait: what is not written is lost, and a write that blocks goes on by itself. Flush first.
  ~LineQueue();
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;

  // `line` with its newline.
  void Add(std::string_view line);
  // Whether all that was added before is written, dropped or refused, within `timeout`.
  bool Flush(base::Nanos timeout);
  // Lines that nobody will see: there was no room for them, or the descriptor refused them.
  int64_t dropped() const;

 private:
  struct State;
  static void Write(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // The thread's, too.
};

}  // namespace hir::service
