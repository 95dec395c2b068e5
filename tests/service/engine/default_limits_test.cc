// Goal: limits that nobody gave follow from the machine. Method: machines made up here.
#include <gtest/gtest.h>

#include "service/engine/limits.h"

namespace hir::service {
namespace {

TEST(DefaultLimits, CpuDevicesShareNineTenthsOfTheMemory) {
  const auto device_bytes_max = [](int64_t given, const Machine& machine) {
    Limits limits;
    limits.device_bytes_max = given;
    return Resolved(limits, machine).device_bytes_max;
  };
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .num_cpu_devices = 1}), 900);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .num_cpu_devices = 4}), 225);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 10, .num_cpu_devices = 64}), 1) << "0 would be no limit";
  EXPECT_EQ(device_bytes_max(5000, {.memory_bytes = 1000, .num_cpu_devices = 4}), 5000);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .device_memory_bytes = 500}), 0)
      << "a GPU knows what of it is free";
}

TEST(DefaultLimits, TensorsHaveHalfOfTheMemoryOrTheDevices) {
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .num_cpu_devices = 2}).tensor_bytes_max, 500);
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .num_cpu_devices = 2}).staging_bytes_max, 250);
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .device_memory_bytes = 80}).tensor_bytes_max, 80);
}

}  // namespace
}  // namespace hir::service
