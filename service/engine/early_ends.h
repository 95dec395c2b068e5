// EarlyEnds: when runs end before they are carried out, or before they are through: those that wait for their turn by
// their deadlines, the one that the ranks have by its own or by who cancelled it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/engine/fair_queue.h"

namespace hir::service {

// A time by which a run is to be over.
struct RunDeadline {
  base::Nanos at = base::Nanos::max();
  int64_t ms = 0;  // As it was asked for, since the request; 0: there is none.

  bool there() const { return ms > 0; }
  // "run 7 of mlp: deadline_ms = 500 passed " and `when` it did.
  Status Passed(const std::string& run, std::string_view when) const;
};

// Threads: one at a time.
class EarlyEnds {
 public:
  // A run that the ranks have is given `grace` from its turn on to end by itself: ending it costs everybody the mesh.
  explicit EarlyEnds(base::Nanos grace) : grace_(grace) {}

  // A run waits for its turn from now on; or no longer.
  void Wait(const Owner& owner, int64_t run, const RunDeadline& deadline);
  void WaitNoMore(int64_t run, const RunDeadline& deadline);
  // One whose deadline has come, which then waits no longer.
  std::optional<std::pair<Owner, int64_t>> TakeLate(base::Nanos now);

  // The ranks have a run, `what` ("run 7 of mlp"), from now on; or none.
  void Start(const Owner& owner, int64_t run, std::string what, const RunDeadline& deadline, base::Nanos now);
  void Over() { under_way_.reset(); }
  bool IsUnderWay(const Owner& owner, int64_t run) const;
  // The run under way is cancelled; `who` did: "its client (uid:1000) cancelled it". REQUIRES: there is one.
  void Cancel(std::string_view who, base::Nanos now);
  // When a run with `deadline` whose turn begins now would be given up.
  base::Nanos GivenUpAt(const RunDeadline& deadline, base::Nanos now) const;

  // When a run is late next, or to be given up; never: base::Nanos::max().
  base::Nanos next() const;
  // Why the run under way is not waited for any longer; OK: it is.
  Status GivenUp(base::Nanos now) const;

 private:
  struct UnderWay {
    Owner owner;
    int64_t run = 0;
    std::string what;
    base::Nanos since = {};
    base::Nanos ends_at = base::Nanos::max();
    Status cause = {};
  };

  const base::Nanos grace_;
  std::map<std::pair<base::Nanos, int64_t>, Owner> waiting_;  // Those with a deadline, by it and their number.
  std::optional<UnderWay> under_way_;
};

}  // namespace hir::service
