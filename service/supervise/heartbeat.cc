#include "service/supervise/heartbeat.h"

#include <algorithm>

namespace hir::service {

void Heartbeat::Heard(base::Nanos now) {
  heard_at_ = now;
  asked_ = false;
}

Heartbeat::Next Heartbeat::Look(base::Nanos now, bool answered) {
  if (every_ == base::Nanos{}) return Next::kNothing;
  if (!asked_) {
    if (now < heard_at_ + every_) return Next::kNothing;
    asked_ = true;
    looked_at_ = now;
    silent_for_ = {};
    return Next::kAsk;
  }
  if (answered) {
    Heard(now);
    return Next::kNothing;
  }
  silent_for_ += std::min(now - looked_at_, every_);
  looked_at_ = now;
  return silent_for_ >= silence_max_ ? Next::kGiveUp : Next::kNothing;
}

base::Nanos Heartbeat::due() const {
  if (every_ == base::Nanos{}) return base::Nanos::max();
  return (asked_ ? looked_at_ : heard_at_) + every_;
}

}  // namespace hir::service
