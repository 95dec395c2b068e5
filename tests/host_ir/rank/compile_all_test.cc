// Goal: what CompileAll gives does not depend on how many threads compile: artifacts in the order of the plans, the
// error of the first that fails, each plan compiled once; and who listens hears 1, 2, ... in order.
// Method: a compiler of this test's own, whose plans are known by their schedules' names; some of them take a while.
#include "host_ir/rank/compile_all.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace hir::rank {
namespace {

std::vector<codegen::KernelPlan> Plans(int count) {
  std::vector<codegen::KernelPlan> plans(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) plans[static_cast<size_t>(i)].schedule = std::to_string(i);
  return plans;
}

class CompileAllTest : public testing::TestWithParam<int> {
 protected:
  base::WorkPool* pool() { return GetParam() < 0 ? nullptr : &pool_; }
  base::WorkPool pool_{{.num_threads = std::max(GetParam(), 0)}};
};

TEST_P(CompileAllTest, ArtifactsAreInOrder) {
  const std::vector<codegen::KernelPlan> plans = Plans(37);
  std::mutex mutex;
  std::multiset<std::string> compiled;
  std::vector<int64_t> told;
  const auto artifacts =
      CompileAll(plans,
                 [&](const codegen::KernelPlan& plan) -> Result<codegen::Artifact> {
                   if (plan.schedule.size() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   const std::scoped_lock lock(mutex);
                   compiled.insert(plan.schedule);
                   return codegen::Artifact{.bytes = "code " + plan.schedule, .kernels = {plan.schedule}};
                 },
                 {.pool = pool(), .compiled = [&](int64_t count) { told.push_back(count); }});
  ASSERT_TRUE(artifacts.ok());
  ASSERT_EQ(artifacts->size(), plans.size());
  std::vector<int64_t> counted;
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ((*artifacts)[i].bytes, "code " + std::to_string(i));
    EXPECT_EQ(compiled.count(std::to_string(i)), 1u);
    counted.push_back(static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ(told, counted);
}

TEST_P(CompileAllTest, TheFirstErrorIsTold) {
  for (int round = 0; round < 20; ++round) {
    const auto artifacts = CompileAll(Plans(24),
                                      [&](const codegen::KernelPlan& plan) -> Result<codegen::Artifact> {
                                        const int number = std::stoi(plan.schedule);
                                        if (number == 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                        if (number == 5 || number == 6 || number == 20)
                                          return Internal("plan " + plan.schedule);
                                        return codegen::Artifact{};
                                      },
                                      {.pool = pool()});
    ASSERT_EQ(artifacts.status().ToString(), "INTERNAL: plan 5");
  }
}

TEST_P(CompileAllTest, NothingToCompile) {
  const auto none = CompileAll(
      {}, [](const codegen::KernelPlan&) -> Result<codegen::Artifact> { return Internal("called"); }, {.pool = pool()});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

// -1: without a pool.
INSTANTIATE_TEST_SUITE_P(Threads, CompileAllTest, testing::Values(-1, 0, 1, 3));

TEST(CompileAllParallel, PlansAreCompiledSideBySide) {
  base::WorkPool pool({.num_threads = 2});
  std::latch all_under_way(3);  // Passed only when three plans are compiled at a time.
  const auto artifacts = CompileAll(Plans(3),
                                    [&](const codegen::KernelPlan&) -> Result<codegen::Artifact> {
                                      all_under_way.arrive_and_wait();
                                      return codegen::Artifact{};
                                    },
                                    {.pool = &pool});
  EXPECT_TRUE(artifacts.ok());
}

}  // namespace
}  // namespace hir::rank
