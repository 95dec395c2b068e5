#include "service/metrics/flight_recorder.h"

#include <algorithm>
#include <cstring>

namespace hir::service {
namespace {

// As much of `text` as `into` holds.
template <size_t kSize>
std::string_view Copied(std::string_view text, std::array<char, kSize>& into) {
  const size_t size = std::min(text.size(), kSize);
  if (size > 0) std::memcpy(into.data(), text.data(), size);
  return {into.data(), size};
}

// Text travels as UTF-8, which a beginning may be no more.
std::string Shown(std::string_view text) {
  std::string shown(text);
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

}  // namespace

void FlightRecorder::Add(const Event& event) {
  const base::Nanos now = base::Clock::Steady().Now();
  const std::scoped_lock lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(total_++) % kEvents];
  slot.event = event;
  slot.event.at = now;
  slot.event.name = Copied(event.name, slot.name);
  slot.event.error = Copied(event.error, slot.error);
}

std::vector<FlightRecorder::Kept> FlightRecorder::Latest(int64_t after) const {
  std::vector<Kept> latest;
  const std::scoped_lock lock(mutex_);
  const int64_t first = std::clamp(after, std::max<int64_t>(0, total_ - static_cast<int64_t>(kEvents)), total_);
  latest.reserve(static_cast<size_t>(total_ - first));
  for (int64_t i = first; i < total_; ++i) {
    const Event& event = slots_[static_cast<size_t>(i) % kEvents].event;
    latest.push_back({event.at, std::string(event.kind), event.number, Shown(event.name), event.code,
                      Shown(event.error), event.took, event.waited});
  }
  return latest;
}

int64_t FlightRecorder::total() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

}  // namespace hir::service
