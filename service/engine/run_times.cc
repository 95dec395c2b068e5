#include "service/engine/run_times.h"

#include <algorithm>

namespace hir::service {

void RunTimes::Add(int64_t number, const Sizes& sizes, base::Nanos took) {
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = taken_.try_emplace({number, sizes});
  Taken& taken = found->second;
  taken.least = is_new ? took : std::min(taken.least, took);
  taken.last = took;
  ++taken.runs;
  if (!is_new) return;
  order_.push_back(found->first);
  if (order_.size() <= kKept) return;
  taken_.erase(order_.front());
  order_.pop_front();
}

std::optional<RunTimes::Taken> RunTimes::Find(int64_t number, const Sizes& sizes) const {
  const std::scoped_lock lock(mutex_);
  const auto found = taken_.find({number, sizes});
  return found == taken_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace hir::service
