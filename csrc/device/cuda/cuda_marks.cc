#include "csrc/device/cuda/cuda_marks.h"

#include <utility>

#include "csrc/device/cuda/cuda_device.h"

namespace hir::device::cuda {
namespace {

// The host sees an event between two looks at its clock; of some tries the closest is taken.
constexpr int kTries = 8;
constexpr base::Nanos kTimeout = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<Marks>> CudaMarks::Create(Device& device) {
  std::unique_ptr<CudaMarks> marks(new CudaMarks(device));
  HIR_ASSIGN(const std::unique_ptr<Stream> stream, device.CreateUrgentStream());
  HIR_ASSIGN(marks->origin_, CreateTimedEvent(device));
  HIR_ASSIGN(std::unique_ptr<Event> other, CreateTimedEvent(device));
  base::Nanos closest = base::Nanos::max();
  for (int i = 0; i < kTries; ++i) {
    const base::Nanos before = base::Clock::Steady().Now();
    stream->Record(*other);
    HIR_TRY(other->Synchronize(kTimeout));
    const base::Nanos after = base::Clock::Steady().Now();
    if (after - before >= closest) continue;
    closest = after - before;
    std::swap(marks->origin_, other);
    marks->origin_time_ = before + closest / 2;
  }
  return marks;
}

Result<int64_t> CudaMarks::Mark(Stream& stream) {
  HIR_ASSIGN(std::unique_ptr<Event> event, CreateTimedEvent(device_));
  stream.Record(*event);
  events_.push_back(std::move(event));
  return std::ssize(events_) - 1;
}

Result<base::Nanos> CudaMarks::TimeOf(int64_t mark) const {
  HIR_ASSIGN(const double ms, ElapsedMs(*origin_, *events_.at(static_cast<size_t>(mark))));
  return origin_time_ + std::chrono::duration_cast<base::Nanos>(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace hir::device::cuda
