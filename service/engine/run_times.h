// RunTimes: how long the latest runs of each plan took.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"
#include "service/engine/program.h"

namespace hir::service {

// Thread-safe.
class RunTimes {
 public:
  struct Taken {
    int64_t runs = 0;
    base::Nanos least = {};
    base::Nanos last = {};
  };
  // Adds one more run of the plan `number`, with `sizes`. The plans heard of first are forgotten beyond kKept.
  void Add(int64_t number, const Sizes& sizes, base::Nanos took);
  std::optional<Taken> Find(int64_t number, const Sizes& sizes) const;

 private:
  using Key = std::pair<int64_t, Sizes>;
  static constexpr size_t kKept = 4096;
  mutable std::mutex mutex_;
  std::map<Key, Taken> taken_;
  std::deque<Key> order_;  // As heard of.
};

}  // namespace hir::service
