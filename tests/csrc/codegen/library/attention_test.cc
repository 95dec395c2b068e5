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
#include "tests/csrc/codegen/library/attention_cases.h"

namespace hir::codegen::library {
namespace {

using namespace testing;

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
