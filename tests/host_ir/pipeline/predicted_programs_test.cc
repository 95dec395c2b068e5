// Predictions of all host programs that goldens and the corpus have or come to: between what one device and its links
// must take and what all of it takes one after the other.
#include <gtest/gtest.h>

#include "host_ir/predict/predict.h"
#include "tests/host_ir/pipeline/host_programs.h"

namespace hir::host {
namespace {

Rates RatesOf(int64_t multiprocessors) {
  Rates rates = {.ranks = 16, .multiprocessors = multiprocessors, .run_seconds = 1e-6};
  rates.memory.Add(1e3, 2e-6);
  rates.memory.Add(1e9, 1e-3);
  for (const char* dtype : {"f32", "f64", "bf16"}) rates.products[dtype].Add(1e6, 5e-6);
  rates.communications["collective_permute"].Add(1e3, 1e-5);
  return rates;
}

TEST(PredictedPrograms, LieBetweenTheirBounds) {
  int64_t predicted = 0, not_predicted = 0;
  for (const EventProgram& program : AllEventPrograms().programs) {
    SCOPED_TRACE(program.name);
    for (const int64_t multiprocessors : {0, 132}) {
      const Rates rates = RatesOf(multiprocessors);
      const std::map<std::string, int64_t> sizes(program.sizes.begin(), program.sizes.end());
      const Result<Prediction> prediction = Predict(*program.graph, sizes, rates);
      if (!prediction.ok()) {
        // Goldens whose symbols have no values here, or whose loops are long: the corpus has neither.
        EXPECT_TRUE(program.name.starts_with("golden/")) << prediction.status().ToString();
        const Code code = prediction.status().code();
        EXPECT_TRUE(code == Code::kInvalidArgument || code == Code::kUnimplemented) << prediction.status().ToString();
        ++not_predicted;
        continue;
      }
      ++predicted;
      const double seconds = prediction->seconds - rates.run_seconds;
      const double all = prediction->work_seconds + prediction->communication_seconds;
      const double least =
          multiprocessors == 0 ? all : std::max(prediction->work_seconds, prediction->communication_seconds);
      EXPECT_GE(seconds, least * (1 - 1e-9));
      // Streams that wait for each other leave no time in which nothing is done.
      EXPECT_LE(seconds, all * (1 + 1e-9));
      for (const PredictedOp& op : prediction->ops) EXPECT_LE(op.began, op.ended);
    }
  }
  std::printf("%ld predicted, %ld goldens not\n", static_cast<long>(predicted), static_cast<long>(not_predicted));
  EXPECT_GT(predicted, 100);
}

}  // namespace
}  // namespace hir::host
