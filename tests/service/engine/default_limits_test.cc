// Goal: limits that nobody gave follow from the machine. Method: machines made up here.
#include <gtest/gtest.h>

#include "service/engine/limits.h"

namespace hir::service {
namespace {

TEST(DefaultLimits, CpuDevicesShareAThirdOfTheMemory) {
  const auto device_bytes_max = [](int64_t given, const Machine& machine) {
    Limits limits;
    limits.device_bytes_max = given;
    return Resolved(limits, machine).device_bytes_max;
  };
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .num_cpu_devices = 1}), 300);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .num_cpu_devices = 4}), 75);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 10, .num_cpu_devices = 64}), 1) << "0 would be no limit";
  EXPECT_EQ(device_bytes_max(5000, {.memory_bytes = 1000, .num_cpu_devices = 4}), 5000);
  EXPECT_EQ(device_bytes_max(0, {.memory_bytes = 1000, .device_memory_bytes = 500}), 0)
      << "a GPU knows what of it is free";
}

TEST(DefaultLimits, PlannersShareATwentieth) {
  const auto planner_bytes_max = [](int64_t gib, int64_t planners) {
    Limits limits;
    limits.planners = planners;
    return Resolved(limits, {.memory_bytes = gib << 30}).planner_bytes_max >> 20;
  };
  EXPECT_EQ(planner_bytes_max(100, 2), 2560);
  EXPECT_EQ(planner_bytes_max(100, 4), 1280);
  EXPECT_EQ(planner_bytes_max(4, 2), 256) << "less would not do";
}

TEST(DefaultLimits, TensorsHaveHalfOfTheMemoryOrTheDevices) {
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .num_cpu_devices = 2}).tensor_bytes_max, 500);
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .num_cpu_devices = 2}).staging_bytes_max, 250);
  EXPECT_EQ(Resolved({}, {.memory_bytes = 1000, .device_memory_bytes = 80}).tensor_bytes_max, 80);
}

TEST(DefaultLimits, AddUpToLessThanTheMemory) {
  for (const int64_t gib : {2, 4, 24, 512}) {
    const int64_t memory = gib << 30;
    const Limits cpus = Resolved({}, {.memory_bytes = memory, .num_cpu_devices = 4});
    EXPECT_LT(cpus.tensor_bytes_max + 4 * cpus.device_bytes_max + cpus.requests_bytes_max + cpus.transport_bytes_max +
                  cpus.planners * cpus.planner_bytes_max + cpus.queued_plans_bytes_max + cpus.program_texts_bytes_max,
              memory / 100 * 97 + (int64_t{128 + 512} << 20))
        << gib;
    const Limits gpus = Resolved({}, {.memory_bytes = memory, .device_memory_bytes = memory});
    EXPECT_LT(gpus.staging_bytes_max + gpus.requests_bytes_max + gpus.transport_bytes_max +
                  gpus.planners * gpus.planner_bytes_max,
              memory / 2 + (int64_t{512} << 20))
        << gib;
  }
  EXPECT_EQ(Resolved({}, {.memory_bytes = int64_t{24} << 30}).requests_bytes_max, 268435456);
}

}  // namespace
}  // namespace hir::service
