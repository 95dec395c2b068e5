// The quartiles of samples.
#pragma once

#include <vector>

namespace hir::base {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};
// REQUIRES: values is not empty.
Quartiles QuartilesOf(std::vector<double> values);

}  // namespace hir::base
