#include "service/engine/early_ends.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {

Status RunDeadline::Passed(const std::string& run, std::string_view when) const {
  return {Code::kDeadlineExceeded, base::Cat(run, ": deadline_ms = ", ms, " passed ", when)};
}

void EarlyEnds::Wait(const Owner& owner, int64_t run, const RunDeadline& deadline) {
  if (deadline.there()) waiting_.emplace(std::pair(deadline.at, run), owner);
}

void EarlyEnds::WaitNoMore(int64_t run, const RunDeadline& deadline) {
  if (deadline.there()) waiting_.erase({deadline.at, run});
}

std::optional<std::pair<Owner, int64_t>> EarlyEnds::TakeLate(base::Nanos now) {
  if (waiting_.empty() || waiting_.begin()->first.first > now) return {};
  const auto node = waiting_.extract(waiting_.begin());
  return std::pair(node.mapped(), node.key().second);
}

void EarlyEnds::Start(const Owner& owner, int64_t run, std::string what, const RunDeadline& deadline, base::Nanos now) {
  under_way_ = {.owner = owner, .run = run, .what = std::move(what), .since = now};
  if (!deadline.there()) return;
  under_way_->ends_at = GivenUpAt(deadline, now);
  under_way_->cause = deadline.Passed(under_way_->what, "while it ran");
}

bool EarlyEnds::IsUnderWay(const Owner& owner, int64_t run) const {
  return under_way_ && under_way_->run == run && under_way_->owner == owner;
}

// The first cause counts: a deadline that has passed before is one.
void EarlyEnds::Cancel(std::string_view who, base::Nanos now) {
  const base::Nanos at = std::max(now, under_way_->since + grace_);
  if (at >= under_way_->ends_at) return;
  under_way_->ends_at = at;
  under_way_->cause = Status(Code::kCancelled, base::Cat(under_way_->what, ": ", who, " while it ran"));
}

base::Nanos EarlyEnds::GivenUpAt(const RunDeadline& deadline, base::Nanos now) const {
  return deadline.there() ? std::max(deadline.at, now + grace_) : base::Nanos::max();
}

base::Nanos EarlyEnds::next() const {
  const base::Nanos late = waiting_.empty() ? base::Nanos::max() : waiting_.begin()->first.first;
  return under_way_ ? std::min(late, under_way_->ends_at) : late;
}

Status EarlyEnds::GivenUp(base::Nanos now) const {
  return under_way_ && now >= under_way_->ends_at ? under_way_->cause : Status();
}

}  // namespace hir::service
