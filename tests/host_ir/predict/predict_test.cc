// Predictions of host programs whose times are known by hand.
#include "host_ir/predict/predict.h"

#include <gtest/gtest.h>

#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"

namespace hir::host {
namespace {

// A kernel takes a millisecond a byte, a product as many as it has multiplications and additions, a communication two
// seconds a byte, copies one; a run one second.
Rates RatesOf(int64_t multiprocessors) {
  Rates rates = {.ranks = 2, .multiprocessors = multiprocessors, .run_seconds = 1};
  rates.memory.Add(1, 1e-3);  // Small beside the products.
  rates.products["f32"].Add(1, 1);
  rates.communications["allreduce"].Add(1, 2);
  rates.communications["copies"].Add(1, 1);
  return rates;
}

Result<Prediction> PredictText(std::string_view text, const Rates& rates,
                               const std::map<std::string, int64_t>& sizes = {}) {
  const auto graph = ir::Parse(text, kHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return Predict(**graph, sizes, rates);
}

// A product of 2*2*2*2 = 16 seconds, beside copies of 16 bytes.
constexpr std::string_view kBeside = R"(mesh @m = [0, 1]
mesh @t = [1, 0]
host @beside(%x: f32[2, 2], %w: f32[2, 2], %g: f32[2, 2], %y: f32[2, 2], %z: f32[2, 2]) {
  %sync: event[1] = event()
  communication(%x, %g) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@t, stream=1, seq=0, by=copies}
  record(%sync) {index=0, stream=1}
  library(%x, %w, %y) {op=matmul, inputs=2, stream=0}
  wait(%sync) {index=0, stream=0}
  library(%g, %w, %z) {op=matmul, inputs=2, stream=0}
  return %g, %y, %z
}
)";

TEST(Predict, CommunicationsGoOnBesideProductsOnAGpu) {
  const Result<Prediction> on_gpu = PredictText(kBeside, RatesOf(132));
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().ToString();
  EXPECT_DOUBLE_EQ(on_gpu->seconds, 1 + 16 + 16);
  EXPECT_DOUBLE_EQ(on_gpu->work_seconds, 32);
  EXPECT_DOUBLE_EQ(on_gpu->communication_seconds, 16);
  ASSERT_EQ(on_gpu->ops.size(), 3U);
  EXPECT_EQ(on_gpu->ops[0].stream, 1);
  EXPECT_EQ(on_gpu->ops[1].began, 0);
  EXPECT_EQ(on_gpu->ops[2].began, 16);
  const Result<Prediction> on_cpu = PredictText(kBeside, RatesOf(0));
  ASSERT_TRUE(on_cpu.ok());
  EXPECT_DOUBLE_EQ(on_cpu->seconds, 1 + 16 + 32);
}

TEST(Predict, WaitsForWhatWasRecorded) {
  Rates slow = RatesOf(132);
  slow.communications["copies"] = Curve();
  slow.communications["copies"].Add(16, 100);
  const Result<Prediction> prediction = PredictText(kBeside, slow);
  ASSERT_TRUE(prediction.ok());
  EXPECT_DOUBLE_EQ(prediction->seconds, 1 + 100 + 16);
}

TEST(Predict, FollowsLoopsAndSizes) {
  constexpr std::string_view text = R"(host @loop(%x: f32[i0, 2, 2], %w: f32[2, 2], %y: f32[i0, 2, 2]) {
  for() {begin=0, end=i0, step=1} { |%i: index|
    %a: f32[2, 2] = view_select(%x) {axis=0, index=%i}
    %b: f32[2, 2] = view_select(%y) {axis=0, index=%i}
    library(%a, %w, %b) {op=matmul, inputs=2, stream=0}
  }
  return %y
}
)";
  const Result<Prediction> five = PredictText(text, RatesOf(132), {{"i0", 5}});
  ASSERT_TRUE(five.ok()) << five.status().ToString();
  EXPECT_DOUBLE_EQ(five->seconds, 1 + 5 * 16);
  EXPECT_EQ(five->ops.size(), 5U);
  const Result<Prediction> none = PredictText(text, RatesOf(132), {{"i0", 0}});
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_DOUBLE_EQ(none->seconds, 1);
  EXPECT_EQ(PredictText(text, RatesOf(132), {{"i0", 65}}).status().code(), Code::kUnimplemented);
}

TEST(Predict, ViewsOfSymbolicExtentsAreSeen) {
  constexpr std::string_view text = R"(host @views(%x: f32[2*i0, 8, i1], %w: f32[i1, 2], %y: f32[2, i0, 2]) {
  %a: f32[2*i0, i1] = view_select(%x) {axis=1, index=0}
  %b: f32[2, i0, i1] = view_reshape(%a)
  library(%b, %w, %y) {op=matmul, inputs=2, stream=0}
  return %y
}
)";
  const Result<Prediction> prediction = PredictText(text, RatesOf(132), {{"i0", 4}, {"i1", 4}});
  ASSERT_TRUE(prediction.ok()) << prediction.status().ToString();
  EXPECT_DOUBLE_EQ(prediction->seconds, 1 + 2.0 * (2 * 4 * 2) * 4);
}

TEST(Predict, NamesTheRateThatIsMissing) {
  Rates rates = RatesOf(132);
  rates.communications.clear();
  EXPECT_EQ(PredictText(kBeside, rates).status().ToString(),
            "FAILED_PRECONDITION: the rates have no communications: measure with as many ranks (mpirun -n N "
            "hostir-eval --calibrate FILE)");
  rates = RatesOf(132);
  rates.products.clear();
  EXPECT_EQ(PredictText(kBeside, rates).status().ToString(), "FAILED_PRECONDITION: the rates have no products of f32");
  rates = RatesOf(132);
  rates.ranks = 1;
  EXPECT_EQ(PredictText(kBeside, rates).status().ToString(),
            "FAILED_PRECONDITION: the rates are of 1 rank, a mesh has 2 devices: measure with as many (mpirun -n 2 "
            "hostir-eval --calibrate FILE)");
}

}  // namespace
}  // namespace hir::host
