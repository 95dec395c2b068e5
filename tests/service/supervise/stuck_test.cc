// Goal: a run that does not end is explained by who holds whom up.
#include "service/supervise/stuck.h"

#include <gtest/gtest.h>

#include <vector>

namespace hir::service {
namespace {

::hostir::v1::Dumped At(int64_t entered, int64_t left, const char* where = "") {
  ::hostir::v1::Dumped dumped;
  dumped.set_comm_entered(entered);
  dumped.set_comm_left(left);
  dumped.set_where(where);
  return dumped;
}

TEST(DescribeStuck, NamesWhoIsLate) {
  const std::vector<int64_t> all = {1, 1, 1, 1};
  EXPECT_EQ(DescribeStuck(std::vector{At(17, 16, "allgather #17"), At(17, 16), At(17, 16), At(16, 16)}, all),
            "rank 3 has not entered allgather #17; 3 peers are waiting");
  EXPECT_EQ(DescribeStuck(std::vector{At(17, 16, "allgather #17"), At(9, 9), At(17, 17), At(16, 16)}, all),
            "ranks 1, 3 have not entered allgather #17; 1 peer is waiting");
  EXPECT_EQ(DescribeStuck(std::vector{At(2, 1), At(2, 2)}, std::vector<int64_t>{1, 0}),
            "communication #2 does not end on rank 0");
  EXPECT_EQ(DescribeStuck(std::vector{At(-1, -1), At(-1, -1)}, std::vector<int64_t>{0, 1}),
            "rank 1 is still computing");
  EXPECT_EQ(DescribeStuck(std::vector{At(3, 2), At(-2, 0)}, std::vector<int64_t>{1, 1}), "rank 1 does not answer");
}

}  // namespace
}  // namespace hir::service
