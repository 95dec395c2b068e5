// The pool's promises: a full queue refuses, the destructor runs what is queued, ParallelFor covers
// every index once. Threads are held and released by latches; nothing sleeps.
#include "csrc/base/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

namespace hir::base {
namespace {

TEST(WorkPool, RefusesWhenTheQueueIsFullAndTakesWorkAgainAfterwards) {
  std::latch entered(1);
  std::latch release(1);
  std::latch drained(3);
  std::atomic<int> ran = 0;
  WorkPool pool({.num_threads = 1, .queue_depth_max = 2});
  const auto count = [&] {
    ++ran;
    drained.count_down();
  };
  ASSERT_TRUE(pool.Post([&] {
    entered.count_down();
    release.wait();
    count();
  }));
  entered.wait();  // The thread is busy and the queue empty.
  EXPECT_TRUE(pool.Post(count));
  EXPECT_TRUE(pool.Post(count));
  EXPECT_FALSE(pool.Post(count)) << "two of two are queued";
  release.count_down();
  drained.wait();
  EXPECT_EQ(ran, 3) << "what was refused did not run";

  std::latch again(1);
  EXPECT_TRUE(pool.Post([&] { again.count_down(); }));
  again.wait();
}

TEST(WorkPool, TheDestructorRunsWhatIsQueued) {
  std::latch entered(1);
  std::latch release(1);
  std::atomic<int> ran = 0;
  {
    WorkPool pool({.num_threads = 1, .queue_depth_max = 100});
    ASSERT_TRUE(pool.Post([&] {
      entered.count_down();
      release.wait();
    }));
    entered.wait();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool.Post([&] { ++ran; }));
    EXPECT_EQ(ran, 0);
    release.count_down();
  }
  EXPECT_EQ(ran, 100);
}

TEST(WorkPool, WithoutThreadsQueuesUpToTheLimit) {
  WorkPool pool({.num_threads = 0, .queue_depth_max = 1});
  EXPECT_TRUE(pool.Post([] {}));
  EXPECT_FALSE(pool.Post([] {}));
}

TEST(WorkPool, AThreadIsLentOnlyInPlaceOfOneOfThePool) {
  std::latch entered(1);
  std::latch release(1);
  std::latch done(1);
  WorkPool pool({.num_threads = 1});
  ASSERT_TRUE(pool.Post([&] {
    entered.count_down();
    release.wait();
  }));
  entered.wait();
  std::thread::id ran_by;
  ASSERT_TRUE(pool.Post([&] {
    ran_by = std::this_thread::get_id();
    done.count_down();
  }));
  EXPECT_FALSE(pool.LendThread()) << "one of one thread is at work";
  release.count_down();
  done.wait();
  EXPECT_FALSE(pool.LendThread()) << "nothing is queued";
  EXPECT_NE(ran_by, std::this_thread::get_id());
}

// Two threads that post, and lend themselves until what they posted is done.
TEST(WorkPool, WithLentThreadsNeverMoreRunThanThePoolHas) {
  constexpr int kRounds = 5000;
  for (const int threads : {1, 2, 3}) {
    WorkPool pool({.num_threads = threads});
    std::atomic<int> running = 0, most = 0, lent = 0, over = 0;
    const auto lend_until_done = [&] {
      const std::thread::id me = std::this_thread::get_id();
      for (int round = 0; round < kRounds; ++round) {
        std::atomic<int> left = 3;
        const auto work = [&] {
          const int now = ++running;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          if (std::this_thread::get_id() == me) ++lent;
          --running;
          ++over;
          --left;
        };
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Post(work));
        while (left > 0) {
          if (!pool.LendThread()) std::this_thread::yield();
        }
      }
    };
    {
      const std::jthread other(lend_until_done);
      lend_until_done();
    }
    EXPECT_EQ(over, 2 * 3 * kRounds) << threads;
    EXPECT_GT(lent, 0) << threads;
    EXPECT_LE(most, threads);
  }
}

class ParallelFor : public testing::TestWithParam<int> {};

TEST_P(ParallelFor, CoversEachIndexOnceInPiecesOfTheGrain) {
  WorkPool pool({.num_threads = GetParam()});
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const int64_t count : {0, 1, 2, 7, 64, 1000, 4097}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      std::atomic<int64_t> short_pieces = 0;
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        ASSERT_LE(end, count);
        if (end - begin < grain) ++short_pieces;
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const std::atomic<int>& visit : visits) ASSERT_EQ(visit, 1) << count << " by " << grain;
      EXPECT_LE(short_pieces, 1) << "only the last piece is shorter than the grain";
    }
  }
}

TEST_P(ParallelFor, ReturnsOnlyWhenAllIsDoneAndVisible) {
  WorkPool pool({.num_threads = GetParam()});
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> squares(512,
                                 -1);  // Plain memory: the thread sanitizer sees a missing edge.
    pool.ParallelFor(512, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) squares[static_cast<size_t>(i)] = i * i;
    });
    for (int64_t i = 0; i < 512; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * i);
  }
}

TEST_P(ParallelFor, WorksWhileTheQueueIsFull) {
  std::latch release(1);
  std::latch entered(GetParam());
  WorkPool pool({.num_threads = GetParam(), .queue_depth_max = 3});
  for (int i = 0; i < GetParam(); ++i) {
    ASSERT_TRUE(pool.Post([&] {
      entered.count_down();
      release.wait();
    }));
    if (i == GetParam() - 1) entered.wait();
  }
  while (pool.Post([] {})) {
  }
  int64_t covered = 0;  // Only this thread can be at work.
  pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end) { covered += end - begin; });
  EXPECT_EQ(covered, 100);
  release.count_down();
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, testing::Values(0, 1, 3));

}  // namespace
}  // namespace hir::base
