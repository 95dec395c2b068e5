// BulkWindow: how many bytes of shards may be on their way over a link: what it takes in a moment, so that what is said
// behind them, and signs of life, get through.
#pragma once

#include <cstdint>
#include <deque>

#include "csrc/base/clock.h"

namespace hir::service {

// Begins small, grows while pieces are taken as fast as the link has ever taken one, or nearly, and shrinks when that
// takes long. The receiver answers those pieces that ask for it, about four times a window. Threads: one.
class BulkWindow {
 public:
  static constexpr int64_t kLeast = int64_t{128} << 10;  // A second of 1 Mbit/s.
  static constexpr int64_t kMost = int64_t{2} << 20;     // 1.7 ms of 10 Gbit/s.
  static constexpr int64_t kPieceMost = int64_t{64} << 10;

  // Bytes of the next piece, where so much is left: small ones while the link is slow. 0: there is no room for it yet.
  int64_t Next(int64_t left) const;
  // Whether the piece is to ask for an answer; the last before a pause does.
  bool Sent(int64_t bytes, bool is_last, base::Nanos now);
  // The oldest piece that asked was taken. One that nobody sent is ignored, and false: the other side may say anything.
  bool Taken(base::Nanos now);

  int64_t bytes() const { return window_; }
  int64_t on_the_way() const { return on_the_way_; }

 private:
  struct Asked {
    int64_t bytes;  // With those before it that did not ask.
    base::Nanos sent;
  };
  std::deque<Asked> asked_;
  int64_t unasked_ = 0;  // Bytes behind them.
  int64_t window_ = kLeast;
  int64_t on_the_way_ = 0;
  base::Nanos best_ = base::Nanos::max();
};

}  // namespace hir::service
