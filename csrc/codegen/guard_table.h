// Conditions on indices and on data under which values are computed, each by a number: values that have another guard
// are other code. Private to csrc/codegen.
#pragma once

#include <vector>

#include "csrc/fusion/element.h"

namespace hir::codegen {

// One condition after another, by the number of the last one; number 0 holds everywhere.
struct Guard {
  int parent = 0;
  const fusion::Element* condition = nullptr;
  bool holds = true;
  bool operator==(const Guard&) const = default;
};

class GuardTable {
 public:
  GuardTable() : guards_(1) {}

  // Where `parent` holds, and `condition` does or does not.
  int Add(int parent, const fusion::Element* condition, bool holds);
  const Guard& at(int guard) const { return guards_[static_cast<size_t>(guard)]; }

 private:
  std::vector<Guard> guards_;
};

}  // namespace hir::codegen
