#include "service/engine/plan_seconds.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

constexpr double kHourSeconds = 3600;

double Seconds(base::Nanos time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double PlanSeconds::NowUsed(const Used& used) const {
  const double given_back = Seconds(clock_.Now() - used.at) * static_cast<double>(seconds_max_) / kHourSeconds;
  return std::max(0.0, used.seconds - given_back);
}

Status PlanSeconds::Check(const std::string& principal) const {
  const auto found = used_.find(principal);
  if (seconds_max_ == 0 || found == used_.end()) return {};
  const double used = NowUsed(found->second);
  const double most = static_cast<double>(seconds_max_);
  if (used < most) return {};
  // To a second beyond, so that who waits as long is served.
  const auto wait = static_cast<int64_t>(std::floor((used - most) * kHourSeconds / most)) + 1;
  return ResourceExhausted(base::Cat("principal_plan_seconds_max = ", seconds_max_, ": plans of ", principal, " took ",
                                     std::llround(used), " s of the ", seconds_max_,
                                     " s that it has an hour; it is served again in ", wait,
                                     " s; send fewer programs, or start the daemon with a higher limit"));
}

void PlanSeconds::Charge(const std::string& principal, base::Nanos took) {
  if (seconds_max_ == 0) return;
  Used& used = used_[principal];
  used = {NowUsed(used) + Seconds(took), clock_.Now()};
  std::erase_if(used_, [&](const auto& one) { return NowUsed(one.second) == 0; });
}

}  // namespace hir::service
