// ByName: a value for each of a few names, made when its name first comes. Names that come when it is full share one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace hir::service {

// Thread-safe. Values live as long as it does. Finding a name that is there takes no lock.
template <typename Value, size_t kMost>
class ByName {
 public:
  // The one of names for which there was no room.
  static constexpr std::string_view kOther = "other";

  Value& Of(std::string_view name) {
    if (Value* const found = Find(name)) return *found;
    const std::scoped_lock lock(mutex_);
    const size_t size = size_.load(std::memory_order_relaxed);
    if (Value* const found = Find(name)) return *found;
    if (size + 1 == kMost) name = kOther;  // The last place is the others'.
    if (size == kMost) return made_.back()->value;
    made_[size] = std::make_unique<Named>();
    made_[size]->name = name;
    size_.store(size + 1, std::memory_order_release);
    return made_[size]->value;
  }

  // Calls `each(name, value)`, in the order in which the names came.
  template <typename Each>
  void ForEach(const Each& each) const {
    const size_t size = size_.load(std::memory_order_acquire);
    for (size_t i = 0; i < size; ++i) each(std::string_view(made_[i]->name), std::as_const(made_[i]->value));
  }

 private:
  struct Named {
    std::string name;
    Value value;
  };
  Value* Find(std::string_view name) {
    const size_t size = size_.load(std::memory_order_acquire);
    for (size_t i = 0; i < size; ++i) {
      if (made_[i]->name == name) return &made_[i]->value;
    }
    return nullptr;
  }

  std::mutex mutex_;  // Of who adds one.
  std::array<std::unique_ptr<Named>, kMost> made_ = {};
  std::atomic<size_t> size_ = 0;  // Those below it never change.
};

}  // namespace hir::service
