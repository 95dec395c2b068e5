// Goal: nothing that threads count at the same time is lost, and names have a bound. Method: threads that count, and
// what they should have come to.
#include "service/metrics/counts.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "service/metrics/by_name.h"

namespace hir::service {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(Histogram, BoundsAreOneTwoFive) {
  EXPECT_EQ(Histogram::kBounds.front(), microseconds(10));
  EXPECT_EQ(Histogram::kBounds[4], microseconds(200));
  EXPECT_EQ(Histogram::kBounds.back(), seconds(500));
}

TEST(Histogram, ABoundBelongsToWhatIsBelowIt) {
  Histogram histogram;
  histogram.Add(microseconds(10));
  histogram.Add(microseconds(11));
  histogram.Add(base::Nanos(-5));  // Clocks of two threads.
  histogram.Add(seconds(501));
  const auto counts = histogram.counts();
  EXPECT_EQ(counts[0], 2);
  EXPECT_EQ(counts[1], 1);
  EXPECT_EQ(counts.back(), 1);
  EXPECT_EQ(histogram.sum(), microseconds(21) + seconds(501));
}

TEST(Outcomes, AreByCode) {
  Outcomes outcomes;
  outcomes.Add(Code::kOk);
  outcomes.Add(Code::kUnauthenticated);
  outcomes.Add(Code::kUnauthenticated);
  EXPECT_EQ(outcomes.of(Code::kUnauthenticated), 2);
  EXPECT_EQ(outcomes.total(), 3);
}

TEST(Absence, OneThatLastsCounts) {
  Absence absence;
  EXPECT_EQ(absence.total(seconds(1)), base::Nanos{});
  absence.Begin(seconds(2));
  absence.Begin(seconds(3));  // Still the same.
  EXPECT_EQ(absence.total(seconds(5)), seconds(3));
  absence.End(seconds(6));
  absence.End(seconds(7));
  EXPECT_EQ(absence.total(seconds(9)), seconds(4));
}

TEST(ByName, NothingIsLostBetweenThreads) {
  constexpr int kThreads = 4, kRounds = 20000, kNames = 12;
  ByName<Counter, 8> counters;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&counters, t] {
      for (int i = 0; i < kRounds; ++i) counters.Of(std::to_string((i + t) % kNames)).Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, int64_t> counted;
  int64_t total = 0;
  counters.ForEach([&](std::string_view name, const Counter& counter) {
    counted[std::string(name)] = counter.value();
    total += counter.value();
  });
  EXPECT_EQ(counted.size(), 8U);
  EXPECT_EQ(total, kThreads * kRounds);
  // Whichever came first have a place of their own.
  EXPECT_GE(counted.at("other"), int64_t{kThreads} * kRounds * (kNames - 7) / kNames - kThreads * kNames);
}

}  // namespace
}  // namespace hir::service
