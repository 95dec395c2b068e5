// Goal: the latest events are kept in order, with beginnings of their texts, and older ones counted; any thread adds.
#include "service/metrics/flight_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace hir::service {
namespace {

TEST(FlightRecorder, KeepsTheLatest) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.Latest().empty());
  const int64_t more = static_cast<int64_t>(FlightRecorder::kEvents) + 3;
  for (int64_t i = 0; i < more; ++i) recorder.Add({.kind = "run", .number = i, .name = "program"});
  const auto latest = recorder.Latest();
  ASSERT_EQ(latest.size(), FlightRecorder::kEvents);
  EXPECT_EQ(latest.front().number, 3);
  EXPECT_EQ(latest.back().number, more - 1);
  EXPECT_EQ(recorder.total(), more);
  EXPECT_LE(latest.front().at, latest.back().at);
}

TEST(FlightRecorder, WhoHasSeenSomeGetsTheRest) {
  FlightRecorder recorder;
  const int64_t more = static_cast<int64_t>(FlightRecorder::kEvents) + 3;
  for (int64_t i = 0; i < more; ++i) recorder.Add({.kind = "run", .number = i});
  const auto rest = recorder.Latest(more - 2);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest.front().number, more - 2);
  for (const int64_t after : {more, more + 1, INT64_MAX}) EXPECT_TRUE(recorder.Latest(after).empty()) << after;
  for (const int64_t after : {INT64_MIN, int64_t{-1}, int64_t{2}}) {
    const auto kept = recorder.Latest(after);
    EXPECT_EQ(kept.size(), FlightRecorder::kEvents) << after;
    EXPECT_EQ(kept.front().number, 3) << after;
  }
}

TEST(FlightRecorder, TextsAreBeginnings) {
  FlightRecorder recorder;
  const std::string name(100, 'n'), error = "caf\xc3\xa9\n" + std::string(200, 'e');
  recorder.Add({.kind = "request", .number = 1, .name = name, .code = Code::kInternal, .error = error});
  const auto latest = recorder.Latest();
  ASSERT_EQ(latest.size(), 1U);
  EXPECT_EQ(latest[0].name, std::string(40, 'n'));
  EXPECT_EQ(latest[0].error, "caf???" + std::string(114, 'e'));
  EXPECT_EQ(latest[0].code, Code::kInternal);
}

TEST(FlightRecorder, ManyThreads) {
  FlightRecorder recorder;
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&recorder, thread] {
      for (int64_t i = 0; i < 5000; ++i)
        recorder.Add({.kind = "run", .number = thread, .name = std::to_string(thread)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recorder.total(), 20000);
  for (const auto& event : recorder.Latest()) EXPECT_EQ(event.name, std::to_string(event.number));
}

}  // namespace
}  // namespace hir::service
