#include "multidevice/comm/ucx/shared_slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace hir::comm {
namespace {

constexpr int64_t kMax = 200;

// The slots of `ranks` ranks, each with a mapping of its own.
std::vector<std::unique_ptr<SharedSlots>> MakeSlots(int64_t ranks) {
  std::vector<std::unique_ptr<SharedSlots>> slots;
  SharedMemory memory = *SharedMemory::Create(SharedSlots::BytesFor(ranks, kMax));
  for (int64_t rank = 1; rank < ranks; ++rank) {
    slots.push_back(std::make_unique<SharedSlots>(*SharedMemory::Open(memory.Ticket()), ranks, rank, kMax));
  }
  memory.CloseFile();
  slots.insert(slots.begin(), std::make_unique<SharedSlots>(std::move(memory), ranks, int64_t{0}, kMax));
  return slots;
}

std::string Pattern(int64_t rank, int64_t number, int64_t bytes) {
  std::string text;
  for (int64_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(31 * rank + 7 * number + i));
  return text;
}

void Put(SharedSlots& slots, int64_t number, const std::string& text) {
  slots.Put(number, reinterpret_cast<const std::byte*>(text.data()), std::ssize(text));
}

std::string Text(const SharedSlots::Contribution& from) {
  return {reinterpret_cast<const char*>(from.data), static_cast<size_t>(from.bytes)};
}

TEST(SharedSlots, WhatIsPutIsGot) {
  const auto slots = MakeSlots(3);
  int64_t number = 0;
  // Both sides of what fits beside the number, and the most there is room for.
  for (const int64_t bytes : {0, 1, 47, 48, 49, 128, 199, 200}) {
    for (int64_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(slots[rank]->Admits(number));
      EXPECT_EQ(slots[0]->Get(rank, number).data, nullptr);
      Put(*slots[rank], number, Pattern(rank, number, bytes));
    }
    for (int64_t reader = 0; reader < 3; ++reader) {
      for (int64_t rank = 0; rank < 3; ++rank) {
        const SharedSlots::Contribution got = slots[reader]->Get(rank, number);
        ASSERT_NE(got.data, nullptr);
        EXPECT_EQ(Text(got), Pattern(rank, number, bytes));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data) % 16, 0u);
      }
      slots[reader]->Finish(number);
    }
    ++number;
  }
}

TEST(SharedSlots, TheFastestWaitsForTheSlowest) {
  constexpr int64_t kDepth = SharedSlots::kDepth;
  const auto slots = MakeSlots(2);
  for (int64_t number = 0; number < kDepth; ++number) {
    ASSERT_TRUE(slots[0]->Admits(number));
    Put(*slots[0], number, Pattern(0, number, 20));
    slots[0]->Finish(number);
  }
  EXPECT_FALSE(slots[0]->Admits(kDepth));
  EXPECT_EQ(slots[0]->WhoHolds(kDepth), 1);
  EXPECT_EQ(Text(slots[1]->Get(0, 0)), Pattern(0, 0, 20));
  slots[1]->Finish(0);
  EXPECT_TRUE(slots[0]->Admits(kDepth));
  EXPECT_FALSE(slots[0]->Admits(kDepth + 1));
  Put(*slots[0], kDepth, Pattern(0, kDepth, 200));
  EXPECT_EQ(Text(slots[1]->Get(0, 1)), Pattern(0, 1, 20));
  EXPECT_EQ(Text(slots[1]->Get(0, kDepth)), Pattern(0, kDepth, 200));
}

// What is finished out of order keeps its slot's successor out until all before it is finished, too.
TEST(SharedSlots, FinishedInAnyOrder) {
  constexpr int64_t kDepth = SharedSlots::kDepth;
  const auto slots = MakeSlots(2);
  for (int64_t number = kDepth - 1; number > 0; --number) {
    slots[0]->Finish(number);
    slots[1]->Finish(number);
    EXPECT_FALSE(slots[0]->Admits(kDepth));
  }
  slots[0]->Finish(0);
  EXPECT_EQ(slots[0]->WhoHolds(kDepth), 1);
  slots[1]->Finish(0);
  EXPECT_TRUE(slots[0]->Admits(2 * kDepth - 1));
  EXPECT_FALSE(slots[0]->Admits(2 * kDepth));
}

TEST(SharedSlots, WhoSleepsIsSeenByAll) {
  const auto slots = MakeSlots(2);
  EXPECT_FALSE(slots[1]->IsAsleep(0));
  slots[0]->SetAsleep(true);
  EXPECT_TRUE(slots[1]->IsAsleep(0));
  EXPECT_FALSE(slots[0]->IsAsleep(1));
  slots[0]->SetAsleep(false);
  EXPECT_FALSE(slots[1]->IsAsleep(0));
}

TEST(SharedSlots, CoresAreSeenByAll) {
  const auto slots = MakeSlots(2);
  EXPECT_EQ(slots[1]->Core(0), -1) << "not known yet";
  slots[0]->SetCore(0);
  EXPECT_EQ(slots[1]->Core(0), 0);
  slots[0]->SetCore(63);
  EXPECT_EQ(slots[1]->Core(0), 63);
  EXPECT_EQ(slots[0]->Core(1), -1);
}

}  // namespace
}  // namespace hir::comm
