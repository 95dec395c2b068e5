// Goal: whole programs come out right. Method: the programs of tests/golden/programs that take any size, at small
// sizes, against loops written here in double from the mathematics.
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "csrc/base/prng.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

std::vector<HostTensor> RunFile(const std::string& name, const std::vector<HostTensor>& inputs) {
  std::ostringstream text;
  text << std::ifstream("tests/golden/programs/" + name).rdbuf();
  const auto graph = ir::Parse(text.str().substr(0, text.str().find("// ----")), kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return {};
  const auto outputs = Interpret(**graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  return outputs.ok() ? *outputs : std::vector<HostTensor>();
}

// Numbers of about one, as `dtype` holds them.
Numbers Random(base::Prng& prng, DType dtype, size_t count) {
  Numbers values(count);
  for (double& value : values) value = RoundTo(dtype, prng.Unit() * 4 - 2);
  return values;
}

double RelativeError(const HostTensor& got, const Numbers& want) {
  const Numbers values = ToDoubles(got);
  EXPECT_EQ(values.size(), want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(values.size(), want.size()); ++i) {
    difference += (values[i] - want[i]) * (values[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Programs, AdaptiveLayernormBackward) {
  constexpr size_t B = 3, T = 5, F = 8;
  base::Prng prng(2);
  const DType bf16 = DType::kBFloat16, f32 = DType::kFloat32;
  const Numbers weight = Random(prng, bf16, F), bias = Random(prng, bf16, F), scale = Random(prng, bf16, B * F);
  const Numbers grad = Random(prng, bf16, B * T * F), mean = Random(prng, f32, B * T),
                x = Random(prng, bf16, B * T * F);
  Numbers rstd = Random(prng, f32, B * T);
  for (double& r : rstd) r = RoundTo(f32, std::fabs(r) + 0.5);

  Numbers shift(B * F), gain(B * F), grad_bias(F), grad_weight(F), grad_x(B * T * F);
  for (size_t b = 0; b < B; ++b) {
    for (size_t t = 0; t < T; ++t) {
      const double m = mean[b * T + t], r = rstd[b * T + t];
      double by_mean = 0, by_rstd = 0;
      const auto at = [&](size_t f) { return (b * T + t) * F + f; };
      const auto through = [&](size_t f) { return grad[at(f)] * (1 + scale[b * F + f]) * weight[f]; };
      for (size_t f = 0; f < F; ++f) {
        const double centered = x[at(f)] - m, g = grad[at(f)], inner = g * (1 + scale[b * F + f]);
        shift[b * F + f] += g;
        gain[b * F + f] += (centered * r * weight[f] + bias[f]) * g;
        grad_bias[f] += inner;
        grad_weight[f] += centered * r * inner;
        by_mean -= through(f) * r;
        by_rstd += centered * through(f);
      }
      const double by_variance = -0.5 * by_rstd * r * r * r;
      for (size_t f = 0; f < F; ++f) {
        grad_x[at(f)] = through(f) * r + by_mean / F + 2 * by_variance * (x[at(f)] - m) / F;
      }
    }
  }
  const auto tensor = [](DType dtype, Shape shape, const Numbers& values) {
    return TensorOf(dtype, std::move(shape), values);
  };
  const std::vector<HostTensor> outputs = RunFile(
      "adaptive_layernorm_backward_any_size.hir",
      {WrittenOut(tensor(bf16, {1, 1, F}, weight), {B, T, F}), WrittenOut(tensor(bf16, {1, 1, F}, bias), {B, T, F}),
       tensor(bf16, {B, 1, F}, scale), tensor(bf16, {B, T, F}, grad), tensor(f32, {B, T}, mean),
       tensor(f32, {B, T, 1}, rstd), tensor(bf16, {B, T, F}, x), F64({}, {F})});
  ASSERT_EQ(outputs.size(), 5u);
  EXPECT_LT(RelativeError(outputs[0], shift), 4e-3);
  EXPECT_LT(RelativeError(outputs[1], gain), 4e-3);
  EXPECT_LT(RelativeError(outputs[2], grad_bias), 4e-3);
  EXPECT_LT(RelativeError(outputs[3], grad_weight), 4e-3);
  EXPECT_LT(RelativeError(outputs[4], grad_x), 4e-3);
}

TEST(Programs, Rope) {
  constexpr size_t B = 2, T = 3, G = 2, S = 4, H = 32, R = 8;
  base::Prng prng(3);
  const DType bf16 = DType::kBFloat16;
  const Numbers cos = Random(prng, bf16, T * R), sin = Random(prng, bf16, T * R),
                qkv = Random(prng, bf16, B * T * G * (S + 2) * H);
  // Element h of head n (of query, key or value: part 0 to S - 1, S, S + 1) at token t.
  const auto in = [&](size_t b, size_t n, size_t part, size_t t, size_t h) {
    return qkv[(((b * T + t) * G + n / S) * (S + 2) + part) * H + h];
  };
  Numbers outputs[3];
  for (size_t which = 0; which < 3; ++which) {
    for (size_t b = 0; b < B; ++b) {
      for (size_t n = 0; n < G * S; ++n) {
        for (size_t t = 0; t < T; ++t) {
          const size_t part = which == 0 ? n % S : S + which - 1;
          for (size_t h = 0; h < H; ++h) {
            double value = in(b, n, part, t, h);
            if (which < 2 && h < R) {
              const double turned = h < R / 2 ? -in(b, n, part, t, h + R / 2) : in(b, n, part, t, h - R / 2);
              value = value * cos[t * R + h] + turned * sin[t * R + h];
            }
            outputs[which].push_back(value);
          }
        }
      }
    }
  }
  const std::vector<HostTensor> got =
      RunFile("rope_any_size.hir", {TensorOf(bf16, {T, R}, cos), TensorOf(bf16, {T, R}, sin),
                                    TensorOf(bf16, {B, T, G * (S + 2) * H}, qkv), F32({G}, Numbers(G))});
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].shape, (Shape{B, G * S, T, H}));
    EXPECT_LT(RelativeError(got[i], outputs[i]), 4e-3);
  }
  EXPECT_EQ(ToDoubles(got[2]), outputs[2]);  // v is only moved.
}

TEST(Programs, TensorParallelMlp) {
  constexpr size_t N = 4, W = 6, H = 10;
  base::Prng prng(4);
  const DType f32 = DType::kFloat32;
  const Numbers x = Random(prng, f32, N * W), up = Random(prng, f32, H * W), up_bias = Random(prng, f32, H);
  const Numbers down = Random(prng, f32, W * H), down_bias = Random(prng, f32, W);
  Numbers want(N * W);
  for (size_t n = 0; n < N; ++n) {
    Numbers hidden(H);
    for (size_t h = 0; h < H; ++h) {
      double sum = up_bias[h];
      for (size_t w = 0; w < W; ++w) sum += x[n * W + w] * up[h * W + w];
      hidden[h] = 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
    }
    for (size_t w = 0; w < W; ++w) {
      want[n * W + w] = down_bias[w];
      for (size_t h = 0; h < H; ++h) want[n * W + w] += hidden[h] * down[w * H + h];
    }
  }
  const std::vector<HostTensor> got =
      RunFile("tensor_parallel_mlp_any_size.hir",
              {F32({N, W}, x), F32({H, W}, up), F32({H}, up_bias), F32({W, H}, down), F32({W}, down_bias)});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_LT(RelativeError(got[0], want), 1e-6);
}

}  // namespace
}  // namespace hir::fusion
