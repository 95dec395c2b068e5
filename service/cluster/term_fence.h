// TermFence: which head a node hears: one at a time, and none of an earlier term than the latest it knows of.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/base/status.h"

namespace hir::service {

// Threads: one.
class TermFence {
 public:
  // The head `head` of `term` is heard from now on, by the number that this gives; the one before no longer. Where a
  // term may have several heads, as by a list, `head` is empty.
  // Errors: kAborted: the term is over, or has another head.
  Result<int64_t> Join(int64_t term, const std::string& head);
  // Somebody was elected for `term`. Whether it ends the head that was heard.
  bool Raise(int64_t term);
  // No head is heard.
  void End();

  bool Hears(int64_t number) const { return hears_ && number == number_; }
  bool hears_any() const { return hears_; }
  int64_t number() const { return number_; }        // The latest that Join gave.
  int64_t head_term() const { return head_term_; }  // Of the head that is, or was last.
  int64_t term() const { return term_; }            // The latest.

 private:
  int64_t term_ = 0;
  std::string head_;  // Of the term, if one was heard.
  int64_t head_term_ = 0;
  int64_t number_ = 0;
  bool hears_ = false;
};

}  // namespace hir::service
