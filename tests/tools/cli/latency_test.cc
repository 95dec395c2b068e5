// Goal: half and 99 % of times are where the counts say. Method: counts by value.
#include "tools/cli/latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using testing::HasSubstr;

const std::vector<int64_t> kBounds = {10, 20, 50, 100};

TEST(Quantile, LiesBetweenTheBoundsOfItsCount) {
  EXPECT_FALSE(Quantile(kBounds, std::vector<int64_t>{0, 0, 0, 0, 0}, 0.5).has_value());
  EXPECT_DOUBLE_EQ(*Quantile(kBounds, std::vector<int64_t>{4, 0, 0, 0, 0}, 0.5), 5);
  EXPECT_DOUBLE_EQ(*Quantile(kBounds, std::vector<int64_t>{0, 0, 3, 0, 0}, 1.0 / 3), 30);
  EXPECT_DOUBLE_EQ(*Quantile(kBounds, std::vector<int64_t>{50, 0, 0, 50, 0}, 0.5), 10);
  EXPECT_DOUBLE_EQ(*Quantile(kBounds, std::vector<int64_t>{50, 0, 0, 50, 0}, 0.99), 99);
  EXPECT_DOUBLE_EQ(*Quantile(kBounds, std::vector<int64_t>{0, 0, 0, 0, 9}, 0.5), 100);  // Or more.
}

pb::StatusReply StatusWith(const std::vector<int64_t>& counts, int64_t errors) {
  pb::StatusReply status;
  status.mutable_time_bounds_us()->Add(kBounds.begin(), kBounds.end());
  pb::Times& run = *status.add_requests_over();
  run.set_name("Run");
  run.mutable_counts()->Add(counts.begin(), counts.end());
  run.set_errors(errors);
  pb::Principal& principal = *status.add_principals();
  principal.set_name("uid:7");
  principal.set_sessions(2);
  principal.set_queued_runs(3);
  principal.mutable_queue()->mutable_counts()->Add(counts.begin(), counts.end());
  return status;
}

TEST(LatencyTable, ShowsWhatWasSinceTheLastLook) {
  const pb::StatusReply before = StatusWith({1000, 0, 0, 0, 0}, 5);
  const pb::StatusReply now = StatusWith({1000, 0, 0, 20, 0}, 7);
  EXPECT_THAT(LatencyTable(now, nullptr, 0), HasSubstr("\nRun                    1020  7       5 us  "));
  EXPECT_THAT(LatencyTable(now, &before, 2), HasSubstr("\nRun                    10.0/s  2       75 us  "));
  EXPECT_THAT(PrincipalTable(now, &before), HasSubstr("\nuid:7      2         3            75 us     "));
  EXPECT_EQ(PrincipalTable(pb::StatusReply(), nullptr), "");
}

}  // namespace
}  // namespace hir::cli
