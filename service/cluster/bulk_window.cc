#include "service/cluster/bulk_window.h"

#include <algorithm>
#include <chrono>

namespace hir::service {
namespace {

using std::chrono::milliseconds;

constexpr base::Nanos kFast = std::chrono::microseconds(200);
constexpr base::Nanos kFastMost = milliseconds(100);  // Of a link on which already the first piece was slow.
constexpr base::Nanos kSlow = milliseconds(250);

}  // namespace

int64_t BulkWindow::Next(int64_t left) const {
  const int64_t piece = std::min(left, std::clamp(window_ / 4, kLeast / 4, kPieceMost));
  // Where no answer is to come there is always room, whatever the window has shrunk to.
  return asked_.empty() || piece <= window_ - on_the_way_ ? piece : 0;
}

bool BulkWindow::Sent(int64_t bytes, bool is_last, base::Nanos now) {
  on_the_way_ += bytes;
  unasked_ += bytes;
  if (!is_last && unasked_ < window_ / 4) return false;
  asked_.push_back({unasked_, now});
  unasked_ = 0;
  return true;
}

bool BulkWindow::Taken(base::Nanos now) {
  if (asked_.empty()) return false;
  const auto [bytes, sent] = asked_.front();
  asked_.pop_front();
  const bool was_needed = on_the_way_ > window_ / 2;
  on_the_way_ -= bytes;
  const base::Nanos took = now - sent;
  best_ = std::min(best_, took);
  if (took > kSlow) {
    window_ = std::max(window_ - bytes, kLeast);
  } else if (was_needed && took <= std::min(2 * best_ + kFast, kFastMost)) {
    window_ = std::min(window_ + bytes, kMost);
  }
  return true;
}

}  // namespace hir::service
