// Goal: all ranks have the same times of links, and of each link some. Method: simulated ranks, whose messages take
// random times, and ranks over UCX.
#include "host_ir/rank/measure_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "host_ir/rank/cpu/cpu_backends.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/ranks.h"

namespace hir::rank {
namespace {

using std::chrono::microseconds;

// The links that ranks `firsts` of `ranks` measure, as each of them has them.
std::vector<std::vector<Link>> Measure(testing::Ranks& ranks, const std::vector<int64_t>& firsts) {
  std::mutex mutex;
  std::vector<std::vector<Link>> all;
  const Backends backends = CpuBackends();
  const Status ran = ranks.Run([&](int64_t rank, comm::Communicator& communicator, device::Device& device) -> Status {
    if (std::ranges::count(firsts, rank) == 0) return {};
    HIR_ASSIGN(std::vector<Link> links, MeasureLinks(backends, device, communicator, firsts, std::chrono::seconds(30)));
    const std::scoped_lock lock(mutex);
    all.push_back(std::move(links));
    return {};
  });
  EXPECT_TRUE(ran.ok()) << ran.ToString();
  return all;
}

void Check(testing::Ranks& ranks, const std::vector<int64_t>& firsts) {
  const std::vector<std::vector<Link>> all = Measure(ranks, firsts);
  ASSERT_EQ(all.size(), firsts.size());
  for (const std::vector<Link>& links : all) {
    ASSERT_EQ(links.size(), firsts.size());
    for (size_t i = 0; i < links.size(); ++i) {
      EXPECT_GT(links[i].message_seconds, 0);
      EXPECT_GT(links[i].bytes_per_second, 0);
      EXPECT_EQ(links[i].message_seconds, all[0][i].message_seconds);
      EXPECT_EQ(links[i].bytes_per_second, all[0][i].bytes_per_second);
    }
  }
}

TEST(MeasureLinks, AllRanksHaveTheSameTimes) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto ranks = testing::MakeLocalRanks(6, seed, microseconds(200));
    Check(*ranks, {0, 3});
    Check(*ranks, {1, 2, 5});
    Check(*ranks, {0, 1, 2, 3, 4, 5});
  }
}

TEST(MeasureLinks, OverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  auto ranks = testing::MakeUcxRanks(4);
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  Check(**ranks, {0, 2});
  Check(**ranks, {0, 1, 3});
}

}  // namespace
}  // namespace hir::rank
