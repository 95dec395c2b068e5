// Goal: the programs that people run are planned as expected and compute, on as many ranks as their meshes name, what
// the interpreter computes of the program as written. Method: every *.hir of this folder and of models/; its plan is
// compared with NAME.plan, its values, on random inputs and with communications delayed at random, with the
// interpreter's. Adding a program is adding a file, and GOLDEN_UPDATE=1 writes its plan.
#include "tests/corpus/corpus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "tests/host_ir/pipeline/describe_plan.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {
namespace {

class Corpus : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto program = ReadCorpus(GetParam());
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    program_ = *std::move(program);
    EXPECT_EQ(program_.graph->name(), GetParam());
  }
  Result<host::ProgramPlan> Plan() const {
    return host::PlanProgram(ir::Clone(*program_.graph), {.num_devices = program_.num_devices});
  }

  CorpusProgram program_;
};

TEST_P(Corpus, IsPlannedAsExpected) {
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const std::string got = host::DescribePlan(*plan);
  if (std::getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(CorpusPath(GetParam(), ".plan")) << got;
    return;
  }
  const auto expected = ReadCorpusFile(GetParam(), ".plan");
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  EXPECT_EQ(*expected, got);
}

TEST_P(Corpus, ComputesWhatTheProgramSays) {
  codegen::cpu::Compiler compiler({});
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    const std::vector<fusion::HostTensor> inputs = DrawInputs(program_, seed);
    const auto want = fusion::Interpret(*program_.graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    auto plan = Plan();
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto got =
        RunOnRanks(*plan, inputs, {.num_ranks = program_.num_devices, .seed = seed, .compiler = &compiler});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) {
      const double distance = DistanceOf((*got)[i], (*want)[i]), norm = NormOf((*want)[i]);
      // Written so that a NaN fails.
      EXPECT_TRUE(distance <= ToleranceOf((*want)[i].dtype) * norm)
          << "output " << i << ": off by " << distance << " of " << norm;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Corpus, ::testing::ValuesIn(CorpusNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::testing
