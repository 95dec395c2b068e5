// CudaMarks: marks by events that keep the time, put on the machine's clock by one whose time is known on both.
#pragma once

#include <memory>
#include <vector>

#include "csrc/device/device.h"

namespace hir::device::cuda {

class CudaMarks final : public Marks {
 public:
  // Waits for the device a few times, on a stream of its own. Errors: the driver's.
  static Result<std::unique_ptr<Marks>> Create(Device& device);

  Result<int64_t> Mark(Stream& stream) override;
  Result<base::Nanos> TimeOf(int64_t mark) const override;

 private:
  explicit CudaMarks(Device& device) : device_(device) {}

  Device& device_;
  std::unique_ptr<Event> origin_;
  base::Nanos origin_time_ = {};
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace hir::device::cuda
