#include "service/supervise/leaving.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {

Leaving::~Leaving() {
  if (Wait(kLeaveTimeout)) return;
  for (One& one : left_) one.process.Abandon();
}

void Leaving::Add(std::string name, Process process) {
  if (process.pid() == 0) return;
  process.Kill();
  left_.push_back({std::move(name), std::move(process), base::Clock::Steady().Now()});
}

bool Leaving::Wait(base::Nanos timeout) {
  const base::Nanos deadline = base::Clock::Steady().Now() + timeout;
  std::erase_if(left_, [&](One& one) {
    const base::Nanos left = std::max(base::Nanos(0), deadline - base::Clock::Steady().Now());
    return one.process.Ended(left).has_value();
  });
  return left_.empty();
}

std::vector<std::string> Leaving::Lingering() const {
  const base::Nanos now = base::Clock::Steady().Now();
  std::vector<std::string> names;
  for (const One& one : left_) {
    if (now - one.killed_at >= kKillTimeout) names.push_back(base::Cat(one.name, " (process ", one.process.pid(), ")"));
  }
  return names;
}

}  // namespace hir::service
