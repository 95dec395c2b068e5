// Parts of metrics: numbers that any thread adds to, at the price of an atomic add, and any reads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::service {

// Grows from 0. Thread-safe.
class Counter {
 public:
  void Add(int64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

// How often each code was the end of something. Thread-safe.
class Outcomes {
 public:
  static constexpr size_t kCodes = static_cast<size_t>(Code::kUnauthenticated) + 1;
  void Add(Code code) { by_code_[static_cast<size_t>(code)].Add(); }
  int64_t of(Code code) const { return by_code_[static_cast<size_t>(code)].value(); }
  int64_t total() const {
    int64_t sum = 0;
    for (const Counter& counter : by_code_) sum += counter.value();
    return sum;
  }

 private:
  std::array<Counter, kCodes> by_code_;
};

// How often something took how long. Thread-safe; one that is read while it grows may lack a part of the latest.
class Histogram {
 public:
  // Upper bounds, of which each belongs to what is below it: a run of nothing takes some 60 us, one may take minutes.
  static constexpr std::array<base::Nanos, 24> kBounds = [] {
    std::array<base::Nanos, 24> bounds = {};
    int64_t decade = 10'000;
    for (size_t i = 0; i < bounds.size(); i += 3, decade *= 10) {
      bounds[i] = base::Nanos(decade);
      bounds[i + 1] = base::Nanos(2 * decade);
      bounds[i + 2] = base::Nanos(5 * decade);
    }
    return bounds;
  }();

  void Add(base::Nanos time) {
    const size_t bucket = static_cast<size_t>(std::ranges::lower_bound(kBounds, time) - kBounds.begin());
    counts_[bucket].Add();
    sum_.Add(std::max(time, base::Nanos{}).count());
  }
  // How many lie above the bound before, up to this one; the last counts those above all bounds.
  std::array<int64_t, kBounds.size() + 1> counts() const {
    std::array<int64_t, kBounds.size() + 1> counts = {};
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = counts_[i].value();
    return counts;
  }
  base::Nanos sum() const { return base::Nanos(sum_.value()); }

 private:
  std::array<Counter, kBounds.size() + 1> counts_;
  Counter sum_;  // Nanoseconds.
};

// How long something that comes and goes was away, in all. Thread-safe.
class Absence {
 public:
  // Again while it lasts changes nothing.
  void Begin(base::Nanos now) {
    int64_t none = 0;
    since_.compare_exchange_strong(none, std::max<int64_t>(1, now.count()));
  }
  void End(base::Nanos now) {
    if (const int64_t since = since_.exchange(0); since != 0) over_.Add(now.count() - since);
  }
  // The present one, too.
  base::Nanos total(base::Nanos now) const {
    const int64_t since = since_;
    return base::Nanos(over_.value() + (since == 0 ? 0 : std::max<int64_t>(0, now.count() - since)));
  }

 private:
  std::atomic<int64_t> since_ = 0;  // 0: it is there.
  Counter over_;                    // Nanoseconds.
};

}  // namespace hir::service
