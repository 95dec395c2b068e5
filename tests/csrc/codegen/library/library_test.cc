// Goal: products of every type, shape and stride are right, by whichever implementation.
// Method: random problems; the expected value is summed in double (or int64) element by element.
#include "csrc/codegen/library/library.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "tests/csrc/codegen/library/elements.h"

namespace hir::codegen::library {
namespace {

// A tensor's elements as doubles, and as the bytes that a call reads.
struct Data {
  Tensor tensor;
  std::vector<double> values;
  std::vector<std::byte> bytes;
};

// Row-major; with `once`, the axes it names are stored once.
Data MakeData(base::Prng& prng, DType dtype, std::vector<int64_t> shape, std::vector<bool> once = {}) {
  Data data = {.tensor = {dtype, shape, std::vector<int64_t>(shape.size())}, .values = {}, .bytes = {}};
  once.resize(shape.size());
  int64_t count = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    data.tensor.strides[i] = once[i] ? 0 : count;
    if (!once[i]) count *= shape[i];
  }
  data.bytes.resize(static_cast<size_t>(count * DTypeBytes(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const double value =
        IsFloat(dtype) ? RoundTo(dtype, 2 * prng.Unit() - 1) : static_cast<double>(prng.Between(-50, 50));
    data.values.push_back(value);
    Put(data.bytes.data() + i * DTypeBytes(dtype), dtype, value);
  }
  return data;
}

double At(const Data& data, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) at += data.tensor.shape[i] == 1 ? 0 : index[i] * data.tensor.strides[i];
  return data.values[static_cast<size_t>(at)];
}

template <typename Visit>
void ForEachIndex(const std::vector<int64_t>& shape, const Visit& visit) {
  std::vector<int64_t> index(shape.size(), 0);
  for (const int64_t extent : shape) {
    if (extent == 0) return;
  }
  while (true) {
    visit(index);
    size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

double ToleranceOf(DType dtype, int64_t k) {
  const double n = static_cast<double>(k) + 1;
  if (dtype == DType::kFloat32) return 1e-6 * n;
  if (dtype == DType::kFloat64) return 1e-14 * n;
  if (dtype == DType::kBFloat16) return 1e-2 * std::sqrt(n);
  if (dtype == DType::kFloat16) return 2e-3 * std::sqrt(n);
  return 0;
}

void Check(const ProductDesc& desc, const std::vector<Data>& inputs, Data output,
           const std::function<double(const std::vector<int64_t>&)>& expected, int64_t k) {
  for (const bool fast : {false, true}) {
    auto call = fast ? Make(desc, {.num_threads = 2}) : MakeLoops(desc);
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    std::fill(output.bytes.begin(), output.bytes.end(), std::byte{0x7f});
    std::vector<const std::byte*> addresses;
    for (const Data& input : inputs) addresses.push_back(input.bytes.data());
    std::byte* const address = output.bytes.data();
    (*call)->Run(addresses, {&address, 1});
    int faults = 0;
    ForEachIndex(output.tensor.shape, [&](const std::vector<int64_t>& index) {
      int64_t at = 0;
      for (size_t i = 0; i < index.size(); ++i) at += index[i] * output.tensor.strides[i];
      const double got = Take(output.bytes.data() + at * DTypeBytes(desc.output.dtype), desc.output.dtype);
      const double want = expected(index);
      if (std::fabs(got - want) <= ToleranceOf(desc.output.dtype, k) || ++faults > 3) return;
      ADD_FAILURE() << (*call)->implementation() << ": [" << base::JoinInts(index, ", ") << "] is " << got << ", not "
                    << want;
    });
  }
}

void CheckMatmul(base::Prng& prng, DType dtype, std::vector<int64_t> a_shape, std::vector<int64_t> b_shape,
                 std::vector<int64_t> c_shape, std::vector<bool> a_once = {}, std::vector<bool> b_once = {}) {
  SCOPED_TRACE(
      base::Cat(DTypeName(dtype), " [", base::JoinInts(a_shape, ", "), "] x [", base::JoinInts(b_shape, ", "), "]"));
  const Data a = MakeData(prng, dtype, a_shape, a_once), b = MakeData(prng, dtype, b_shape, b_once);
  const Data c = MakeData(prng, dtype, c_shape);
  const int64_t k = a_shape.back();
  const size_t free = (a_shape.size() > 1 ? 1u : 0u) + (b_shape.size() > 1 ? 1u : 0u);
  const auto expected = [&](const std::vector<int64_t>& index) {
    const std::vector<int64_t> batch(index.begin(), index.end() - static_cast<std::ptrdiff_t>(free));
    const auto own = [&](const Data& data, std::vector<int64_t> last) {
      const size_t count = data.tensor.shape.size() - last.size();
      std::vector<int64_t> full(batch.end() - static_cast<std::ptrdiff_t>(count), batch.end());
      full.insert(full.end(), last.begin(), last.end());
      return At(data, full);
    };
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const double x = a_shape.size() == 1 ? own(a, {i}) : own(a, {index[batch.size()], i});
      const double y = b_shape.size() == 1 ? own(b, {i}) : own(b, {i, index.back()});
      sum += x * y;
    }
    return sum;
  };
  Check({"matmul", {a.tensor, b.tensor}, c.tensor}, {a, b}, c, expected, k);
}

constexpr DType kTypes[] = {DType::kInt32,    DType::kInt64,   DType::kFloat16,
                            DType::kBFloat16, DType::kFloat32, DType::kFloat64};

TEST(Library, MatmulOfEveryTypeAndRank) {
  base::Prng prng(1);
  for (const DType dtype : kTypes) {
    CheckMatmul(prng, dtype, {3, 5}, {5, 7}, {3, 7});
    CheckMatmul(prng, dtype, {70, 200}, {200, 130}, {70, 130});
    CheckMatmul(prng, dtype, {1, 1}, {1, 1}, {1, 1});
    CheckMatmul(prng, dtype, {5}, {5}, {});
    CheckMatmul(prng, dtype, {5}, {5, 4}, {4});
    CheckMatmul(prng, dtype, {4, 5}, {5}, {4});
    CheckMatmul(prng, dtype, {2, 3, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6});
    CheckMatmul(prng, dtype, {2, 1, 4, 5}, {3, 5, 6}, {2, 3, 4, 6});
    CheckMatmul(prng, dtype, {4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6});
    CheckMatmul(prng, dtype, {2, 4, 5}, {5, 6}, {2, 4, 6});
  }
}

TEST(Library, EmptyAxes) {
  base::Prng prng(2);
  for (const DType dtype : kTypes) {
    CheckMatmul(prng, dtype, {3, 0}, {0, 4}, {3, 4});  // All zeros.
    CheckMatmul(prng, dtype, {0, 3}, {3, 4}, {0, 4});
    CheckMatmul(prng, dtype, {0, 2, 3}, {3, 4}, {0, 2, 4});
  }
}

TEST(Library, AxesStoredOnce) {
  base::Prng prng(3);
  for (const DType dtype : kTypes) {
    CheckMatmul(prng, dtype, {4, 6}, {6, 5}, {4, 5}, {true, false});
    CheckMatmul(prng, dtype, {4, 6}, {6, 5}, {4, 5}, {false, true}, {true, true});
    CheckMatmul(prng, dtype, {3, 4, 6}, {3, 6, 5}, {3, 4, 5}, {true, false, false});
  }
}

TEST(Library, RandomMatmuls) {
  base::Prng prng(4);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kTypes[prng.Below(6)];
    const int64_t m = prng.Between(1, 40), n = prng.Between(1, 40), k = prng.Between(0, 40), b = prng.Between(1, 4);
    switch (prng.Below(3)) {
      case 0: CheckMatmul(prng, dtype, {m, k}, {k, n}, {m, n}); break;
      case 1: CheckMatmul(prng, dtype, {b, m, k}, {k, n}, {b, m, n}); break;
      default: CheckMatmul(prng, dtype, {b, m, k}, {b, k, n}, {b, m, n}); break;
    }
  }
}

TEST(Library, Linear) {
  base::Prng prng(5);
  for (const DType dtype : kTypes) {
    for (const bool with_bias : {false, true}) {
      for (const auto& leading : {std::vector<int64_t>{}, {1}, {9}, {3, 4}, {0, 2}}) {
        for (const int64_t k : {0, 1, 33}) {
          std::vector<int64_t> x_shape = leading, y_shape = leading;
          x_shape.push_back(k);
          y_shape.push_back(17);
          SCOPED_TRACE(
              base::Cat(DTypeName(dtype), " [", base::JoinInts(x_shape, ", "), "]", with_bias ? " with bias" : ""));
          const Data x = MakeData(prng, dtype, x_shape), w = MakeData(prng, dtype, {17, k}),
                     bias = MakeData(prng, dtype, {17});
          const Data y = MakeData(prng, dtype, y_shape);
          ProductDesc desc = {"linear", {x.tensor, w.tensor}, y.tensor};
          std::vector<Data> inputs = {x, w};
          if (with_bias) {
            desc.inputs.push_back(bias.tensor);
            inputs.push_back(bias);
          }
          Check(
              desc, inputs, y,
              [&](std::vector<int64_t> index) {
                const int64_t n = index.back();
                double sum = with_bias ? At(bias, {n}) : 0;
                for (int64_t i = 0; i < k; ++i) {
                  index.back() = i;
                  sum += At(x, index) * At(w, {n, i});
                }
                return sum;
              },
              k);
        }
      }
    }
  }
}

constexpr Epilogue kEpilogues[] = {Epilogue::kGelu, Epilogue::kRelu, Epilogue::kTanhGelu};

double Activated(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kGelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2)));
    case Epilogue::kRelu: return x > 0 ? x : 0;
    case Epilogue::kTanhGelu: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

// Of linear and of matmul with a matrix on the right, with and without a bias.
TEST(Library, Epilogues) {
  base::Prng prng(6);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const Epilogue epilogue : kEpilogues) {
      for (const bool linear : {false, true}) {
        for (const bool with_bias : {false, true}) {
          for (const int64_t k : {0, 3, 64}) {
            SCOPED_TRACE(base::Cat(DTypeName(dtype), " ", EpilogueName(epilogue), " k ", k));
            const Data x = MakeData(prng, dtype, {2, 9, k}), bias = MakeData(prng, dtype, {21});
            const Data w = linear ? MakeData(prng, dtype, {21, k}) : MakeData(prng, dtype, {k, 21});
            const Data y = MakeData(prng, dtype, {2, 9, 21});
            ProductDesc desc = {.op = linear ? "linear" : "matmul",
                                .inputs = {x.tensor, w.tensor},
                                .output = y.tensor,
                                .epilogue = epilogue};
            std::vector<Data> inputs = {x, w};
            if (with_bias) {
              desc.inputs.push_back(bias.tensor);
              inputs.push_back(bias);
            }
            const auto expected = [&](std::vector<int64_t> index) {
              const int64_t n = index.back();
              double sum = with_bias ? At(bias, {n}) : 0;
              for (int64_t i = 0; i < k; ++i) {
                index.back() = i;
                sum += At(x, index) * (linear ? At(w, {n, i}) : At(w, {i, n}));
              }
              return Activated(epilogue, sum);
            };
            Check(desc, inputs, y, expected, k);
          }
        }
      }
    }
  }
}

// One rounding, behind the activation: the sum of 16-bit floats never is one itself.
TEST(Library, EpiloguesRoundOnce) {
  const double factor = 1.0078125, other = 1.1171875;  // Two bf16.
  const double sum = factor * other;                   // Not a bf16.
  const double once = RoundTo(DType::kBFloat16, Activated(Epilogue::kGelu, sum));
  const double twice = RoundTo(DType::kBFloat16, Activated(Epilogue::kGelu, RoundTo(DType::kBFloat16, sum)));
  ASSERT_NE(once, twice);
  const Tensor one = {DType::kBFloat16, {64, 64}, {64, 1}};
  for (const bool fast : {false, true}) {
    const ProductDesc desc = {.op = "matmul", .inputs = {one, one}, .output = one, .epilogue = Epilogue::kGelu};
    std::vector<std::byte> a(8192), b(8192), c(8192);
    for (int64_t i = 0; i < 64; ++i) {
      Put(a.data() + i * 130, DType::kBFloat16, factor);
      Put(b.data() + i * 130, DType::kBFloat16, other);
    }
    auto call = fast ? Make(desc, {}) : MakeLoops(desc);
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    const std::byte* const inputs[] = {a.data(), b.data()};
    std::byte* const outputs[] = {c.data()};
    (*call)->Run(inputs, outputs);
    EXPECT_EQ(Take(c.data(), DType::kBFloat16), once) << (*call)->implementation();
  }
}

// A NaN is seen behind every epilogue, and a zero of relu is no negative zero.
TEST(Library, EpiloguesKeepNaN) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const Epilogue epilogue : kEpilogues) {
      SCOPED_TRACE(base::Cat(DTypeName(dtype), " ", EpilogueName(epilogue)));
      const Tensor square = {dtype, {64, 64}, {64, 1}};
      const ProductDesc desc = {.op = "matmul", .inputs = {square, square}, .output = square, .epilogue = epilogue};
      const int64_t size = DTypeBytes(dtype);
      std::vector<std::byte> a(static_cast<size_t>(4096 * size)), b = a, c = a;
      for (int64_t i = 0; i < 64; ++i) {
        Put(a.data() + i * 65 * size, dtype, i == 3 ? NAN : -static_cast<double>(i));
        Put(b.data() + i * 65 * size, dtype, 1);
      }
      for (const bool fast : {false, true}) {
        auto call = fast ? Make(desc, {}) : MakeLoops(desc);
        ASSERT_TRUE(call.ok()) << call.status().ToString();
        const std::byte* const inputs[] = {a.data(), b.data()};
        std::byte* const outputs[] = {c.data()};
        (*call)->Run(inputs, outputs);
        EXPECT_TRUE(std::isnan(Take(c.data() + 3 * 65 * size, dtype))) << (*call)->implementation();
        const double zero = Take(c.data() + 20 * 65 * size, dtype);
        if (epilogue != Epilogue::kRelu) continue;
        EXPECT_EQ(zero, 0) << (*call)->implementation();
        EXPECT_FALSE(std::signbit(zero)) << (*call)->implementation();
      }
    }
  }
}

TEST(Library, RefusesByName) {
  const Tensor f = {DType::kFloat32, {2, 3}, {3, 1}};
  const Tensor d = {DType::kFloat64, {3, 2}, {2, 1}};
  const Tensor out = {DType::kFloat32, {2, 2}, {2, 1}};
  EXPECT_EQ(MakeLoops({"conv", {f, f}, out}).status().ToString(), "UNIMPLEMENTED: library call conv with 2 operands");
  EXPECT_EQ(MakeLoops({"matmul", {f, d}, out}).status().ToString(), "UNIMPLEMENTED: matmul of f64 to f32");
  EXPECT_EQ(MakeLoops({"matmul", {f, f}, out}).status().ToString(),
            "INVALID_ARGUMENT: matmul: axis -1 of the right operand has extent 3, not 2");
  const Tensor i = {DType::kInt32, {2, 2}, {2, 1}};
  EXPECT_EQ(MakeLoops({.op = "matmul", .inputs = {i, i}, .output = i, .epilogue = Epilogue::kRelu}).status().ToString(),
            "UNIMPLEMENTED: matmul of i32 with the epilogue relu");
}

}  // namespace
}  // namespace hir::codegen::library
