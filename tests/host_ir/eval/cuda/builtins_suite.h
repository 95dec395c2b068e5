// The built-in kernels of GPUs against those of CPUs: random shapes, strides, types and values. A test instantiates
// it with what runs the GPU's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/prng.h"
#include "host_ir/eval/builtins.h"
#include "host_ir/eval/cuda/builtins_text.h"
#include "host_ir/eval/host/host_builtins.h"

namespace hir::host {

using Bytes = std::vector<std::byte>;

// Runs builtin `index` (copy, binary, reduce) with args[i] standing for the address of the i-th of `inputs` and, behind
// them, of `out`, whose contents come and go.
using RunBuiltin = std::function<void(size_t index, const std::vector<const Bytes*>& inputs, std::vector<int64_t> args,
                                      int64_t grid, Bytes& out)>;

struct BuiltinsCase {
  std::string name;
  std::function<Result<RunBuiltin>()> open;  // Or why not: then the tests are skipped.
};
inline void PrintTo(const BuiltinsCase& c, std::ostream* out) { *out << c.name; }

inline constexpr int64_t kBytes = 1 << 16;

int64_t Address(const std::vector<std::byte>& bytes) { return reinterpret_cast<int64_t>(bytes.data()); }

// Small integers and halves, exact in every type; now and then infinities and NaN.
inline void FillValue(DType dtype, std::byte* at, base::Prng& random) {
  const double plain = static_cast<double>(random.Below(17) - 8) / (IsFloat(dtype) ? 2 : 1);
  const bool odd = IsFloat(dtype) && random.OneIn(20);
  const double value = !odd ? plain : random.OneIn(2) ? std::numeric_limits<double>::quiet_NaN() : 1e300 * 1e10;
  const auto put = [at](auto x) { std::memcpy(at, &x, sizeof(x)); };
  switch (dtype) {
    case DType::kBool: return put(static_cast<uint8_t>(random.OneIn(2)));
    case DType::kInt32: return put(static_cast<int32_t>(random.OneIn(9) ? INT32_MIN : plain));
    case DType::kInt64: return put(random.OneIn(9) ? INT64_MIN : static_cast<int64_t>(plain));
    case DType::kFloat16: return put(FloatToFloat16(static_cast<float>(value)));
    case DType::kBFloat16: return put(FloatToBFloat16(static_cast<float>(value)));
    case DType::kFloat32: return put(static_cast<float>(value));
    case DType::kFloat64: return put(value);
  }
}

inline std::vector<std::byte> Values(DType dtype, base::Prng& random) {
  std::vector<std::byte> bytes(kBytes);
  for (int64_t i = 0; i < kBytes; i += DTypeBytes(dtype)) FillValue(dtype, bytes.data() + i, random);
  return bytes;
}

inline double ValueAt(DType dtype, const std::byte* at) {
  const auto get = [at]<typename T>(T x) { return std::memcpy(&x, at, sizeof(x)), x; };
  switch (dtype) {
    case DType::kBool: return get(uint8_t{});
    case DType::kInt32: return get(int32_t{});
    case DType::kInt64: return static_cast<double>(get(int64_t{}));
    case DType::kFloat16: return Float16ToFloat(get(uint16_t{}));
    case DType::kBFloat16: return BFloat16ToFloat(get(uint16_t{}));
    case DType::kFloat32: return get(float{});
    case DType::kFloat64: return get(double{});
  }
  return 0;
}

// Bit for bit, but that a NaN is a NaN.
inline void ExpectEqual(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const int64_t size = DTypeBytes(dtype);
  for (int64_t i = 0; i < kBytes; i += size) {
    if (std::memcmp(a.data() + i, b.data() + i, static_cast<size_t>(size)) == 0) continue;
    const double x = ValueAt(dtype, a.data() + i), y = ValueAt(dtype, b.data() + i);
    ASSERT_TRUE(x != x && y != y) << DTypeName(dtype) << " element " << i / size << ": " << x << " and " << y;
  }
}

// Strides of a tensor that fits kBytes, its axes in a random order in memory, with gaps; 0 along some axes when it
// is only read.
inline std::vector<int64_t> Strides(const std::vector<int64_t>& extents, bool read_only, base::Prng& random) {
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!random.OneIn(2)) {
    std::reverse(order.begin(), order.end());  // Row-major.
  } else {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
  }
  std::vector<int64_t> strides(extents.size());
  int64_t stride = random.OneIn(4) ? 2 : 1;
  for (size_t axis : order) {
    strides[axis] = read_only && random.OneIn(6) ? 0 : stride;
    stride *= extents[axis] + (random.OneIn(4) ? random.Below(9) : 0);
  }
  return strides;
}

inline std::vector<int64_t> Extents(base::Prng& random) {
  std::vector<int64_t> extents(static_cast<size_t>(random.Below(4)));
  for (int64_t& extent : extents) extent = random.OneIn(4) ? 16 : 1 + random.Below(9);
  return extents;
}

inline int64_t Product(const std::vector<int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

inline void Append(std::vector<int64_t>& args, const std::vector<int64_t>& more) {
  args.insert(args.end(), more.begin(), more.end());
}

class BuiltinsSuite : public testing::TestWithParam<BuiltinsCase> {
 protected:
  void SetUp() override {
    auto opened = GetParam().open();
    if (!opened.ok()) GTEST_SKIP() << "SKIPPED: " << opened.status().ToString();
    run_ = *std::move(opened);
  }
  // On the CPU into `expected` and by the GPU's kernels into `got`.
  void RunBoth(size_t index, const std::vector<const Bytes*>& inputs, std::vector<int64_t> args, int64_t grid,
               base::Prng& random, Bytes& expected, Bytes& got) {
    const std::string_view names[] = {kCopyKernel, kBinaryKernel, kReduceKernel};
    run_(index, inputs, args, grid, got);
    for (size_t i = 0; i < inputs.size(); ++i) args[i] = reinterpret_cast<int64_t>(inputs[i]->data());
    args[inputs.size()] = reinterpret_cast<int64_t>(expected.data());
    const auto& kernel = static_cast<const device::HostKernel&>(**builtins_.Get(names[index]));
    const int64_t middle = grid == 0 ? 0 : random.Below(grid);  // As a launch is split.
    kernel.function()(args.data(), 0, middle);
    kernel.function()(args.data(), middle, grid);
  }

 private:
  HostBuiltins builtins_;
  RunBuiltin run_;
};

TEST_P(BuiltinsSuite, CopiesAsTheCpuDoes) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Prng random(seed);
    const auto dtype = kAllDTypes[random.Below(std::ssize(kAllDTypes))];
    const std::vector<std::byte> src = Values(dtype, random);
    std::vector<std::byte> expected(kBytes), got(kBytes);
    const std::vector<int64_t> extents = Extents(random);
    std::vector<int64_t> args = {0, 0, DTypeBytes(dtype), std::ssize(extents)};
    Append(args, extents);
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, false, random));
    RunBoth(0, {&src}, args, Product(extents), random, expected, got);
    EXPECT_TRUE(expected == got);
  }
}

TEST_P(BuiltinsSuite, CopiesRowsOfWordsWide) {
  base::Prng random(7);
  const std::vector<std::byte> src = Values(DType::kBFloat16, random);
  std::vector<std::byte> expected(kBytes), got(kBytes);
  // Rows of 64 out of 128: both sides whole words of 16 bytes.
  const std::vector<int64_t> args = {0, 0, 2, 2, 16, 64, 128, 1, 64, 1};
  RunBoth(0, {&src}, args, 16 * 64, random, expected, got);
  EXPECT_TRUE(expected == got);
  EXPECT_FALSE(std::ranges::all_of(got, [](std::byte x) { return x == std::byte{}; }));
}

TEST_P(BuiltinsSuite, BinaryOpsAreTheCpus) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Prng random(seed);
    const auto dtype = kAllDTypes[random.Below(std::ssize(kAllDTypes))];
    const std::vector<std::byte> a = Values(dtype, random), b = Values(dtype, random);
    std::vector<std::byte> expected(kBytes), got(kBytes);
    const std::vector<int64_t> extents = Extents(random);
    std::vector<int64_t> args = {Address(a),      Address(b),         0, static_cast<int64_t>(dtype),
                                 random.Below(6), std::ssize(extents)};
    Append(args, extents);
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, false, random));
    RunBoth(1, {&a, &b}, args, Product(extents), random, expected, got);
    ExpectEqual(dtype, expected, got);
  }
}

// Values are exact under any order of additions; products of long reductions are not, and are left out.
TEST_P(BuiltinsSuite, ReductionsAreTheCpus) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Prng random(seed);
    const auto dtype = kAllDTypes[random.Below(std::ssize(kAllDTypes))];
    const std::vector<std::byte> in = Values(dtype, random);
    std::vector<std::byte> expected(kBytes), got(kBytes);
    const std::vector<int64_t> kept = Extents(random);
    std::vector<int64_t> reduced =
        random.OneIn(3) ? std::vector<int64_t>{3, 41} : std::vector<int64_t>{random.Below(9)};
    std::vector<int64_t> all = kept;
    Append(all, reduced);
    if (Product(all) * 8 * 4 > kBytes) continue;
    constexpr BuiltinOperator kOps[] = {BuiltinOperator::kAdd, BuiltinOperator::kMax, BuiltinOperator::kMin};
    auto op = kOps[random.Below(3)];
    if (random.OneIn(4) && Product(reduced) <= 9) op = BuiltinOperator::kMul;
    std::vector<int64_t> args = {
        Address(in), 0, static_cast<int64_t>(dtype), static_cast<int64_t>(op), std::ssize(kept), std::ssize(reduced)};
    Append(args, all);
    std::vector<int64_t> strides(all.size(), 0);
    int64_t stride = 1;
    for (size_t i = all.size(); i-- > 0; stride *= std::max<int64_t>(all[i], 1)) strides[i] = stride;
    Append(args, strides);
    std::vector<int64_t> out(kept.size(), 0);
    stride = 1;
    for (size_t i = kept.size(); i-- > 0; stride *= kept[i]) out[i] = stride;
    Append(args, out);
    RunBoth(2, {&in}, args, Product(kept), random, expected, got);
    ExpectEqual(dtype, expected, got);
  }
}

}  // namespace hir::host
