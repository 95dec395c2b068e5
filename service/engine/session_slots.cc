#include "service/engine/session_slots.h"

namespace hir::service {

SessionSlots::Slot SessionSlots::Take(const std::string& session) {
  const std::scoped_lock lock(taken_->mutex);
  const auto found = taken_->of_session.find(session);
  if ((found == taken_->of_session.end() ? 0 : found->second) >= most_) return nullptr;
  ++taken_->of_session[session];
  // It belongs to no object: its end counts.
  return {static_cast<const void*>(taken_.get()), [taken = taken_, session](const void*) {
            const std::scoped_lock held(taken->mutex);
            const auto its = taken->of_session.find(session);
            if (--its->second == 0) taken->of_session.erase(its);
          }};
}

}  // namespace hir::service
