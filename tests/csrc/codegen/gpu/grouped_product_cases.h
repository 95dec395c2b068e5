// Random products of groups of rows, of shapes and strides around the tiles of kernels and the blocks of CPUs, with
// ends in order and not; beside them sums in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/library.h"
#include "tests/csrc/codegen/gpu/index_sum_cases.h"

namespace hir::testing {

inline double NumberAt(DType dtype, const std::byte* at) {
  const auto get = [&](auto stored) {
    std::memcpy(&stored, at, sizeof(stored));
    return stored;
  };
  switch (dtype) {
    case DType::kFloat32: return static_cast<double>(get(float{}));
    case DType::kFloat64: return get(double{});
    case DType::kBFloat16: return static_cast<double>(BFloat16ToFloat(get(uint16_t{})));
    case DType::kFloat16: return static_cast<double>(Float16ToFloat(get(uint16_t{})));
    case DType::kUInt8: return get(uint8_t{});
    case DType::kInt8: return get(int8_t{});
    case DType::kInt32: return static_cast<double>(get(int32_t{}));
    case DType::kInt64: return static_cast<double>(get(int64_t{}));
    case DType::kBool: break;
  }
  return 0;
}

// Small integers, and thirds of floats.
inline void PutSmall(DType dtype, std::byte* at, int64_t value) {
  const auto narrow = static_cast<int32_t>(value);
  if (dtype == DType::kInt32) return void(std::memcpy(at, &narrow, sizeof(narrow)));
  if (dtype == DType::kInt64) return void(std::memcpy(at, &value, sizeof(value)));
  Put(dtype, at, value);
}

// Writes the output, which holds something else, of a call on operands.
using GroupedRunner = std::function<void(const codegen::library::GroupedProductDesc& desc, const Bytes& a,
                                         const Bytes& b, const Bytes& ends, Bytes& output)>;

inline void CheckGroupedProducts(int num_seeds, int64_t rows_max, int64_t columns_max, const GroupedRunner& run) {
  using codegen::library::Tensor;
  for (int seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    base::Prng prng(static_cast<uint64_t>(seed));
    const DType dtype = kSummed[static_cast<size_t>(seed) % std::size(kSummed)], index = kIndices[prng.Below(2)];
    const bool outer = prng.OneIn(2);
    const auto size = [&](int64_t most) { return prng.OneIn(15) ? 0 : prng.OneIn(3) ? most : prng.Between(1, most); };
    const int64_t rows = size(rows_max), k = size(columns_max), n = size(columns_max), groups = prng.Between(0, 6);
    const codegen::library::GroupedProductDesc desc = {
        .outer = outer,
        .a = Laid(dtype, {rows, k}, prng),
        .b = Laid(dtype, outer ? std::vector{rows, n} : std::vector{groups, k, n}, prng),
        .ends = Laid(index, {groups}, prng),
        .output = Laid(dtype, outer ? std::vector{groups, k, n} : std::vector{rows, n}, prng),
        .first = prng.OneIn(3) ? prng.Between(0, rows) : 0};
    Bytes a = BytesOf(desc.a), b = BytesOf(desc.b), ends = BytesOf(desc.ends), output = BytesOf(desc.output);
    const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
    for (size_t at = 0; at + bytes <= a.size(); at += bytes) PutSmall(dtype, a.data() + at, prng.Between(-9, 9));
    for (size_t at = 0; at + bytes <= b.size(); at += bytes) PutSmall(dtype, b.data() + at, prng.Between(-9, 9));
    std::vector<int64_t> begins, lasts;  // By group.
    int64_t before = 0;
    const bool in_order = !prng.OneIn(4);
    for (int64_t group = 0; group < groups; ++group) {
      int64_t end = in_order ? prng.Between(before + desc.first, std::max(before, rows) + desc.first)
                             : prng.Between(-3, rows + desc.first + 3);
      if (prng.OneIn(20))
        end = prng.OneIn(2) ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min();
      PutSmall(index, ends.data() + group * desc.ends.strides[0] * DTypeBytes(index), end);
      begins.push_back(before);
      before = std::max(before, std::clamp(end - desc.first, int64_t{0}, rows));
      lasts.push_back(before);
    }
    run(desc, a, b, ends, output);
    const auto number = [](const Tensor& tensor, const Bytes& in, std::vector<int64_t> place) {
      int64_t at = 0;
      for (size_t axis = 0; axis < place.size(); ++axis) at += place[axis] * tensor.strides[axis];
      return NumberAt(tensor.dtype, in.data() + at * DTypeBytes(tensor.dtype));
    };
    const double unit = dtype == DType::kBFloat16 ? 0x1p-8 : dtype == DType::kFloat16 ? 0x1p-11 : 0;
    int64_t wrong = 0;
    const auto check = [&](const std::vector<int64_t>& place, double want, double scale) {
      const double error = std::abs(number(desc.output, output, place) - want);
      wrong += error <= unit * std::abs(want) + scale * (dtype == DType::kFloat64 ? 1e-14 : 1e-5) ? 0 : 1;
    };
    for (int64_t i = 0; i < (outer ? groups * k : rows); ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, scale = 0;
        const auto add = [&](double x, double y) {
          sum += x * y;
          scale += std::abs(x * y);
        };
        if (outer) {
          const int64_t group = i / k, column = i % k;
          for (int64_t row = begins[static_cast<size_t>(group)]; row < lasts[static_cast<size_t>(group)]; ++row)
            add(number(desc.a, a, {row, column}), number(desc.b, b, {row, j}));
          check({group, column, j}, sum, scale);
          continue;
        }
        const auto group = std::ranges::find_if(lasts, [&](int64_t last) { return i < last; }) - lasts.begin();
        for (int64_t column = 0; group < groups && column < k; ++column)
          add(number(desc.a, a, {i, column}), number(desc.b, b, {group, column, j}));
        check({i, j}, sum, scale);
      }
    }
    EXPECT_EQ(wrong, 0) << DTypeName(dtype) << (outer ? ", outer, " : ", ") << rows << " rows, " << k << " by " << n
                        << ", " << groups << " groups";
  }
}

}  // namespace hir::testing
