// PlanSeconds: how long the plans of a principal may take, in an hour: the limit principal_plan_seconds_max.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::service {

// Seconds come back evenly, all of them in an hour: who used little has nearly all at once, and who used all gets on as
// time goes by. How long a plan takes is known when it is over, so the latest may be beyond the limit, and
// is paid for by a longer wait. Threads: one at a time.
class PlanSeconds {
 public:
  // `seconds_max`: of each principal; 0: no limit.
  PlanSeconds(int64_t seconds_max, const base::Clock& clock) : seconds_max_(seconds_max), clock_(clock) {}

  // Errors: kResourceExhausted naming the limit, and when the principal is served again.
  Status Check(const std::string& principal) const;
  // A plan of the principal's took so long.
  void Charge(const std::string& principal, base::Nanos took);

 private:
  struct Used {
    double seconds = 0;
    base::Nanos at = {};  // So much was used then.
  };
  double NowUsed(const Used& used) const;

  const int64_t seconds_max_;
  const base::Clock& clock_;
  std::map<std::string, Used> used_;  // Those that have used some.
};

}  // namespace hir::service
