// Goal: every size is in one bucket, there are eight, and a plan's bucket has the size that it was made for.
#include "service/planner/size_buckets.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

// "64 <= i0 <= 255", from the guards of a plan.
std::string BucketOf(int64_t size) {
  ::hostir::v1::Plan plan;
  AddBuckets({{"i0", size}}, &plan);
  std::string least, most;
  for (const auto& guard : plan.guards()) {
    EXPECT_TRUE(guard.replans());
    EXPECT_EQ(guard.condition(), guard.left() + " <= " + guard.right());
    if (guard.left() == "i0") {
      most = " <= " + guard.right();
      EXPECT_LE(size, *base::ParseInt(guard.right()));
    } else {
      EXPECT_EQ(guard.right(), "i0");
      least = guard.left() + " <= ";
      EXPECT_GE(size, *base::ParseInt(guard.left()));
    }
  }
  return least + "i0" + most;
}

TEST(SizeBuckets, EightInAll) {
  std::set<std::string> buckets;
  for (int64_t size = 0; size < 300000; ++size) buckets.insert(BucketOf(size));
  buckets.insert(BucketOf(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(buckets.size(), 8U);
}

TEST(SizeBuckets, WhereTheyEnd) {
  EXPECT_EQ(BucketOf(0), "i0 <= 63");
  EXPECT_EQ(BucketOf(63), "i0 <= 63");
  EXPECT_EQ(BucketOf(64), "64 <= i0 <= 255");
  EXPECT_EQ(BucketOf(255), "64 <= i0 <= 255");
  EXPECT_EQ(BucketOf(256), "256 <= i0 <= 1023");
  EXPECT_EQ(BucketOf(262143), "65536 <= i0 <= 262143");
  EXPECT_EQ(BucketOf(262144), "262144 <= i0");
}

TEST(SizeBuckets, OfEverySize) {
  ::hostir::v1::Plan plan;
  AddBuckets({{"i0", 1}, {"i1", 100}}, &plan);
  EXPECT_EQ(plan.guards_size(), 3);
}

std::string SharedBy(int64_t size, int64_t least) {
  ::hostir::v1::Plan plan;
  KeepFromSmall({{"i0", least}, {"i1", 2}}, {{"i0", size}}, &plan);
  std::string text;
  for (const auto& guard : plan.guards()) text += guard.condition();
  return text;
}

// A size below the least is a constant of its plan, which says so itself.
TEST(SizeBuckets, SmallSizesHavePlansOfTheirOwn) {
  EXPECT_EQ(SharedBy(2, 2), "2 <= i0");
  EXPECT_EQ(SharedBy(17, 17), "17 <= i0");
  EXPECT_EQ(SharedBy(1000, 17), "17 <= i0");
  EXPECT_EQ(SharedBy(16, 17), "");
  EXPECT_EQ(SharedBy(0, 17), "i0 <= 0");
}

}  // namespace
}  // namespace hir::service
