// Goal: a profile has the times of a communication of several numbers in one row, and neither what a plan nor what
// ranks say, which may be anything, costs more than its bytes or goes beyond a number. Method: plans and measurements
// made up.
#include "service/engine/profile.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// A plan with one communication, of `count` numbers from `number` on.
std::shared_ptr<const Program> Communicates(int64_t number, int64_t count) {
  pb::Plan plan;
  plan.set_name("p");
  pb::SegmentRecord& segment = *plan.mutable_explanation()->add_segments();
  segment.set_name("allreduce #" + std::to_string(number));
  segment.set_kind("communication");
  pb::CommunicationRecord& record = *plan.mutable_explanation()->add_communications();
  record.set_number(number);
  record.set_count(count);
  return *Program::Make("id", 1, std::move(plan));
}

pb::RunProfile ProfileOfNumbers(const Program& program, const std::vector<int64_t>& numbers) {
  pb::Measured measured;
  for (const int64_t number : numbers) {
    pb::OpTime& time = *measured.add_times();
    time.set_op("communication");
    time.set_name("y");
    time.set_seq(number);
    time.set_us(1);
  }
  return ProfileOf(program, {}, {&measured, 1});
}

TEST(Profile, OneRowForACommunicationOfSeveralNumbers) {
  const pb::RunProfile profile = ProfileOfNumbers(*Communicates(3, 4), {3, 4, 6, 7});
  ASSERT_EQ(profile.segments_size(), 2);
  EXPECT_EQ(profile.segments(0).name(), "allreduce #3");
  EXPECT_EQ(profile.segments(0).rank_us(0), 3);
  EXPECT_EQ(profile.segments(1).kind(), "host");  // 7 is no number of it.
  EXPECT_EQ(profile.segments(1).rank_us(0), 1);
}

TEST(Profile, OfMoreNumbersThanCanBeCounted) {
  const pb::RunProfile profile = ProfileOfNumbers(*Communicates(0, INT64_MAX), {0, 5, INT64_MAX, INT64_MIN});
  ASSERT_EQ(profile.segments_size(), 3);  // It has neither of the last two.
  EXPECT_EQ(profile.segments(0).rank_us(0), 2);
}

TEST(Timeline, LeavesOutTimesThatAreNone) {
  pb::Measured measured;
  for (const int64_t began : {INT64_MIN, int64_t{1000}, INT64_MAX}) {
    pb::OpSpan& span = *measured.add_spans();
    span.set_name("work" + std::to_string(began));
    span.set_began(began);
    span.set_ended(2000);
  }
  measured.add_spans()->set_stream(INT32_MAX);
  const std::string timeline = TimelineOf(*Communicates(0, 1), "", {&measured, 1});
  EXPECT_NE(timeline.find("work1000"), std::string::npos) << timeline;
  EXPECT_EQ(timeline.find("work-"), std::string::npos) << timeline;
  EXPECT_EQ(timeline.find("2147483647"), std::string::npos) << timeline;
}

TEST(Timeline, LeavesOutATraceThatIsNone) {
  pb::Measured measured;
  pb::OpSpan& span = *measured.add_spans();
  span.set_name("work");
  span.set_began(1000);
  span.set_ended(2000);
  for (const char* parent : {"", "00", "00-short", "99-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    measured.set_traceparent(parent);
    const std::string timeline = TimelineOf(*Communicates(0, 1), "", {&measured, 1});
    EXPECT_NE(timeline.find("work"), std::string::npos) << timeline;
    EXPECT_EQ(timeline.find("short"), std::string::npos) << timeline;
    EXPECT_EQ(timeline.find("0af7"), std::string::npos) << timeline;
  }
}

}  // namespace
}  // namespace hir::service
