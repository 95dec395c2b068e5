// The built-in kernels of GPUs against those of CPUs: random shapes, strides, types and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/prng.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/eval/builtins.h"
#include "host_ir/eval/host/host_builtins.h"
#include "tests/host_ir/eval/cuda/cpu_kernels.h"

namespace hir::host {
namespace {

constexpr int64_t kBytes = 1 << 16;

int64_t Address(const std::vector<std::byte>& bytes) {
  return reinterpret_cast<int64_t>(bytes.data());
}

// Small integers and halves, exact in every type; now and then infinities and NaN.
void FillValue(DType dtype, std::byte* at, base::Prng& random) {
  const double plain = static_cast<double>(random.Below(17) - 8) / (IsFloat(dtype) ? 2 : 1);
  const bool odd = IsFloat(dtype) && random.OneIn(20);
  const double value = !odd              ? plain
                       : random.OneIn(2) ? std::numeric_limits<double>::quiet_NaN()
                                         : 1e300 * 1e10;
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

std::vector<std::byte> Values(DType dtype, base::Prng& random) {
  std::vector<std::byte> bytes(kBytes);
  for (int64_t i = 0; i < kBytes; i += DTypeBytes(dtype))
    FillValue(dtype, bytes.data() + i, random);
  return bytes;
}

double ValueAt(DType dtype, const std::byte* at) {
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
void ExpectEqual(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const int64_t size = DTypeBytes(dtype);
  for (int64_t i = 0; i < kBytes; i += size) {
    if (std::memcmp(a.data() + i, b.data() + i, static_cast<size_t>(size)) == 0) continue;
    const double x = ValueAt(dtype, a.data() + i), y = ValueAt(dtype, b.data() + i);
    ASSERT_TRUE(x != x && y != y) << DTypeName(dtype) << " element " << i / size << ": " << x
                                  << " and " << y;
  }
}

// Strides of a tensor that fits kBytes, its axes in a random order in memory, with gaps; 0 along some axes when it
// is only read.
std::vector<int64_t> Strides(const std::vector<int64_t>& extents, bool read_only,
                             base::Prng& random) {
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

std::vector<int64_t> Extents(base::Prng& random) {
  std::vector<int64_t> extents(static_cast<size_t>(random.Below(4)));
  for (int64_t& extent : extents) extent = random.OneIn(4) ? 16 : 1 + random.Below(9);
  return extents;
}

int64_t Product(const std::vector<int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

void Append(std::vector<int64_t>& args, const std::vector<int64_t>& more) {
  args.insert(args.end(), more.begin(), more.end());
}

// Runs builtin `index` on the CPU into `expected` and by the GPU's text into `got`; args[out] is set to each.
void RunBoth(size_t index, std::vector<int64_t> args, size_t out, int64_t grid,
             std::vector<std::byte>& expected, std::vector<std::byte>& got, base::Prng& random) {
  static HostBuiltins builtins;
  const std::string_view names[] = {kCopyKernel, kBinaryKernel, kReduceKernel};
  args.resize(kBuiltinSlots);
  args[out] = Address(expected);
  const auto& kernel = static_cast<const device::HostKernel&>(**builtins.Get(names[index]));
  const int64_t middle = grid == 0 ? 0 : random.Below(grid);  // As a launch is split.
  kernel.function()(args.data(), 0, middle);
  kernel.function()(args.data(), middle, grid);
  args[out] = Address(got);
  CpuKernels()[index](args.data(), 1 + random.Below(3));
}

TEST(CudaBuiltins, CopiesAsTheCpuDoes) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Prng random(seed);
    const auto dtype = kAllDTypes[random.Below(std::ssize(kAllDTypes))];
    const std::vector<std::byte> src = Values(dtype, random);
    std::vector<std::byte> expected(kBytes), got(kBytes);
    const std::vector<int64_t> extents = Extents(random);
    std::vector<int64_t> args = {Address(src), 0, DTypeBytes(dtype), std::ssize(extents)};
    Append(args, extents);
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, false, random));
    RunBoth(0, args, 1, Product(extents), expected, got, random);
    EXPECT_TRUE(expected == got);
  }
}

TEST(CudaBuiltins, CopiesRowsOfWordsWide) {
  base::Prng random(7);
  const std::vector<std::byte> src = Values(DType::kBFloat16, random);
  std::vector<std::byte> expected(kBytes), got(kBytes);
  // Rows of 64 out of 128: both sides whole words of 16 bytes.
  const std::vector<int64_t> args = {Address(src), 0, 2, 2, 16, 64, 128, 1, 64, 1};
  RunBoth(0, args, 1, 16 * 64, expected, got, random);
  EXPECT_TRUE(expected == got);
  EXPECT_FALSE(std::ranges::all_of(got, [](std::byte x) { return x == std::byte{}; }));
}

TEST(CudaBuiltins, BinaryOpsAreTheCpus) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Prng random(seed);
    const auto dtype = kAllDTypes[random.Below(std::ssize(kAllDTypes))];
    const std::vector<std::byte> a = Values(dtype, random), b = Values(dtype, random);
    std::vector<std::byte> expected(kBytes), got(kBytes);
    const std::vector<int64_t> extents = Extents(random);
    std::vector<int64_t> args = {
        Address(a),      Address(b),         0, static_cast<int64_t>(dtype),
        random.Below(6), std::ssize(extents)};
    Append(args, extents);
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, true, random));
    Append(args, Strides(extents, false, random));
    RunBoth(1, args, 2, Product(extents), expected, got, random);
    ExpectEqual(dtype, expected, got);
  }
}

// Values are exact under any order of additions; products of long reductions are not, and are left out.
TEST(CudaBuiltins, ReductionsAreTheCpus) {
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
    constexpr BuiltinOperator kOps[] = {BuiltinOperator::kAdd, BuiltinOperator::kMax,
                                        BuiltinOperator::kMin};
    auto op = kOps[random.Below(3)];
    if (random.OneIn(4) && Product(reduced) <= 9) op = BuiltinOperator::kMul;
    std::vector<int64_t> args = {Address(in),
                                 0,
                                 static_cast<int64_t>(dtype),
                                 static_cast<int64_t>(op),
                                 std::ssize(kept),
                                 std::ssize(reduced)};
    Append(args, all);
    std::vector<int64_t> strides(all.size(), 0);
    int64_t stride = 1;
    for (size_t i = all.size(); i-- > 0; stride *= std::max<int64_t>(all[i], 1))
      strides[i] = stride;
    Append(args, strides);
    std::vector<int64_t> out(kept.size(), 0);
    stride = 1;
    for (size_t i = kept.size(); i-- > 0; stride *= kept[i]) out[i] = stride;
    Append(args, out);
    RunBoth(2, args, 1, Product(kept), expected, got, random);
    ExpectEqual(dtype, expected, got);
  }
}

TEST(CudaBuiltins, AreFoundByTheirNames) {
  device::CudaDeviceOptions options;
  options.driver = HIR_FAKE_CUDA;
  const auto device = *device::OpenCudaDevice(options);
  const auto builtins = *MakeCudaBuiltins(*device, CompileForCpu);
  for (std::string_view name : {kCopyKernel, kBinaryKernel, kReduceKernel})
    EXPECT_TRUE(builtins->Get(name).ok());
  EXPECT_EQ(builtins->Get("host.scan").status().ToString(),
            "NOT_FOUND: no built-in kernel host.scan");
  const auto failing = [](std::string_view, int) -> Result<std::string> {
    return Unavailable("no compiler");
  };
  EXPECT_EQ(MakeCudaBuiltins(*device, failing).status().ToString(), "UNAVAILABLE: no compiler");
}

}  // namespace
}  // namespace hir::host
