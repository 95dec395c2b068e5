// Goal: a process that is limited has what it was given, and ends in a known way when it wants more.
// Method: children of this test, which allocate.
#include "service/os/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>

namespace hir::service {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kUnlimited = 1;  // By a sanitizer.

// How a child ends that is given `bytes`, and then does `what`.
int EndOf(int64_t bytes, const std::function<int()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    const Status limited = LimitMemory(bytes);
    if (limited.code() == Code::kFailedPrecondition) _exit(kUnlimited);
    _exit(limited.ok() ? what() : 2);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Memory that stays, and that no compiler leaves out. 0.
int Touched(int64_t bytes) {
  static volatile char* touched = nullptr;
  touched = new char[static_cast<size_t>(bytes)]();
  return touched[0];
}

class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    if (EndOf(kMiB, [] { return 0; }) == kUnlimited) GTEST_SKIP() << "under this sanitizer there is no limit";
  }
};

TEST_F(MemoryLimit, WhatIsWithinIsThere) {
  EXPECT_EQ(EndOf(64 * kMiB, [] { return Touched(32 * kMiB); }), 0);
}

TEST_F(MemoryLimit, MoreEndsTheProcess) {
  EXPECT_EQ(EndOf(64 * kMiB, [] { return Touched(65 * kMiB); }), kExitOutOfMemory);
}

TEST_F(MemoryLimit, MuchInSmallPiecesEndsTheProcess) {
  const auto allocate = [] {
    for (int i = 0; i < 1 << 20; ++i) Touched(1000);
    return 0;
  };
  EXPECT_EQ(EndOf(64 * kMiB, allocate), kExitOutOfMemory);
}

TEST_F(MemoryLimit, MallocFails) {
  EXPECT_EQ(EndOf(64 * kMiB, [] { return std::malloc(65 * kMiB) == nullptr ? 0 : 3; }), 0);
}

}  // namespace
}  // namespace hir::service
