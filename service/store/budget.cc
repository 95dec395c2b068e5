#include "service/store/budget.h"

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::service {

Charge::~Charge() {
  if (budget_ != nullptr) budget_->GiveBack(amount_);
}

Status Charge::Grow(int64_t amount) {
  HIR_CHECK(budget_ != nullptr);
  HIR_TRY(budget_->Reserve(amount));
  amount_ += amount;
  return {};
}

Result<Charge> Budget::Take(int64_t amount) {
  HIR_TRY(Reserve(amount));
  return Charge(this, amount);
}

Status Budget::Reserve(int64_t amount) {
  if (whole_ != nullptr) HIR_TRY(whole_->Reserve(amount));
  int64_t used = used_;
  do {
    if (amount > max_ - used) {
      if (whole_ != nullptr) whole_->GiveBack(amount);
      return ResourceExhausted(base::Cat(limit_, " = ", max_, ": ", used, " ", noun_, " are in use, ", amount,
                                         " more were asked for; free some, or start the daemon with a higher limit"));
    }
  } while (!used_.compare_exchange_weak(used, used + amount));
  return {};
}

void Budget::GiveBack(int64_t amount) {
  used_ -= amount;
  if (whole_ != nullptr) whole_->GiveBack(amount);
}

}  // namespace hir::service
