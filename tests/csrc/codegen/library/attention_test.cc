// Goal: attention and its gradients are right for every type, shape, stride and mask, whichever outputs are asked for,
// and threads change no bit of them; what is not finite stays where it belongs; what does not fit is refused.
// Method: random cases with sizes around the edges of blocks, beside sums in double; an error is measured by the sum of
// the magnitudes of what was added. Products of blocks are those of the build and loops.
#include "csrc/codegen/library/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "tests/csrc/codegen/library/elements.h"

namespace hir::codegen::library {
namespace {

using What = AttentionDesc::Result;
using Shape = std::vector<int64_t>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Places of a tensor's elements in memory, in row-major order of the shape that it is broadcast to.
std::vector<int64_t> PlacesOf(const Tensor& tensor, const Shape& full) {
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
Data MakeData(DType dtype, const Shape& shape, base::Prng* prng = nullptr, const std::vector<bool>& once = {}) {
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

void Fill(Data& data, const std::function<double()>& next) {
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
  std::vector<Shape> InputShapes() const { return {{m, d}, {n, d}, {n, e}, {m, e}, {m}, {m}, {m, n}}; }
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
        double of_p = 0, size = std::fabs(In(5, row));
        for (int64_t x = 0; x < c_.e; ++x) {
          const double term = In(3, row * c_.e + x) * In(2, (b * c_.n + j) * c_.e + x);
          of_p += term;
          size += std::fabs(term);
        }
        const double of_s = p * (of_p - In(5, row)) * c_.scale;
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

AttentionDesc DescOf(const Case& c, const std::vector<Data>& inputs, const std::vector<What>& whats, bool backward,
                     const std::vector<Data>& outputs) {
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

// Outputs after two runs of one call on so many threads.
std::vector<Data> OutputsOf(const Case& c, const std::vector<Data>& inputs, const std::vector<What>& whats,
                            bool backward, std::vector<Data> outputs, int num_threads, bool by_loops) {
  base::WorkPool pool({.num_threads = num_threads - 1});
  const AttentionDesc desc = DescOf(c, inputs, whats, backward, outputs);
  auto call = by_loops ? MakeAttention(desc, pool, LoopProduct<float>, "loops") : MakeAttention(desc, pool);
  EXPECT_TRUE(call.ok()) << call.status().ToString();
  if (!call.ok()) return outputs;
  std::vector<const std::byte*> from;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < 3 || i == 6 || backward) from.push_back(inputs[i].bytes.data());
  }
  std::vector<std::byte*> to;
  for (Data& output : outputs) to.push_back(output.bytes.data());
  for (int k = 0; k < 2; ++k) (*call)->Run(from, to);
  return outputs;
}

void Compare(const Case& c, What what, const Data& got, const Sums& want) {
  const DType dtype = got.tensor.dtype;
  const double unit = dtype == DType::kFloat64    ? 1e-15
                      : dtype == DType::kFloat32  ? 1e-7
                      : dtype == DType::kBFloat16 ? 0x1p-8
                                                  : 0x1p-10;
  const double sums = c.dtype == DType::kFloat64 ? 2e-14 : 1e-5;
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

// Each in `whats` by both products and on one thread and on three.
void Check(const Case& c, const std::vector<Data>& inputs, const std::vector<What>& whats, bool backward,
           base::Prng* prng) {
  const Reference reference(c, inputs);
  std::vector<Data> outputs;
  for (const What what : whats)
    outputs.push_back(MakeData(what == What::kLse ? c.compute() : c.dtype, c.ShapeOf(what), prng));
  for (const bool by_loops : {false, true}) {
    const std::vector<Data> one = OutputsOf(c, inputs, whats, backward, outputs, 1, by_loops);
    const std::vector<Data> three = OutputsOf(c, inputs, whats, backward, outputs, 3, by_loops);
    for (size_t i = 0; i < whats.size(); ++i) {
      SCOPED_TRACE(by_loops ? "by loops" : "by the build's products");
      EXPECT_TRUE(one[i].bytes == three[i].bytes) << "threads change output " << static_cast<int>(whats[i]);
      Sums lse(CountOf(c.ShapeOf(What::kLse)));
      const Sums want = backward ? reference.Gradient(whats[i]) : reference.Values(lse);
      Compare(c, whats[i], one[i], whats[i] == What::kLse ? lse : want);
    }
  }
}

// q, k, v, the gradient, lse, delta and perhaps a mask; `prng` chooses strides, and which leading axes each has.
std::vector<Data> MakeInputs(const Case& c, base::Prng& prng, bool any_strides) {
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
    const DType dtype = i == 6 ? *c.mask : i == 4 || i == 5 ? c.compute() : c.dtype;
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

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

TEST(Attention, RandomCases) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    base::Prng prng(seed);
    const auto some = [&](std::vector<int64_t> sizes) {
      return sizes[static_cast<size_t>(prng.Below(static_cast<int64_t>(sizes.size())))];
    };
    const bool large = prng.OneIn(5);  // Otherwise one block of keys.
    Case c;
    c.dtype = kTypes[prng.Below(4)];
    for (int64_t axes = prng.Below(large ? 2 : 4); axes > 0; --axes) c.leading.push_back(prng.Between(1, 3));
    c.m = large ? some({1, 63, 64, 65, 127, 130}) : prng.Between(1, 70);
    c.n = large ? some({511, 512, 513, 528, 1025}) : prng.Between(1, 70);
    c.d = prng.Between(1, large ? 4 : 20);
    c.e = prng.OneIn(2) ? c.d : prng.Between(1, large ? 4 : 20);
    if (prng.OneIn(2)) c.mask = prng.OneIn(2) ? DType::kBool : kTypes[prng.Below(4)];
    c.causal = prng.OneIn(2);
    c.diagonal = prng.OneIn(2) ? 0 : prng.OneIn(8) ? some({INT64_MAX, INT64_MIN}) : prng.Between(-c.m - 1, c.n + 1);
    c.scale = prng.OneIn(8) ? 0 : prng.OneIn(4) ? -0.3 : 2 / std::sqrt(static_cast<double>(c.d));
    SCOPED_TRACE(base::Cat("seed ", seed, ": ", c.ToString()));
    const std::vector<Data> inputs = MakeInputs(c, prng, /*any_strides=*/!prng.OneIn(4));
    const bool backward = prng.OneIn(2);
    std::vector<What> whats =
        backward ? std::vector<What>{What::kQ, What::kK, What::kV} : std::vector<What>{What::kLse, What::kValues};
    for (size_t i = whats.size(); i > 1; --i)
      std::swap(whats[i - 1], whats[static_cast<size_t>(prng.Below(static_cast<int64_t>(i)))]);
    if (prng.OneIn(2)) whats.resize(static_cast<size_t>(prng.Between(1, static_cast<int64_t>(whats.size()))));
    Check(c, inputs, whats, backward, &prng);
    if (HasFailure()) return;
  }
}

const std::vector<What> kForward = {What::kValues, What::kLse}, kBackward = {What::kQ, What::kK, What::kV};

TEST(Attention, SizesOfNothing) {
  for (const DType dtype : kTypes) {
    for (const Shape& sizes : {Shape{0, 5, 3, 4}, {5, 0, 3, 4}, {5, 6, 0, 4}, {5, 6, 3, 0}, {0, 0, 0, 0}}) {
      for (const Shape& leading : {Shape{}, {2}, {2, 0}}) {
        Case c = {.dtype = dtype,
                  .leading = leading,
                  .m = sizes[0],
                  .n = sizes[1],
                  .d = sizes[2],
                  .e = sizes[3],
                  .mask = DType::kFloat32};
        SCOPED_TRACE(c.ToString());
        base::Prng prng(3);
        const std::vector<Data> inputs = MakeInputs(c, prng, false);
        Check(c, inputs, kForward, false, nullptr);
        Check(c, inputs, kBackward, true, nullptr);
      }
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (const DType dtype : kTypes) {
    Case c = {.dtype = dtype, .leading = {}, .m = 70, .n = 600, .d = 2, .e = 3, .mask = {}, .scale = 1};
    SCOPED_TRACE(c.ToString());
    base::Prng prng(4);
    std::vector<Data> inputs = MakeInputs(c, prng, false);
    // Whole numbers: scores of 1e4 are exact. They rise from block to block.
    Fill(inputs[0], [&] { return 64.0; });
    double key = 0;
    Fill(inputs[1], [&] { return std::floor(key += 0.125); });
    for (int64_t i = 0; i < c.m; ++i) inputs[4].Set(i, Reference(c, inputs).Score(0, i, c.n - 1));
    Check(c, inputs, kForward, false, nullptr);
    Check(c, inputs, kBackward, true, nullptr);
  }
}

TEST(Attention, QueriesWithoutKeys) {
  for (const DType dtype : kTypes) {
    for (const bool by_mask : {false, true}) {
      Case c = {.dtype = dtype, .leading = {2}, .m = 80, .n = 530, .d = 3, .e = 3};
      if (by_mask) {
        c.mask = DType::kBool;
      } else {
        c.causal = true;
        c.diagonal = -5;
      }
      base::Prng prng(5);
      std::vector<Data> inputs = MakeInputs(c, prng, false);
      for (int64_t i = 0; i < 5 * c.n && by_mask; ++i) inputs[6].Set(i, 0);
      std::vector<Data> outputs = {MakeData(dtype, c.ShapeOf(What::kValues)),
                                   MakeData(c.compute(), c.ShapeOf(What::kLse))};
      outputs = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(outputs[0].At(i * c.e + 1), 0);
        EXPECT_EQ(outputs[1].At(i), -kInfinity);
        inputs[4].Set(i, -kInfinity);
      }
      EXPECT_TRUE(std::isfinite(outputs[1].At(5)));
      Check(c, inputs, kForward, false, nullptr);
      Check(c, inputs, kBackward, true, nullptr);
    }
  }
}

std::vector<double> RowsThatAreNaN(const Data& data, int64_t rows) {
  std::vector<double> found;
  const int64_t width = CountOf(data.tensor.shape) / rows;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t count = 0;
    for (int64_t x = 0; x < width; ++x) count += std::isnan(data.At(i * width + x)) ? 1 : 0;
    EXPECT_TRUE(count == 0 || count == width);
    if (count > 0) found.push_back(static_cast<double>(i));
  }
  return found;
}

TEST(Attention, WhatIsNotFiniteStaysInItsRows) {
  for (const DType dtype : kTypes) {
    for (const int64_t first : {0, 513}) {  // Keys that other blocks follow, and the last block's.
      for (const double bad : {std::nan(""), kInfinity}) {
        SCOPED_TRACE(base::Cat(DTypeName(dtype), " key ", first, " is ", bad));
        Case c = {.dtype = dtype, .leading = {}, .m = 70, .n = 600, .d = 3, .e = 2, .mask = DType::kFloat32};
        base::Prng prng(6);
        std::vector<Data> inputs = MakeInputs(c, prng, false);
        Fill(inputs[6], [] { return 0.0; });
        const std::vector<Data> outputs = {MakeData(dtype, c.ShapeOf(What::kValues)),
                                           MakeData(c.compute(), c.ShapeOf(What::kLse))};
        inputs[6].Set(66 * c.n + first, bad);  // One score, by the mask.
        std::vector<Data> got = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
        EXPECT_EQ(RowsThatAreNaN(got[0], c.m), std::vector<double>{66});
        EXPECT_EQ(RowsThatAreNaN(got[1], c.m), std::vector<double>{66});
        // Where nothing else takes part.
        for (int64_t j = 0; j < c.n; ++j) inputs[6].Set(66 * c.n + j, j == first ? bad : -kInfinity);
        got = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
        EXPECT_EQ(RowsThatAreNaN(got[0], c.m), std::vector<double>{66});
        EXPECT_EQ(RowsThatAreNaN(got[1], c.m), std::vector<double>{66});
        // All scores of a query, whatever the scale.
        for (const double scale : {1.0, 0.0}) {
          c.scale = scale;
          Fill(inputs[6], [] { return 0.0; });
          inputs[0].Set(3 * c.d, bad);
          inputs[1].Set(first * c.d, 0);
          got = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
          EXPECT_EQ(RowsThatAreNaN(got[0], c.m), std::vector<double>{3});
        }
      }
    }
  }
}

// A key's NaN is seen by the queries that it takes part for alone, by causality or by a mask of bool.
TEST(Attention, MaskedKeysMayBeNaN) {
  for (const bool by_mask : {false, true}) {
    Case c = {.leading = {}, .m = 70, .n = 70, .d = 3, .e = 2};
    c.causal = !by_mask;
    if (by_mask) c.mask = DType::kBool;
    base::Prng prng(7);
    std::vector<Data> inputs = MakeInputs(c, prng, false);
    for (int64_t i = 0; i < c.m * c.n && by_mask; ++i) inputs[6].Set(i, i % c.n <= i / c.n ? 1 : 0);
    const std::vector<Data> outputs = {MakeData(c.dtype, c.ShapeOf(What::kValues)),
                                       MakeData(c.dtype, c.ShapeOf(What::kLse))};
    inputs[1].Set(67 * c.d, std::nan(""));
    const std::vector<Data> got = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
    EXPECT_EQ(RowsThatAreNaN(got[0], c.m), (std::vector<double>{67, 68, 69}));
    EXPECT_EQ(RowsThatAreNaN(got[1], c.m), (std::vector<double>{67, 68, 69}));
  }
}

// As are a value's, by the gradients of the scores.
TEST(Attention, MaskedValuesMayBeNaN) {
  for (const bool by_mask : {false, true}) {
    Case c = {.m = 70, .n = 70, .d = 3, .e = 2};
    c.causal = !by_mask;
    if (by_mask) c.mask = DType::kBool;
    base::Prng prng(10);
    std::vector<Data> inputs = MakeInputs(c, prng, false);
    for (int64_t i = 0; i < c.m * c.n && by_mask; ++i) inputs[6].Set(i, i % c.n <= i / c.n ? 1 : 0);
    std::vector<Data> outputs;
    for (const What what : kBackward) outputs.push_back(MakeData(c.dtype, c.ShapeOf(what)));
    inputs[2].Set(67 * c.e, std::nan(""));
    const std::vector<Data> got = OutputsOf(c, inputs, kBackward, true, outputs, 1, false);
    EXPECT_EQ(RowsThatAreNaN(got[0], c.m), (std::vector<double>{67, 68, 69}));
    EXPECT_EQ(RowsThatAreNaN(got[1], c.n), std::vector<double>{67});
    EXPECT_EQ(RowsThatAreNaN(got[2], c.n), std::vector<double>{});
  }
}

// Whether the block of a key is skipped or not.
TEST(Attention, KeysBehindTheDiagonalChangeNoBit) {
  Case c = {.leading = {}, .m = 200, .n = 1100, .d = 3, .e = 2, .mask = {}, .causal = true, .diagonal = 400};
  base::Prng prng(8);
  std::vector<Data> inputs = MakeInputs(c, prng, false);
  const std::vector<Data> outputs = {MakeData(c.dtype, c.ShapeOf(What::kValues)),
                                     MakeData(c.dtype, c.ShapeOf(What::kLse))};
  const std::vector<Data> before = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
  for (int64_t j = 500; j < c.n; ++j) {
    inputs[1].Set(j * c.d, 1e30);
    inputs[2].Set(j * c.e, 1e30);
  }
  const std::vector<Data> after = OutputsOf(c, inputs, kForward, false, outputs, 1, false);
  for (size_t i = 0; i < 2; ++i) {
    const int64_t bytes = 100 * (i == 0 ? c.e : 1) * DTypeBytes(c.dtype);
    EXPECT_TRUE(std::equal(before[i].bytes.begin(), before[i].bytes.begin() + bytes, after[i].bytes.begin()));
    EXPECT_FALSE(before[i].bytes == after[i].bytes);
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  base::WorkPool pool({.num_threads = 0});
  const auto status_of = [&](bool backward, const std::function<void(AttentionDesc&)>& change) {
    const Case c = {.leading = {2}, .m = 3, .n = 4, .d = 5, .e = 6, .mask = DType::kBool};
    base::Prng prng(9);
    const std::vector<Data> inputs = MakeInputs(c, prng, false);
    std::vector<Data> outputs;
    for (const What what : backward ? kBackward : kForward) outputs.push_back(MakeData(c.dtype, c.ShapeOf(what)));
    AttentionDesc desc = DescOf(c, inputs, backward ? kBackward : kForward, backward, outputs);
    change(desc);
    return MakeAttention(desc, pool).status();
  };
  const auto refused = [&](bool backward, const std::function<void(AttentionDesc&)>& change, Code code) {
    const Status status = status_of(backward, change);
    EXPECT_EQ(status.code(), code) << status.ToString();
  };
  for (const bool backward : {false, true}) {
    EXPECT_TRUE(status_of(backward, [](AttentionDesc&) {}).ok());
    // Extents of each tensor's axes.
    const size_t num_inputs = backward ? 7 : 4, num_outputs = backward ? 3 : 2;
    for (size_t i = 0; i < num_inputs + num_outputs; ++i) {
      for (size_t axis = 0; axis < 3; ++axis) {
        refused(
            backward,
            [&](AttentionDesc& desc) {
              Tensor& tensor = i < num_inputs ? desc.inputs[i] : desc.outputs[i - num_inputs].tensor;
              tensor.shape[std::min(axis, tensor.shape.size() - 1)] += 7;
            },
            Code::kInvalidArgument);
      }
      refused(
          backward,
          [&](AttentionDesc& desc) {
            (i < num_inputs ? desc.inputs[i] : desc.outputs[i - num_inputs].tensor).dtype = DType::kInt32;
          },
          Code::kUnimplemented);
    }
    refused(
        backward, [](AttentionDesc& desc) { desc.inputs.pop_back(); }, Code::kInvalidArgument);
    refused(
        backward, [](AttentionDesc& desc) { desc.outputs.clear(); }, Code::kInvalidArgument);
    refused(
        backward, [](AttentionDesc& desc) { desc.outputs.push_back(desc.outputs[0]); }, Code::kInvalidArgument);
    refused(
        backward, [&](AttentionDesc& desc) { desc.outputs[0].what = backward ? What::kValues : What::kQ; },
        Code::kInvalidArgument);
    refused(
        backward, [](AttentionDesc& desc) { desc.inputs[1].shape = {5}; }, Code::kInvalidArgument);
    refused(
        backward, [](AttentionDesc& desc) { desc.inputs[2].dtype = DType::kFloat64; }, Code::kUnimplemented);
  }
  EXPECT_EQ(status_of(true, [](AttentionDesc& desc) { desc.inputs[2].shape[1] = 9; }).ToString(),
            "INVALID_ARGUMENT: attention: axis -2 of v has extent 9, not 4");
  EXPECT_EQ(status_of(true, [](AttentionDesc& desc) { desc.inputs[4].dtype = DType::kBFloat16; }).ToString(),
            "UNIMPLEMENTED: attention: lse is bf16, not f32");
}

}  // namespace
}  // namespace hir::codegen::library
