// Goal: a control group with less memory than the machine counts, wherever its limit stands. Method: folders written
// here in place of /sys/fs/cgroup.
#include "service/os/machine_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hir::service {
namespace {

class MachineMemory : public testing::Test {
 protected:
  MachineMemory() { std::filesystem::create_directories(mount); }
  ~MachineMemory() override { std::filesystem::remove_all(mount); }
  void Write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories((mount / file).parent_path());
    std::ofstream(mount / file) << text << "\n";
  }

  const std::filesystem::path mount =
      std::filesystem::path(testing::TempDir()) / ("hostir-cgroup-" + std::to_string(getpid()));
};

TEST_F(MachineMemory, TheLeastLimitOnTheWayUpCounts) {
  EXPECT_EQ(CgroupMemoryMax("0::/a/b\n", mount), std::nullopt);
  Write("a/b/memory.max", "max");
  EXPECT_EQ(CgroupMemoryMax("0::/a/b\n", mount), std::nullopt);
  Write("a/memory.max", "3000");
  EXPECT_EQ(CgroupMemoryMax("0::/a/b\n", mount), 3000);
  Write("a/b/memory.max", "5000");
  EXPECT_EQ(CgroupMemoryMax("0::/a/b\n", mount), 3000);
  Write("a/b/memory.max", "2000");
  EXPECT_EQ(CgroupMemoryMax("0::/a/b\n", mount), 2000);
  EXPECT_EQ(CgroupMemoryMax("0::/a\n", mount), 3000);
  EXPECT_EQ(CgroupMemoryMax("0::/\n", mount), std::nullopt);
}

TEST_F(MachineMemory, InAContainerTheMountIsTheGroup) {
  Write("memory/memory.limit_in_bytes", "4000");
  Write("cpu/memory.limit_in_bytes", "1");
  EXPECT_EQ(CgroupMemoryMax("9:name=systemd:/x\n4:memory:/docker/x\n1:cpu:/\n0::/\n", mount), 4000);
  EXPECT_EQ(CgroupMemoryMax("4:memory:/docker/x", mount), 4000);
}

TEST_F(MachineMemory, WhatIsNoMembershipIsNoLimit) {
  Write("memory.max", "5");
  EXPECT_EQ(CgroupMemoryMax("", mount), std::nullopt);
  EXPECT_EQ(CgroupMemoryMax("0\n:\n\n", mount), std::nullopt);
}

TEST(MachineMemoryBytes, IsAtMostTheMachines) {
  EXPECT_GT(MachineMemoryBytes(), 0);
  EXPECT_LE(MachineMemoryBytes(), int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE));
}

}  // namespace
}  // namespace hir::service
