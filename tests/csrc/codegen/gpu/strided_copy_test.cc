// Goal: the GPU's copies between tensors of any strides put each element in its place and touch no other; NVRTC
// compiles their kernel. Method: its text runs on the CPU (emulator.h), on random strides.
#include "csrc/codegen/gpu/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/ir/type.h"
#include "tests/csrc/codegen/gpu/emulator.h"

namespace hir::codegen::gpu {
namespace {

// Strides of axes in random order, some with gaps; and the number of elements that they span.
std::vector<int64_t> Strides(base::Prng& prng, const std::vector<int64_t>& shape, int64_t& span) {
  std::vector<int64_t> strides(shape.size());
  std::vector<size_t> left;
  for (size_t axis = 0; axis < shape.size(); ++axis) left.push_back(axis);
  span = 1;
  while (!left.empty()) {
    const auto at = prng.Below(static_cast<int64_t>(left.size()));
    const size_t axis = left[static_cast<size_t>(at)];
    left.erase(left.begin() + at);
    strides[axis] = span;
    span *= shape[axis] + prng.Below(2);
  }
  return strides;
}

TEST(StridedCopy, PutsEachElementInItsPlace) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  constexpr int64_t kBytes[] = {1, 2, 4, 8};
  Emulator emulator;
  std::vector<int> plans;
  for (const int64_t bytes : kBytes) plans.push_back(emulator.Add(EmitStridedCopy(bytes)));
  const Status built = emulator.Build();
  ASSERT_TRUE(built.ok()) << built.ToString();
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Prng prng(seed);
    const auto kind = static_cast<size_t>(prng.Below(4));
    const int64_t bytes = kBytes[kind];
    std::vector<int64_t> shape;
    const int64_t rank = prng.OneIn(10) ? static_cast<int64_t>(ir::kAxesMax) + 2 : prng.Below(5);
    while (std::ssize(shape) < rank) shape.push_back(rank > 4 ? 1 + prng.Below(2) : prng.Below(7));
    int64_t from_span = 1, to_span = 1;
    std::vector<int64_t> from_strides = Strides(prng, shape, from_span);
    if (rank > 0 && prng.OneIn(3)) from_strides[static_cast<size_t>(prng.Below(rank))] = 0;
    const std::vector<int64_t> to_strides = Strides(prng, shape, to_span);
    std::vector<uint8_t> from(static_cast<size_t>(from_span * bytes)), to(static_cast<size_t>(to_span * bytes), 0x7b);
    for (uint8_t& byte : from) byte = static_cast<uint8_t>(prng.Below(256));
    std::vector<uint8_t> want = to;
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    for (int64_t i = 0; i < elements; ++i) {
      int64_t rest = i, a = 0, b = 0;
      for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
        a += rest % shape[axis] * to_strides[axis];
        b += rest % shape[axis] * from_strides[axis];
      }
      std::memcpy(want.data() + a * bytes, from.data() + b * bytes, static_cast<size_t>(bytes));
    }
    const auto address = [](const void* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); };
    const StridedCopyLaunch launch =
        LaunchOf(address(to.data()), to_strides, address(from.data()), from_strides, shape);
    EXPECT_EQ(launch.grid, elements);
    if (launch.grid > 0) emulator.Run(plans[kind], 0, launch.args, launch.grid);
    EXPECT_EQ(to, want);
  }
}

TEST(StridedCopy, Compiles) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status().ToString();
  Compiler compiler({});
  const std::vector<std::string> names = {kStridedCopyKernel};
  for (const int64_t bytes : {1, 2, 4, 8}) {
    const auto artifact = compiler.Compile(EmitStridedCopy(bytes), names, 90);
    ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
  }
}

}  // namespace
}  // namespace hir::codegen::gpu
