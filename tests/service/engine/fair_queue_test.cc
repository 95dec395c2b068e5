// Turns between principals and their sessions: fair by time, in order within a session.
#include "service/engine/fair_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Owner kAnn = {"ann", "1"}, kAnnToo = {"ann", "2"}, kBob = {"bob", "3"};

// The next `turns`, each of which takes as long as `times` says of its session.
std::string Turns(FairQueue<int>& queue, int turns, const std::map<std::string, base::Nanos>& times = {}) {
  std::string order;
  for (int i = 0; i < turns; ++i) {
    const auto turn = queue.Pop();
    if (!turn) return order + "-";
    const auto time = times.find(turn->owner.session);
    queue.Charge(turn->owner, time == times.end() ? milliseconds(1) : time->second);
    order += turn->owner.session;
  }
  return order;
}

void Fill(FairQueue<int>& queue, const Owner& owner, int count) {
  for (int i = 0; i < count; ++i) queue.Push(owner, i);
}

TEST(FairQueue, KeepsTheOrderOfASession) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop()->item, i);
  EXPECT_FALSE(queue.Pop().has_value());
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, WhoFloodsWaitsForHimself) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 100);
  EXPECT_EQ(Turns(queue, 5), "11111");
  Fill(queue, kBob, 3);
  // Bob owes nothing for the time that he was away, and gets nothing for it.
  EXPECT_EQ(Turns(queue, 8), "31313111");
}

TEST(FairQueue, SharesPrincipalsFirstThenSessions) {
  FairQueue<int> queue;
  for (const Owner& owner : {kAnn, kAnnToo, kBob}) Fill(queue, owner, 100);
  const std::string order = Turns(queue, 40);
  EXPECT_EQ(std::ranges::count(order, '3'), 20) << order;
  EXPECT_EQ(std::ranges::count(order, '1'), 10) << order;
}

TEST(FairQueue, SharesTimeNotTurns) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 100);
  Fill(queue, kBob, 100);
  const std::string order = Turns(queue, 44, {{"1", milliseconds(10)}, {"3", milliseconds(1)}});
  EXPECT_EQ(std::ranges::count(order, '1'), 4) << order;
}

TEST(FairQueue, WhoUsedMuchWaitsTenSecondsAtMost) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 2);
  Fill(queue, kBob, 100);
  const std::string order = Turns(queue, 30, {{"1", seconds(100)}, {"3", seconds(1)}});
  EXPECT_EQ(order.substr(0, 1), "1");
  EXPECT_EQ(order.find('1', 1), 11u) << order;
}

TEST(FairQueue, CountsWhatDidNotWait) {
  FairQueue<int> queue;
  for (int i = 0; i < 5; ++i) {  // Begun as they came.
    queue.Start(kAnn);
    queue.Charge(kAnn, milliseconds(1));
  }
  Fill(queue, kAnn, 3);
  Fill(queue, kBob, 3);
  EXPECT_EQ(Turns(queue, 6), "313131") << "a turn ahead, not five";
}

TEST(FairQueue, OfEqualsTheSmallestIsFirst) {
  FairQueue<int> queue;
  queue.Push(kAnn, 0, 100);
  queue.Push(kAnnToo, 0, 10);
  EXPECT_EQ(Turns(queue, 2), "21");
  queue.Push(kAnn, 0, 100);
  queue.Push(kAnnToo, 0, 10);
  queue.Push(kAnnToo, 0, 10);
  EXPECT_EQ(Turns(queue, 3), "212") << "the large one does not wait for all small ones";
}

TEST(FairQueue, PassesOverWhoMayNot) {
  FairQueue<int> queue;
  for (const Owner& owner : {kAnn, kAnnToo, kBob}) Fill(queue, owner, 1);
  const auto next = [&](std::string_view principal, std::string_view session) {
    const auto turn =
        queue.Pop([&](const std::string& one, const std::string& of) { return one == principal || of == session; });
    return turn ? turn->owner.session : "-";
  };
  EXPECT_EQ(next("bob", ""), "3");
  EXPECT_EQ(next("bob", ""), "-");
  EXPECT_EQ(next("", "2"), "2");
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(next("ann", ""), "1");
}

// Ann's long turn is charged when it is over, whoever had turns meanwhile.
TEST(FairQueue, ATurnBesideOthersIsChargedWhole) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 3);
  Fill(queue, kBob, 9);
  ASSERT_EQ(queue.Pop()->owner.session, "1");
  const auto not_ann = [](const std::string& principal, const std::string&) { return principal != "ann"; };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue.Pop(not_ann).has_value());
    queue.Charge(kBob, milliseconds(1));
  }
  queue.Charge(kAnn, milliseconds(5));
  EXPECT_EQ(Turns(queue, 8), "33131333") << "5 ms for 3 ms";
}

TEST(FairQueue, RemovesASessionAlone) {
  FairQueue<int> queue;
  Fill(queue, kAnn, 3);
  Fill(queue, kAnnToo, 2);
  Fill(queue, kBob, 1);
  EXPECT_EQ(queue.Remove(kAnn), (std::vector{0, 1, 2}));
  EXPECT_TRUE(queue.Remove(kAnn).empty());
  EXPECT_EQ(queue.size(), 3);
  EXPECT_EQ(queue.size_of(kAnn), 0);
  EXPECT_EQ(queue.size_of(kAnnToo), 2);
  EXPECT_EQ(queue.RemoveAll().size(), 3u);
  EXPECT_EQ(Turns(queue, 1), "-");
}

}  // namespace
}  // namespace hir::service
