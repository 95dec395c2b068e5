// Goal: cores come in the machine's order, and only those that this process may use.
// Method: this machine, and machines that hwloc makes up from a description.
#include "service/topology/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace hir::service {
namespace {

TEST(CoresInOrder, AreThoseOfThisProcess) {
  Result<Cores> cores = CoresInOrder();
  ASSERT_TRUE(cores.ok()) << cores.status().ToString();
  std::ranges::sort(*cores);
  EXPECT_EQ(*cores, *CoresOfThread());
}

TEST(CoresInOrder, WithoutThoseItMayNotUse) {
  const Cores before = *CoresOfThread();
  ASSERT_EQ(BindThread(Cores{before.back()}).ToString(), "OK");
  EXPECT_EQ(*CoresInOrder(), Cores{before.back()});
  ASSERT_EQ(BindThread(before).ToString(), "OK");
}

// Two packages of two cores of two threads, numbered as many systems do: the second threads come last.
TEST(CoresInOrder, ThreadsOfACoreAreSideBySide) {
  setenv("HWLOC_SYNTHETIC", "package:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 1);
  const Result<Cores> cores = CoresInOrder();
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(cores.ok()) << cores.status().ToString();
  EXPECT_EQ(*cores, (Cores{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(ShareCores(*cores, 2), (std::vector<Cores>{{0, 4, 1, 5}, {2, 6, 3, 7}}));
}

}  // namespace
}  // namespace hir::service
