// Budget: how much of a limited resource is in use, and Charge: a share of it that goes back by itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "csrc/base/status.h"

namespace hir::service {

class Budget;

// Movable. Its budget outlives it.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), amount_(std::exchange(other.amount_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(amount_, other.amount_);
    return *this;
  }
  ~Charge();

  // Takes `amount` more. REQUIRES: made by Budget::Take.
  Status Grow(int64_t amount);
  int64_t amount() const { return amount_; }

 private:
  friend class Budget;
  Charge(Budget* budget, int64_t amount) : budget_(budget), amount_(amount) {}
  Budget* budget_ = nullptr;
  int64_t amount_ = 0;
};

// Thread-safe.
class Budget {
 public:
  // `limit` is the flag's name, `noun` what is counted: "tensor_bytes_max", "bytes of tensors". What it gives is taken
  // from `whole`, too, which outlives it.
  Budget(std::string limit, std::string noun, int64_t max, Budget* whole = nullptr)
      : limit_(std::move(limit)), noun_(std::move(noun)), max_(max), whole_(whole) {}

  // Errors: kResourceExhausted "tensor_bytes_max = 100: 90 bytes of tensors are in use, 20 more were asked for".
  Result<Charge> Take(int64_t amount);
  int64_t used() const { return used_; }
  int64_t max() const { return max_; }

 private:
  friend class Charge;
  Status Reserve(int64_t amount);
  void GiveBack(int64_t amount);

  const std::string limit_;
  const std::string noun_;
  const int64_t max_;
  Budget* const whole_;
  std::atomic<int64_t> used_ = 0;
};

}  // namespace hir::service
