#include "service/cluster/term_fence.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::service {

Result<int64_t> TermFence::Join(int64_t term, const std::string& head) {
  if (term < term_)
    return Status(Code::kAborted, base::Cat("term ", term, " is over: this node has heard of term ", term_));
  if (term == term_ && !head_.empty() && head != head_)
    return Status(Code::kAborted, base::Cat("term ", term, " has a head: ", head_, ", not ", head));
  term_ = head_term_ = term;
  head_ = head;
  hears_ = true;
  return ++number_;
}

bool TermFence::Raise(int64_t term) {
  if (term > term_) head_.clear();
  term_ = std::max(term_, term);
  return hears_ && head_term_ < term_;
}

void TermFence::End() { hears_ = false; }

}  // namespace hir::service
