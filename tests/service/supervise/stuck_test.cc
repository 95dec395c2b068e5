// Goal: a run that does not end is explained by who holds whom up.
#include "service/supervise/stuck.h"

#include <gtest/gtest.h>

#include <vector>

namespace hir::service {
namespace {

::hostir::v1::Dumped At(int64_t entered, int64_t left, const char* where = "", const char* next = "") {
  ::hostir::v1::Dumped dumped;
  dumped.set_comm_entered(entered);
  dumped.set_comm_left(left);
  dumped.set_where(where);
  dumped.set_next(next);
  return dumped;
}

TEST(DescribeStuck, NamesWhoIsLate) {
  const std::vector<int64_t> all = {1, 1, 1, 1};
  EXPECT_EQ(DescribeStuck(std::vector{At(17, 16, "allgather #17"), At(17, 16), At(17, 16), At(16, 16)}, all),
            "rank 3 has not entered allgather #17; ranks 0, 1 and 2 are waiting");
  EXPECT_EQ(DescribeStuck(std::vector{At(17, 16, "allgather #17"), At(9, 9), At(17, 17), At(16, 16)}, all),
            "ranks 1 and 3 have not entered allgather #17; rank 0 is waiting");
  EXPECT_EQ(DescribeStuck(std::vector{At(17, 16, "allgather #17"), At(16, 16, "allreduce #16", "k3, k4")},
                          std::vector<int64_t>{1, 1}),
            "rank 1 has not entered allgather #17 (next: k3, k4); rank 0 is waiting");
  EXPECT_EQ(DescribeStuck(std::vector{At(2, 1), At(2, 2)}, std::vector<int64_t>{1, 0}),
            "communication #2 does not end on rank 0");
}

TEST(DescribeStuck, NamesWhoComputes) {
  EXPECT_EQ(DescribeStuck(std::vector{At(-1, -1), At(-1, -1, "", "k0")}, std::vector<int64_t>{0, 1}),
            "rank 1 is still computing (next: k0)");
  EXPECT_EQ(DescribeStuck(std::vector{At(2, 2, "allreduce #2"), At(2, 2, "allreduce #2", "matmul -> %y")},
                          std::vector<int64_t>{0, 1}),
            "rank 1 is still computing behind allreduce #2 (next: matmul -> %y)");
}

TEST(DescribeStuck, NamesWhoIsSilent) {
  EXPECT_EQ(DescribeStuck(std::vector{At(3, 2, "allreduce #3"), At(kNoAnswer, 0)}, std::vector<int64_t>{1, 1}),
            "rank 1 does not answer; rank 0 is waiting in allreduce #3");
  EXPECT_EQ(
      DescribeStuck(std::vector{At(kNoAnswer, 0, "stopped"), At(kNoAnswer, 0, "stopped")}, std::vector<int64_t>{1, 1}),
      "ranks 0 and 1 do not answer (stopped)");
  EXPECT_EQ(DescribeStuck(std::vector{At(kNoAnswer, 0, "stopped"), At(kNoAnswer, 0)}, std::vector<int64_t>{1, 1}),
            "ranks 0 and 1 do not answer");
}

TEST(RanksText, OfManyTheFirst) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < 20; ++rank) ranks.push_back(rank);
  EXPECT_EQ(RanksText(ranks), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
}

}  // namespace
}  // namespace hir::service
