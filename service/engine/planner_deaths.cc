#include "service/engine/planner_deaths.h"

#include <chrono>

#include "csrc/base/digest.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

// Programs remembered at a time; their texts take memory.
constexpr size_t kProgramsKept = 64;

}  // namespace

Status PlannerDeaths::Check(const std::string& program) {
  const auto deaths = deaths_.find(program);
  if (deaths == deaths_.end()) return {};
  if (clock_.Now() - deaths->second.latest > std::chrono::milliseconds(limits_.planner_deaths_ms)) {
    deaths_.erase(deaths);
    return {};
  }
  if (deaths->second.count < limits_.planner_deaths_max) return {};
  const std::string times = base::Cat("planner_deaths_max = ", limits_.planner_deaths_max, " times; ");
  const std::string until = base::Cat("; it is refused for planner_deaths_ms = ", limits_.planner_deaths_ms);
  if (deaths->second.of_memory) {
    return ResourceExhausted(base::Cat(
        "planner_bytes_max = ", limits_.planner_bytes_max, ": the planner found no more memory for program ",
        base::Digest(program), " ", times, "make the program smaller, or start the daemon with a higher limit", until));
  }
  return {Code::kFailedPrecondition,
          base::Cat("program ", base::Digest(program), " made the planner die ", times,
                    "this is a fault of hostir: please report it with the program's text", until)};
}

void PlannerDeaths::Add(const std::string& program, bool of_memory) {
  if (deaths_.size() >= kProgramsKept && !deaths_.contains(program)) deaths_.erase(deaths_.begin());
  Deaths& deaths = deaths_[program];
  ++deaths.count;
  deaths.latest = clock_.Now();
  deaths.of_memory = of_memory;
}

int64_t PlannerDeaths::count(const std::string& program) const {
  const auto deaths = deaths_.find(program);
  return deaths == deaths_.end() ? 0 : deaths->second.count;
}

}  // namespace hir::service
