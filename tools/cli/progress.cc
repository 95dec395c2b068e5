#include "tools/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "csrc/base/text.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

constexpr milliseconds kPatience = milliseconds(1000);  // What is over before is not mentioned.
constexpr milliseconds kRefresh = milliseconds(100);
constexpr milliseconds kLogPause = milliseconds(1000);
constexpr const char* kErase = "\r\x1b[K";

std::string Words(const pb::PlanProgress& progress) {
  if (progress.stage() == pb::PlanProgress::STAGE_QUEUED && progress.plans_before() > 0)
    return base::Cat("waiting for ", Counted(progress.plans_before(), "other plan"));
  if (progress.stage() == pb::PlanProgress::STAGE_PLANNING) return "planning";
  if (progress.stage() == pb::PlanProgress::STAGE_COMPILING)
    return base::Cat("compiling ", progress.kernels_compiled(), " of ", Counted(progress.kernels(), "kernel"));
  return "";  // Of the stage itself.
}

}  // namespace

Progress::Progress(bool asked)
    : shown_(isatty(STDERR_FILENO) == 1 ? Shown::kLine
             : asked                    ? Shown::kLog
                                        : Shown::kNothing) {
  if (shown_ == Shown::kLine) thread_ = std::thread([this] { Loop(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
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
  progress_.Log(progress_.what_);
  progress_.changed_.notify_all();
}

Progress::Stage::~Stage() {
  const std::scoped_lock lock(progress_.mutex_);
  progress_.what_.clear();
  progress_.plan_.clear();
  if (std::exchange(progress_.drawn_, false)) std::fputs(kErase, stderr);
}

void Progress::Stage::Moved(int64_t bytes, int64_t total_bytes) const {
  const std::scoped_lock lock(progress_.mutex_);
  progress_.bytes_ = bytes;
  progress_.total_bytes_ = total_bytes;
  progress_.Log(progress_.what_);
}

void Progress::Plan(const pb::PlanProgress& progress) {
  const std::scoped_lock lock(mutex_);
  if (what_.empty()) return;  // Of a stage that is over.
  plan_ = Words(progress);
  if (!plan_.empty()) Log(pb::PlanProgress::Stage_Name(progress.stage()));
}

void Progress::Log(std::string_view what_kind) {
  const base::Nanos now = base::Clock::Steady().Now();
  if (shown_ != Shown::kLog || (what_kind == logged_ && now - logged_at_ < kLogPause)) return;
  logged_ = what_kind;
  logged_at_ = now;
  std::fputs(base::Cat(Line(), "\n").c_str(), stderr);
}

std::string Progress::Line() const {
  const double seconds = std::chrono::duration<double>(base::Clock::Steady().Now() - start_).count();
  std::string line = base::Cat("hostir: ", plan_.empty() ? what_ : plan_, ", ", Fixed(seconds, 1), " s");
  if (total_bytes_ > 0) {
    base::Append(line, ", ", bytes_ * 100 / total_bytes_, " % of ", Bytes(total_bytes_), ", ",
                 Bytes(static_cast<int64_t>(static_cast<double>(bytes_) / std::max(seconds, 1e-3))), "/s");
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
      // One row: what is longer could not be erased.
      std::fputs(base::Cat(kErase, Fitted(Line(), SizeOfTerminal(STDERR_FILENO))).c_str(), stderr);
      drawn_ = true;
    }
    changed_.wait_for(lock, kRefresh);
  }
}

}  // namespace hir::cli
