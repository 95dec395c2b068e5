// HostMarks: marks by callbacks that read the clock.
#pragma once

#include <atomic>
#include <deque>

#include "csrc/device/marks.h"

namespace hir::device {

class HostMarks final : public Marks {
 public:
  Result<int64_t> Mark(Stream& stream) override;
  Result<base::Nanos> TimeOf(int64_t mark) const override;

 private:
  std::deque<std::atomic<base::Nanos>> times_;  // Elements stay where they are; 0: not there yet.
};

}  // namespace hir::device
