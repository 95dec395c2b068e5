// Reduction by hand-written values: what the conformance suite's random data does not reach.
#include "multidevice/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::comm {
namespace {

template <typename T>
std::vector<T> Reduced(ReduceOp op, DType dtype, const std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> srcs;
  for (const auto& input : inputs) srcs.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> out(inputs[0].size());
  Reduce(op, dtype, srcs, reinterpret_cast<std::byte*>(out.data()), static_cast<int64_t>(out.size()));
  return out;
}

TEST(Reduce, AMeanIsRoundedOnce) {
  // 2048 + 1 + 1 + 2 = 2052; a sum of f16 would stay at 2048, 2048, 2050.
  const auto f16 = [](float value) { return FloatToFloat16(value); };
  EXPECT_EQ(Reduced<uint16_t>(ReduceOp::kMean, DType::kFloat16, {{f16(2048)}, {f16(1)}, {f16(1)}, {f16(2)}}),
            std::vector<uint16_t>{f16(513)});
  EXPECT_EQ(Reduced<float>(ReduceOp::kMean, DType::kFloat32, {{1, -3}, {2, 0}, {6, 0}}), (std::vector<float>{3, -1}));
  // The sum of the ranks does not fit f16, the mean does.
  EXPECT_EQ(Reduced<uint16_t>(ReduceOp::kMean, DType::kFloat16, {{f16(60000)}, {f16(40000)}}),
            (std::vector<uint16_t>{f16(50000)}));
}

TEST(Reduce, NanStaysInMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto out = Reduced<float>(op, DType::kFloat32, {{nan, 1}, {1, nan}, {2, 2}});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  }
}

TEST(Reduce, IntegersWrap) {
  const int32_t max = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Reduced<int32_t>(ReduceOp::kSum, DType::kInt32, {{max}, {1}}),
            std::vector<int32_t>{std::numeric_limits<int32_t>::min()});
  EXPECT_EQ(Reduced<int32_t>(ReduceOp::kProd, DType::kInt32, {{max}, {2}}), std::vector<int32_t>{-2});
}

TEST(Reduce, BoolsAreAndAndOr) {
  const std::vector<std::vector<uint8_t>> inputs = {{0, 1, 0, 1}, {0, 0, 7, 1}};  // Any byte but 0 is true.
  EXPECT_EQ(Reduced(ReduceOp::kSum, DType::kBool, inputs), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(Reduced(ReduceOp::kMax, DType::kBool, inputs), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(Reduced(ReduceOp::kProd, DType::kBool, inputs), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(Reduced(ReduceOp::kMin, DType::kBool, inputs), (std::vector<uint8_t>{0, 0, 0, 1}));
}

// 256 + 1 is 256 in bf16, so three steps rounded one by one would stay there.
TEST(Reduce, HalvesRoundOnce) {
  const auto bf16 = [](float value) { return std::vector<uint16_t>{FloatToBFloat16(value)}; };
  EXPECT_EQ(Reduced<uint16_t>(ReduceOp::kSum, DType::kBFloat16, {bf16(256), bf16(1), bf16(1), bf16(1)}), bf16(260));
  const auto f16 = [](float value) { return std::vector<uint16_t>{FloatToFloat16(value)}; };
  EXPECT_EQ(Reduced<uint16_t>(ReduceOp::kSum, DType::kFloat16, {f16(2048), f16(1), f16(1)}), f16(2050));
}

// Sums of every bf16 with some others: ties, infinities and NaNs among them.
TEST(Reduce, StoresBFloat16AsTheConversionDoes) {
  std::vector<uint16_t> a, expected;
  std::vector<uint16_t> b;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (int other : {0x0000, 0x3f80, 0x3f81, 0x7f80, 0x7fc1, 0xff7f}) {
      a.push_back(static_cast<uint16_t>(bits));
      b.push_back(static_cast<uint16_t>(other));
      expected.push_back(FloatToBFloat16(BFloat16ToFloat(a.back()) + BFloat16ToFloat(b.back())));
    }
  }
  const auto out = Reduced<uint16_t>(ReduceOp::kSum, DType::kBFloat16, {a, b});
  for (size_t i = 0; i < out.size(); ++i) {  // Which of two NaNs stays is left open.
    const bool nan = std::isnan(BFloat16ToFloat(expected[i])) && std::isnan(BFloat16ToFloat(out[i]));
    ASSERT_TRUE(nan || out[i] == expected[i]) << a[i] << " + " << b[i];
  }
}

// One node's sums go on to the next: the same bits as at once.
TEST(Reduce, InStepsItIsTheSame) {
  base::Prng prng(5);
  for (const DType dtype : {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kBFloat16,
                            DType::kFloat32, DType::kFloat64}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
      const bool is_float = IsFloat(dtype);
      if (op == ReduceOp::kMean && !is_float) continue;
      constexpr int64_t kCount = 1037;
      std::vector<std::vector<std::byte>> inputs(7);
      std::vector<const std::byte*> srcs;
      for (auto& input : inputs) {
        input.resize(static_cast<size_t>(kCount * DTypeBytes(dtype)));
        for (std::byte& byte : input) byte = static_cast<std::byte>(prng.Below(is_float ? 60 : 2));
        srcs.push_back(input.data());
      }
      const std::span<const std::byte* const> all(srcs);
      std::vector<std::byte> once(inputs[0].size()), last(inputs[0].size());
      std::vector<std::byte> first(static_cast<size_t>(kCount * AccumulatorBytes(dtype))), second(first.size());
      Reduce(op, dtype, all, once.data(), kCount);
      Reduce(op, dtype, {}, all.subspan(0, 3), first.data(), kCount);
      Reduce(op, dtype, {.before = first.data()}, all.subspan(3, 1), second.data(), kCount);
      Reduce(op, dtype, {.before = second.data(), .total = 7}, all.subspan(4), last.data(), kCount);
      EXPECT_EQ(once, last) << DTypeName(dtype) << " " << static_cast<int>(op);
    }
  }
}

TEST(Reduce, TheResultMayReplaceASource) {
  std::vector<double> a(2000, 1), b(2000, 2);
  const std::byte* const srcs[] = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())};
  Reduce(ReduceOp::kSum, DType::kFloat64, srcs, reinterpret_cast<std::byte*>(b.data()), 2000);
  EXPECT_EQ(b, std::vector<double>(2000, 3));
}

}  // namespace
}  // namespace hir::comm
