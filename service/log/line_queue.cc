#include "service/log/line_queue.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace hir::service {
namespace {

int64_t NumLines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

// How much of `text` was written: all of it, or what there was before an error that will not go.
size_t WriteAll(int fd, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {  // Somebody else has made it so.
      pollfd ready = {fd, POLLOUT, 0};
      (void)poll(&ready, 1, -1);
    } else if (count == 0 || errno != EINTR) {
      break;
    }
  }
  return done;
}

}  // namespace

struct LineQueue::State {
  State(int the_fd, size_t the_bytes_max, Notice the_notice)
      : fd(the_fd), bytes_max(the_bytes_max), notice(std::move(the_notice)) {}

  const int fd;
  const size_t bytes_max;
  const Notice notice;
  std::mutex mutex;  // Guards all below.
  std::condition_variable changed;
  std::string waiting;
  int64_t untold = 0;   // Lines dropped behind `waiting`.
  int64_t dropped = 0;  // In all.
  bool writing = false;
  bool stopping = false;
};

LineQueue::LineQueue(int fd, size_t bytes_max, Notice notice)
    : state_(std::make_shared<State>(fd, bytes_max, std::move(notice))) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { Write(state); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineQueue::~LineQueue() {
  const std::scoped_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void LineQueue::Add(std::string_view line) {
  const std::scoped_lock lock(state_->mutex);
  // Behind lines that were dropped there is no room until their notice is on its way: lines stay in order.
  if (state_->untold > 0 || state_->waiting.size() + line.size() > state_->bytes_max) {
    ++state_->untold;
    ++state_->dropped;
    return;
  }
  state_->waiting += line;
  if (!state_->writing) state_->changed.notify_all();
}

bool LineQueue::Flush(base::Nanos timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(
      lock, timeout, [this] { return state_->waiting.empty() && state_->untold == 0 && !state_->writing; });
}

int64_t LineQueue::dropped() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->dropped;
}

void LineQueue::Write(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stopping || !state->waiting.empty() || state->untold > 0; });
    if (state->stopping) return;
    std::string text = std::exchange(state->waiting, {});
    const int64_t untold = std::exchange(state->untold, 0);
    state->writing = true;
    lock.unlock();
    if (untold > 0) text += state->notice(untold);
    const size_t written = WriteAll(state->fd, text);
    lock.lock();
    state->dropped += NumLines(std::string_view(text).substr(written)) - (untold > 0 && written < text.size() ? 1 : 0);
    state->writing = false;
    state->changed.notify_all();
  }
}

}  // namespace hir::service
