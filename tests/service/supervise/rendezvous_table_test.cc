// Goal: whoever asks for a key gets its value once it is there, and nobody fills the memory of who keeps them.
// Method: a table alone, as its fleet uses it.
#include "service/supervise/rendezvous_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hir::service {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RendezvousTable, TellsWhoAskedBefore) {
  RendezvousTable table;
  EXPECT_EQ(*table.Get(3, "a"), nullptr);
  EXPECT_EQ(*table.Get(1, "a"), nullptr);
  EXPECT_EQ(*table.Get(1, "a"), nullptr);
  EXPECT_TRUE(table.IsWanted("a"));
  EXPECT_THAT(*table.Publish("a", "value"), ElementsAre(1, 3));
  EXPECT_FALSE(table.IsWanted("a"));
  EXPECT_EQ(**table.Get(2, "a"), "value");
}

TEST(RendezvousTable, TheFirstValueStays) {
  RendezvousTable table;
  EXPECT_THAT(*table.Publish("a", "first"), IsEmpty());
  EXPECT_THAT(*table.Publish("a", "second"), IsEmpty());
  EXPECT_EQ(**table.Get(0, "a"), "first");
}

TEST(RendezvousTable, HasALimit) {
  RendezvousTable table;
  const std::string value(1 << 20, 'v');
  Status status;
  int count = 0;
  for (; status.ok() && count < 100; ++count) status = table.Publish(std::to_string(count), value).status();
  EXPECT_EQ(count, 16);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

// Who was told counts no more.
TEST(RendezvousTable, AskingAndHearingCanGoOn) {
  RendezvousTable table;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = std::to_string(i) + std::string(1000, 'k');
    for (int64_t who = 0; who < 16; ++who) ASSERT_TRUE(table.Get(who, key).ok()) << i;
    ASSERT_TRUE(table.Publish(key, "").ok()) << i;
  }
}

}  // namespace
}  // namespace hir::service
