// Random problems of attention and its gradients, for its implementations: operands of any strides, and their values by
// sums in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/library.h"
#include "tests/csrc/codegen/library/elements.h"

namespace hir::codegen::library::testing {

using What = AttentionDesc::Result;
using Shape = std::vector<int64_t>;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Places of a tensor's elements in memory, in row-major order of the shape that it is broadcast to.
inline std::vector<int64_t> PlacesOf(const Tensor& tensor, const Shape& full) {
  std::vector<int64_t> places(static_cast<size_t>(CountOf(full)));
  for (size_t i = 0; i < places.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = full.size(); axis-- > 0; rest /= full[axis]) {
      if (axis + tensor.shape.size() < full.size()) continue;
      const size_t own = axis + tensor.shape.size() - full.size();
      if (tensor.shape[own] != 1) places[i] += rest % full[axis] * tensor.strides[own];
    }
  }
  return places;
}

struct Data {
  Tensor tensor;
  std::vector<std::byte> bytes;

  double At(int64_t place) const { return Take(bytes.data() + place * DTypeBytes(tensor.dtype), tensor.dtype); }
  void Set(int64_t place, double value) { Put(bytes.data() + place * DTypeBytes(tensor.dtype), tensor.dtype, value); }
  std::vector<double> Dense(const Shape& full) const {
    std::vector<double> values;
    for (const int64_t place : PlacesOf(tensor, full)) values.push_back(At(place));
    return values;
  }
};

// Axes in memory in any order, some with gaps; row-major without a `prng`. `once`: axes that are stored once.
inline Data MakeData(DType dtype, const Shape& shape, base::Prng* prng = nullptr, const std::vector<bool>& once = {}) {
  Data data = {.tensor = {dtype, shape, Shape(shape.size())}, .bytes = {}};
  std::vector<size_t> order;
  for (size_t axis = shape.size(); axis-- > 0;) order.push_back(axis);
  const int64_t kind = prng == nullptr ? 0 : prng->Below(4);
  if (kind == 1 && shape.size() >= 3) std::swap(order[1], order[2]);  // [B, L, H, D] seen as [B, H, L, D].
  if (kind == 2) {
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(prng->Below(static_cast<int64_t>(i)))]);
  }
  int64_t count = 1;
  for (const size_t axis : order) {
    if (axis < once.size() && once[axis]) continue;
    data.tensor.strides[axis] = count;
    count *= std::max<int64_t>(shape[axis], 1) + (kind == 3 ? prng->Below(3) : 0);
  }
  data.bytes.resize(static_cast<size_t>(count * DTypeBytes(dtype)), std::byte{0x7b});
  return data;
}

inline void Fill(Data& data, const std::function<double()>& next) {
  const auto count = static_cast<int64_t>(data.bytes.size()) / DTypeBytes(data.tensor.dtype);
  for (int64_t place = 0; place < count; ++place) data.Set(place, next());
}

struct Case {
  DType dtype = DType::kFloat32;
  Shape leading = {};
  int64_t m = 1, n = 1, d = 1, e = 1;
  std::optional<DType> mask = {};
  bool causal = false;
  int64_t diagonal = 0;
  double scale = 1;

  DType compute() const { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }
  Shape Full(Shape own) const {
    Shape full = leading;
    full.insert(full.end(), own.begin(), own.end());
    return full;
  }
  // Own axes of all inputs.
  std::vector<Shape> InputShapes() const { return {{m, d}, {n, d}, {n, e}, {m, e}, {m}, {m, e}, {m, n}}; }
  Shape ShapeOf(What what) const {
    switch (what) {
      case What::kValues: return Full({m, e});
      case What::kLse: return Full({m});
      case What::kQ: return Full({m, d});
      case What::kK: return Full({n, d});
      case What::kV: return Full({n, e});
    }
    return {};
  }
  std::string ToString() const {
    return base::Cat(DTypeName(dtype), " [", base::JoinInts(leading, ", "), "] m ", m, " n ", n, " d ", d, " e ", e,
                     mask ? base::Cat(" mask ", DTypeName(*mask)) : std::string(),
                     causal ? base::Cat(" diagonal ", diagonal) : std::string(), " scale ", scale);
  }
};

// A result and the sum of the magnitudes of what was added to it.
struct Sums {
  std::vector<double> value, magnitude;
  explicit Sums(int64_t count) : value(static_cast<size_t>(count)), magnitude(value) {}
  void Add(int64_t at, double term, double magnitude_of_term) {
    value[static_cast<size_t>(at)] += term;
    magnitude[static_cast<size_t>(at)] += magnitude_of_term;
  }
};

// The formulas, by loops in double. Inputs in the order of InputShapes, each broadcast.
class Reference {
 public:
  Reference(const Case& c, const std::vector<Data>& inputs) : c_(c), batches_(CountOf(c.leading)) {
    const std::vector<Shape> shapes = c.InputShapes();
    for (size_t i = 0; i < inputs.size(); ++i) dense_.push_back(inputs[i].Dense(c.Full(shapes[i])));
  }

  double Score(int64_t b, int64_t i, int64_t j) const {
    if (c_.causal && j - i > c_.diagonal) return -kInfinity;
    const double mask = c_.mask ? In(6, (b * c_.m + i) * c_.n + j) : 0;
    if (c_.mask == DType::kBool && mask == 0) return -kInfinity;
    double sum = 0;
    for (int64_t x = 0; x < c_.d; ++x) sum += In(0, (b * c_.m + i) * c_.d + x) * In(1, (b * c_.n + j) * c_.d + x);
    return c_.scale * sum + (c_.mask && c_.mask != DType::kBool ? mask : 0);
  }

  Sums Values(Sums& lse) const {
    Sums values(batches_ * c_.m * c_.e);
    for (int64_t row = 0; row < batches_ * c_.m; ++row) {
      std::vector<double> p;
      double max = -kInfinity, total = 0;
      for (int64_t j = 0; j < c_.n; ++j) p.push_back(Score(row / c_.m, row % c_.m, j));
      for (const double s : p) max = s > max ? s : max;
      for (double& s : p) s = s == -kInfinity ? 0 : std::exp(s - (max == -kInfinity ? 0 : max));
      for (const double s : p) total += s;
      lse.Add(row, total == 0 ? -kInfinity : max + std::log(total), std::fabs(max) + 1);
      for (int64_t j = 0; j < c_.n && total != 0; ++j) {
        for (int64_t x = 0; x < c_.e; ++x) {
          const double v = In(2, (row / c_.m * c_.n + j) * c_.e + x), p_j = p[static_cast<size_t>(j)];
          values.Add(row * c_.e + x, p_j * v / total, p_j * std::fabs(v) / total);
        }
      }
    }
    return values;
  }

  Sums Gradient(What what) const {
    Sums sums(CountOf(c_.ShapeOf(what)));
    for (int64_t row = 0; row < batches_ * c_.m; ++row) {
      const int64_t b = row / c_.m;
      for (int64_t j = 0; j < c_.n; ++j) {
        const double s = Score(b, row % c_.m, j), p = s == -kInfinity ? 0 : std::exp(s - In(4, row));
        if (p == 0) continue;
        double of_p = 0, size = 0, mean = 0;
        for (int64_t x = 0; x < c_.e; ++x) {
          const double term = In(3, row * c_.e + x) * In(2, (b * c_.n + j) * c_.e + x);
          const double of_mean = In(3, row * c_.e + x) * In(5, row * c_.e + x);
          of_p += term;
          mean += of_mean;
          size += std::fabs(term) + std::fabs(of_mean);
        }
        const double of_s = p * (of_p - mean) * c_.scale;
        size *= p * std::fabs(c_.scale);
        const int64_t key = b * c_.n + j;
        for (int64_t x = 0; x < (what == What::kV ? c_.e : c_.d); ++x) {
          const auto add = [&](int64_t at, double weight, double magnitude, double factor) {
            sums.Add(at, weight * factor, magnitude * std::fabs(factor));
          };
          if (what == What::kQ) add(row * c_.d + x, of_s, size, In(1, key * c_.d + x));
          if (what == What::kK) add(key * c_.d + x, of_s, size, In(0, row * c_.d + x));
          if (what == What::kV) add(key * c_.e + x, p, p, In(3, row * c_.e + x));
        }
      }
    }
    return sums;
  }

 private:
  double In(size_t input, int64_t at) const { return dense_[input][static_cast<size_t>(at)]; }

  const Case& c_;
  const int64_t batches_;
  std::vector<std::vector<double>> dense_;
};

inline AttentionDesc DescOf(const Case& c, const std::vector<Data>& inputs, const std::vector<What>& whats,
                            bool backward, const std::vector<Data>& outputs) {
  AttentionDesc desc = {.inputs = {},
                        .backward = backward,
                        .has_mask = c.mask.has_value(),
                        .causal = c.causal,
                        .diagonal = c.diagonal,
                        .scale = c.scale,
                        .outputs = {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < 3 || i == 6 || backward) desc.inputs.push_back(inputs[i].tensor);
  }
  for (size_t i = 0; i < whats.size(); ++i) desc.outputs.push_back({whats[i], outputs[i].tensor});
  return desc;
}

// `rounds`: the error of a sum, as a part of its terms' magnitudes; by default that of sums in float32, or float64.
inline void Compare(const Case& c, What what, const Data& got, const Sums& want, double rounds = 0) {
  const DType dtype = got.tensor.dtype;
  const double unit = dtype == DType::kFloat64    ? 1e-15
                      : dtype == DType::kFloat32  ? 1e-7
                      : dtype == DType::kBFloat16 ? 0x1p-8
                                                  : 0x1p-10;
  const double sums = rounds > 0 ? rounds : c.dtype == DType::kFloat64 ? 2e-14 : 1e-5;
  // Weights that are no normal numbers, and results that are none.
  const double least = c.dtype == DType::kFloat64 ? 0 : dtype == DType::kFloat32 ? 1e-35 : 1e-7;
  const std::vector<int64_t> places = PlacesOf(got.tensor, c.ShapeOf(what));
  ASSERT_EQ(places.size(), want.value.size());
  int faults = 0;
  std::vector<bool> is_gap(got.bytes.size(), true);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto size = static_cast<size_t>(DTypeBytes(dtype));
    std::fill_n(is_gap.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(places[i]) * size), size, false);
    const double value = got.At(places[i]), expected = want.value[i];
    if (value == expected || (std::isnan(value) && std::isnan(expected))) continue;
    if (std::fabs(value - expected) <= unit * std::fabs(expected) + sums * want.magnitude[i] + least) continue;
    if (++faults <= 3)
      ADD_FAILURE() << "output " << static_cast<int>(what) << " at " << i << " is " << value << ", not " << expected;
  }
  for (size_t i = 0; i < is_gap.size(); ++i)
    ASSERT_TRUE(!is_gap[i] || got.bytes[i] == std::byte{0x7b}) << "a gap is written";
}

// q, k, v, the gradient, lse, the values and perhaps a mask; `prng` chooses strides, and which leading axes each has.
inline std::vector<Data> MakeInputs(const Case& c, base::Prng& prng, bool any_strides) {
  std::vector<Data> inputs;
  const std::vector<Shape> shapes = c.InputShapes();
  for (size_t i = 0; i < (c.mask ? 7U : 6U); ++i) {
    Shape shape = c.Full(shapes[i]);
    std::vector<bool> once(shape.size(), false);
    size_t left_out = 0;
    if (any_strides && i != 0) {  // q has all leading axes, so that they are what the case says.
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const bool leads = axis < c.leading.size();
        if ((leads || i == 6) && prng.OneIn(4)) shape[axis] = 1;
        if (prng.OneIn(leads ? 4 : 12)) once[axis] = true;
      }
      if (prng.OneIn(4)) left_out = static_cast<size_t>(prng.Below(static_cast<int64_t>(c.leading.size()) + 1));
    }
    shape.erase(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(left_out));
    once.erase(once.begin(), once.begin() + static_cast<std::ptrdiff_t>(left_out));
    const DType dtype = i == 6 ? *c.mask : i == 4 ? c.compute() : c.dtype;
    Data data = MakeData(dtype, shape, any_strides ? &prng : nullptr, once);
    const bool has_infinity = prng.OneIn(2);
    Fill(data, [&] {
      if (dtype == DType::kBool) return prng.OneIn(3) ? 0.0 : 1.0;
      if (i == 6 && has_infinity && prng.OneIn(3)) return -kInfinity;
      return 2 * prng.Unit() - 1;
    });
    inputs.push_back(std::move(data));
  }
  // lse is what it is of these scores where it is not broadcast.
  const Reference reference(c, inputs);
  Sums lse(CountOf(c.ShapeOf(What::kLse)));
  reference.Values(lse);
  const std::vector<int64_t> places = PlacesOf(inputs[4].tensor, c.ShapeOf(What::kLse));
  // The largest, where several have one place: no weight is large.
  for (size_t i = 0; i < places.size(); ++i) inputs[4].Set(places[i], -kInfinity);
  for (size_t i = 0; i < places.size(); ++i) inputs[4].Set(places[i], std::max(inputs[4].At(places[i]), lse.value[i]));
  return inputs;
}

}  // namespace hir::codegen::library::testing
