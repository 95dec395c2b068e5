#include "tools/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "csrc/base/text.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience = milliseconds(200);  // What is over before is not mentioned.
constexpr milliseconds kRefresh = milliseconds(100);
constexpr const char* kErase = "\r\x1b[K";

}  // namespace

Progress::Progress() : shown_(isatty(STDERR_FILENO) == 1) {
  if (shown_) thread_ = std::thread([this] { Loop(); });
}

Progress::~Progress() {
  if (!shown_) return;
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Progress::Stage::Stage(Progress& progress, std::string what) : progress_(progress) {
  const std::scoped_lock lock(progress_.mutex_);
  progress_.what_ = std::move(what);
  progress_.start_ = base::Clock::Steady().Now();
  progress_.bytes_ = progress_.total_bytes_ = 0;
  progress_.changed_.notify_all();
}

Progress::Stage::~Stage() {
  const std::scoped_lock lock(progress_.mutex_);
  progress_.what_.clear();
  if (std::exchange(progress_.drawn_, false)) std::fputs(kErase, stderr);
}

void Progress::Stage::Moved(int64_t bytes, int64_t total_bytes) const {
  const std::scoped_lock lock(progress_.mutex_);
  progress_.bytes_ = bytes;
  progress_.total_bytes_ = total_bytes;
}

std::string Progress::Line() const {
  const double seconds =
      std::chrono::duration<double>(base::Clock::Steady().Now() - start_).count();
  std::string line = base::Cat("hostir: ", what_, "  ", Fixed(seconds, 1), " s");
  if (total_bytes_ > 0) {
    base::Append(line, "  ", bytes_ * 100 / total_bytes_, " % of ", Bytes(total_bytes_), ", ",
                 Bytes(static_cast<int64_t>(static_cast<double>(bytes_) / seconds)), "/s");
  }
  return line;
}

void Progress::Loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (what_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (base::Clock::Steady().Now() - start_ >= kPatience) {
      std::fputs(base::Cat(kErase, Line()).c_str(), stderr);
      drawn_ = true;
    }
    changed_.wait_for(lock, kRefresh);
  }
}

}  // namespace hir::cli
