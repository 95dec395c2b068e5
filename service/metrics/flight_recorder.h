// FlightRecorder: the latest that happened in the daemon, in order, for who asks afterwards. It is always on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::service {

// Thread-safe. An event costs a lock and a copy of some 200 bytes: no text is made before somebody asks.
class FlightRecorder {
 public:
  static constexpr size_t kEvents = 4096;

  struct Event {
    base::Nanos at = {};         // When it was over, on the steady clock.
    std::string_view kind = {};  // A literal: "run", "request", "plan", "mesh".
    int64_t number = -1;         // Of the run, request or generation.
    std::string_view name = {};  // Of the program or method: its beginning.
    Code code = Code::kOk;
    std::string_view error = {};  // Its beginning.
    base::Nanos took = {};
    base::Nanos waited = {};  // For its turn, before that.
  };

  void Add(const Event& event);
  struct Kept {
    base::Nanos at = {};
    std::string kind;
    int64_t number = -1;
    std::string name;
    Code code = Code::kOk;
    std::string error;
    base::Nanos took = {};
    base::Nanos waited = {};
  };
  // Those kept, the oldest first. `after`: without so many of those that there were since the start.
  std::vector<Kept> Latest(int64_t after = 0) const;
  int64_t total() const;  // Since the start.

 private:
  struct Slot {
    Event event;  // Its texts are the ones below.
    std::array<char, 40> name = {};
    std::array<char, 120> error = {};
  };
  mutable std::mutex mutex_;
  std::vector<Slot> slots_ = std::vector<Slot>(kEvents);  // Guarded by mutex_, as the next.
  int64_t total_ = 0;
};

}  // namespace hir::service
