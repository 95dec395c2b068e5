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
  return {Code::kFailedPrecondition,
          base::Cat("program ", base::Digest(program),
                    " made the planner die planner_deaths_max = ", limits_.planner_deaths_max,
                    " times; this is a fault of hostir: please report it with the program's text; it is refused for "
                    "planner_deaths_ms = ",
                    limits_.planner_deaths_ms)};
}

void PlannerDeaths::Add(const std::string& program) {
  if (deaths_.size() >= kProgramsKept && !deaths_.contains(program)) deaths_.erase(deaths_.begin());
  Deaths& deaths = deaths_[program];
  ++deaths.count;
  deaths.latest = clock_.Now();
}

int64_t PlannerDeaths::count(const std::string& program) const {
  const auto deaths = deaths_.find(program);
  return deaths == deaths_.end() ? 0 : deaths->second.count;
}

}  // namespace hir::service
