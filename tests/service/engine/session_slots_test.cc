// Goal: a session has as many slots as it may, others have theirs, and one that is let go of is free again.
// Method: SessionSlots alone.
#include "service/engine/session_slots.h"

#include <gtest/gtest.h>

#include <optional>

namespace hir::service {
namespace {

TEST(SessionSlots, AreForEachSession) {
  SessionSlots slots(2);
  SessionSlots::Slot first = slots.Take("a");
  const SessionSlots::Slot second = slots.Take("a");
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(slots.Take("a"), nullptr);
  EXPECT_NE(slots.Take("b"), nullptr);
  first = nullptr;
  first = slots.Take("a");
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(slots.Take("a"), nullptr);
  EXPECT_EQ(SessionSlots(0).Take("a"), nullptr);
}

TEST(SessionSlots, MayBeHeldForLonger) {
  std::optional<SessionSlots> slots(1);
  const SessionSlots::Slot slot = slots->Take("a");
  slots.reset();
  EXPECT_NE(slot, nullptr);
}

}  // namespace
}  // namespace hir::service
