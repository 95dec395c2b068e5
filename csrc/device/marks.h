// Marks: points in streams' work with the time at which the work got there. Timelines are made of them.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/stream.h"

namespace hir::device {

// Times are of the machine's steady clock (base::Clock::Steady), so that those of all devices and processes of a
// machine compare; a device with a clock of its own knows them to some microseconds. Made by Device::CreateMarks for
// one run: the clocks are compared when it is made, and drift apart. Goes after the work that it marks is over.
//
// Threads: one at a time.
class Marks {
 public:
  virtual ~Marks() = default;
  // Marks this point of `stream`; numbers count from 0. REQUIRES: the stream is not captured.
  // Errors: the device's, kResourceExhausted where it has no more events.
  virtual Result<int64_t> Mark(Stream& stream) = 0;
  // Errors: kFailedPrecondition where the work has not got there, or a failure before it kept it from it.
  virtual Result<base::Nanos> TimeOf(int64_t mark) const = 0;
};

}  // namespace hir::device
