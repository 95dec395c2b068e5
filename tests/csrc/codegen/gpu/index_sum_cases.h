// Random sums of rows by index, of shapes and strides around the tile of updates, with indices of few and of many rows,
// some outside; beside them what CPUs make of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/library.h"

namespace hir::testing {

using Bytes = std::vector<std::byte>;

inline constexpr DType kSummed[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                    DType::kFloat16, DType::kInt32,   DType::kInt64};
inline constexpr DType kIndices[] = {DType::kInt32, DType::kInt64};

// Row-major, of axes in any order, with gaps behind rows at times.
inline codegen::library::Tensor Laid(DType dtype, std::vector<int64_t> shape, base::Prng& prng) {
  codegen::library::Tensor tensor = {dtype, shape, std::vector<int64_t>(shape.size())};
  int64_t stride = 1;
  const bool backwards = prng.OneIn(3);
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t k = backwards ? i : shape.size() - 1 - i;
    tensor.strides[k] = stride;
    stride *= std::max<int64_t>(shape[k], 1) + (prng.OneIn(4) ? 1 : 0);
  }
  return tensor;
}

inline Bytes BytesOf(const codegen::library::Tensor& tensor) {
  int64_t last = 1;
  for (size_t k = 0; k < tensor.shape.size(); ++k)
    last += std::max<int64_t>(tensor.shape[k] - 1, 0) * tensor.strides[k];
  return Bytes(static_cast<size_t>(last * DTypeBytes(tensor.dtype)), std::byte{0x5a});
}

inline void Put(DType dtype, std::byte* at, int64_t value) {
  const auto put = [&](auto stored) { std::memcpy(at, &stored, sizeof(stored)); };
  const auto number = static_cast<float>(value) / 3;
  switch (dtype) {
    case DType::kFloat32: return put(number);
    case DType::kFloat64: return put(static_cast<double>(value) / 3);
    case DType::kBFloat16: return put(FloatToBFloat16(number));
    case DType::kFloat16: return put(FloatToFloat16(number));
    case DType::kUInt8:
    case DType::kInt8: return put(static_cast<uint8_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value * 100000007));
    case DType::kInt64: return put(value * 1000000000000007);
    case DType::kBool: break;
  }
}

// Writes the output, which holds something else, of a call on operands.
using IndexSumRunner = std::function<void(const codegen::library::IndexSumDesc& desc, const Bytes& updates,
                                          const Bytes& indices, Bytes& output)>;

inline void CheckIndexSums(const IndexSumRunner& run) {
  base::WorkPool pool({.num_threads = 1});
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    base::Prng prng(seed);
    const DType dtype = kSummed[seed % std::size(kSummed)], index = kIndices[prng.Below(2)];
    const int64_t counts[] = {0, 1, 5, 700, 1023, 1024, 1025, 2500};
    std::vector<int64_t> shape;
    for (int64_t k = prng.Below(3); k >= 0; --k) shape.push_back(prng.Between(prng.OneIn(20) ? 0 : 1, 5));
    const auto axis = static_cast<size_t>(prng.Below(std::ssize(shape)));
    const int64_t count = counts[prng.Below(std::ssize(counts))], size = prng.OneIn(3) ? 3 : prng.Between(0, 900);
    shape[axis] = count;
    const codegen::library::Tensor updates = Laid(dtype, shape, prng), indices = Laid(index, {count}, prng);
    shape[axis] = size;
    const codegen::library::IndexSumDesc desc = {updates, indices, Laid(dtype, shape, prng),
                                                 static_cast<int64_t>(axis)};
    Bytes x = BytesOf(updates), k = BytesOf(indices), want = BytesOf(desc.output);
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(DTypeBytes(dtype)))
      Put(dtype, x.data() + at, prng.Between(-9, 9));
    for (int64_t n = 0; n < count; ++n) {
      const int64_t place = prng.Between(-size - 1, size + 1);
      std::byte* const at = k.data() + n * indices.strides[0] * DTypeBytes(index);
      const auto narrow = static_cast<int32_t>(place);
      index == DType::kInt32 ? std::memcpy(at, &narrow, sizeof(narrow)) : std::memcpy(at, &place, sizeof(place));
    }
    Bytes got = want;
    auto call = codegen::library::MakeIndexSum(desc, pool);
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    const std::byte* const inputs[] = {x.data(), k.data()};
    std::byte* const outputs[] = {want.data()};
    (*call)->Run(inputs, outputs);
    run(desc, x, k, got);
    EXPECT_TRUE(got == want) << DTypeName(dtype) << ", " << count << " updates of " << size << " rows";
  }
}

}  // namespace hir::testing
