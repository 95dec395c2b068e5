#include "csrc/base/clock.h"

namespace hir::base {
namespace {

class SteadyClock final : public Clock {
 public:
  Nanos Now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

}  // namespace

const Clock& Clock::Steady() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace hir::base
