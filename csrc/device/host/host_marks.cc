#include "csrc/device/host/host_marks.h"

#include "csrc/base/text.h"

namespace hir::device {

Result<int64_t> HostMarks::Mark(Stream& stream) {
  std::atomic<base::Nanos>& time = times_.emplace_back();
  stream.HostCallback([&time] {
    time = base::Clock::Steady().Now();
    return Status();
  });
  return std::ssize(times_) - 1;
}

Result<base::Nanos> HostMarks::TimeOf(int64_t mark) const {
  const base::Nanos time = times_.at(static_cast<size_t>(mark));
  if (time == base::Nanos{}) return Status(Code::kFailedPrecondition, base::Cat("mark ", mark, " was not reached"));
  return time;
}

}  // namespace hir::device
