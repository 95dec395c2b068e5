// What the all-reduce benchmarks share: their arguments, their data, and the check of the result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::bench {

struct AllreduceArgs {
  int64_t count = 0;  // f32 elements
  int repeats = 0;
};

// Not measured, and spent in short all-reduces: so long a scheduler may leave new processes on one core.
inline constexpr double kWarmUpSeconds = 0.03;

// "BYTES REPEATS"; exits with a usage line when they are not there.
inline AllreduceArgs ParseAllreduceArgs(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s BYTES REPEATS\n", argv[0]);
    std::exit(2);
  }
  return {.count = std::atoll(argv[1]) / 4, .repeats = std::max(1, std::atoi(argv[2]))};
}

// Random data: zeros would be kinder than life to some memory systems.
inline std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  base::Prng prng(seed + 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(prng.Unit() * 2 - 1);
  return values;
}

// Whether a sample of `sum` is the sum of RandomFloats over the seeds 0 .. ranks - 1.
inline bool IsSumOfRandomFloats(const std::vector<float>& sum, int ranks) {
  std::vector<double> expected(std::min<size_t>(sum.size(), 4096), 0.0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto part = RandomFloats(static_cast<int64_t>(expected.size()), static_cast<uint64_t>(rank));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += part[i];
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::fabs(sum[i] - expected[i]) > 1e-5) return false;
  }
  return true;
}

}  // namespace hir::bench
