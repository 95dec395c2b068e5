// PlannerDeaths: which programs planners died of, so that the next one need not.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/engine/limits.h"

namespace hir::service {

// By the program's text. Threads: one at a time.
class PlannerDeaths {
 public:
  PlannerDeaths(const Limits& limits, const base::Clock& clock) : limits_(limits), clock_(clock) {}

  // Errors: kFailedPrecondition for a program that planners died of planner_deaths_max times, until planner_deaths_ms
  //         after the last one: it may have been the machine's memory, or a kernel that is cached now.
  //         kResourceExhausted where the last one wanted more than planner_bytes_max.
  Status Check(const std::string& program);
  // A planner died of it. `of_memory`: it wanted more than planner_bytes_max.
  void Add(const std::string& program, bool of_memory = false);
  // It was planned.
  void Forget(const std::string& program) { deaths_.erase(program); }
  int64_t count(const std::string& program) const;

 private:
  struct Deaths {
    int64_t count = 0;
    base::Nanos latest = {};
    bool of_memory = false;  // The latest.
  };
  const Limits limits_;
  const base::Clock& clock_;
  std::unordered_map<std::string, Deaths> deaths_;
};

}  // namespace hir::service
