// Goal: shares of cores are whole, even and side by side, and a thread that is bound runs on nothing else.
// Method: every number of ranks beside every number of cores; threads of this process.
#include "service/os/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace hir::service {
namespace {

TEST(ShareCores, EvenAndSideBySide) {
  for (int count = 1; count <= 9; ++count) {
    Cores cores;  // Not in the order of their numbers.
    for (int i = 0; i < count; ++i) cores.push_back(100 - i);
    for (int64_t ranks = 1; ranks <= count; ++ranks) {
      Cores together;
      size_t least = cores.size(), most = 0;
      for (const Cores& share : ShareCores(cores, ranks)) {
        together.insert(together.end(), share.begin(), share.end());
        least = std::min(least, share.size());
        most = std::max(most, share.size());
      }
      EXPECT_EQ(together, cores) << ranks << " ranks";
      EXPECT_EQ(least, static_cast<size_t>(count / ranks)) << ranks << " ranks";
      EXPECT_LE(most, least + 1) << ranks << " ranks";
    }
  }
}

TEST(ShareCores, MoreRanksThanCores) {
  const Cores cores = {4, 0};
  EXPECT_EQ(ShareCores(cores, 4), (std::vector<Cores>{{4}, {4}, {0}, {0}}));
  EXPECT_EQ(ShareCores(cores, 3), (std::vector<Cores>{{4}, {4}, {0}}));
}

TEST(CoresText, Ranges) {
  EXPECT_EQ(CoresText(Cores{}), "");
  EXPECT_EQ(CoresText(Cores{7}), "7");
  EXPECT_EQ(CoresText(Cores{8, 0, 3, 1, 2, 10, 9}), "0-3, 8-10");
}

TEST(BindThread, HoldsForTheThreadAndWhatItStarts) {
  const Result<Cores> all = CoresOfThread();
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  for (const int core : *all) {
    std::thread([core] {
      ASSERT_EQ(BindThread(Cores{core}).ToString(), "OK");
      EXPECT_EQ(*CoresOfThread(), Cores{core});
      EXPECT_EQ(sched_getcpu(), core);
      std::thread([core] { EXPECT_EQ(*CoresOfThread(), Cores{core}); }).join();
    }).join();
  }
  EXPECT_EQ(*CoresOfThread(), *all) << "other threads are not concerned";
}

TEST(BindThread, CoresThatThereAreNot) {
  std::thread([] {
    const Cores before = *CoresOfThread();
    EXPECT_EQ(BindThread(Cores{60000, 60001}).ToString(),
              "UNAVAILABLE: cannot run on cores 60000-60001: Invalid argument");
    EXPECT_EQ(*CoresOfThread(), before);
    EXPECT_EQ(BindThread(Cores{before.back(), 60000}).ToString(), "OK");
    EXPECT_EQ(*CoresOfThread(), Cores{before.back()});
  }).join();
}

}  // namespace
}  // namespace hir::service
