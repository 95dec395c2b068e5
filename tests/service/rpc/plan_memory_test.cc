// Goal: the memory that `explain` tells of each rank is what a run takes, without a run. Method: the programs of the
// corpus on simulated ranks; their arguments and their pools are compared with what is told, and what lives at once
// with the bounds of tests/property/liveness.h. Without sizes, what is missing is said.
#include "service/rpc/plan_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/device/device.h"
#include "csrc/ir/clone.h"
#include "service/planner/plan_message.h"
#include "service/planner/pool_message.h"
#include "tests/corpus/corpus.h"
#include "tests/property/liveness.h"
#include "tests/property/run_on_ranks.h"

namespace hir::service {
namespace {

namespace v1 = ::hostir::v1;

class PlanMemory : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto program = testing::ReadCorpus(GetParam());
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    program_ = *std::move(program);
    auto plan = host::PlanProgram(ir::Clone(*program_.graph), {.num_devices = program_.num_devices});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plan_ = *std::move(plan);
    v1::Plan message = ToMessage(plan_, {}, {});
    const Status added = AddPools(*plan_.host, &message);
    ASSERT_TRUE(added.ok()) << added.ToString();
    auto made = Program::Make("id", 1, std::move(message));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    planned_ = *std::move(made);
  }

  v1::Explanation Explain(const Sizes& sizes) const {
    v1::Explanation explanation;
    SetMemory(*planned_, sizes, &explanation);
    return explanation;
  }

  testing::CorpusProgram program_;
  host::ProgramPlan plan_;
  std::shared_ptr<const Program> planned_;
};

TEST_P(PlanMemory, IsWhatARunTakes) {
  const v1::Explanation told = Explain({program_.sizes.begin(), program_.sizes.end()});
  ASSERT_EQ(told.memory_unknown(), "");
  codegen::cpu::Compiler compiler({});
  std::vector<testing::RankBytes> taken(static_cast<size_t>(program_.num_devices));
  const auto ran = testing::RunOnRanks(
      plan_, testing::DrawInputs(program_, 1),
      {.num_ranks = program_.num_devices, .random_delay_max = {}, .compiler = &compiler, .taken = &taken});
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  std::map<int64_t, const v1::RankMemory*> by_rank;
  for (const v1::RankMemory& memory : told.memory()) {
    for (const int64_t rank : memory.ranks())
      EXPECT_TRUE(by_rank.emplace(rank, &memory).second) << "rank " << rank << " twice";
  }
  for (int64_t rank = 0; rank < program_.num_devices; ++rank) {
    SCOPED_TRACE(base::Cat("rank ", rank));
    const testing::RankBytes& bytes = taken[static_cast<size_t>(rank)];
    ASSERT_TRUE(by_rank.contains(rank));
    const v1::RankMemory& memory = *by_rank[rank];
    EXPECT_EQ(memory.input_bytes(), bytes.inputs);
    EXPECT_EQ(memory.output_bytes(), bytes.outputs);
    EXPECT_EQ(memory.pool_bytes(), bytes.pool);
    const auto bounds = testing::BoundPool(*plan_.host, rank, program_.sizes);
    ASSERT_TRUE(bounds.ok()) << bounds.status().ToString();
    EXPECT_LE(memory.live_bytes(), bounds->side_by_side);
    EXPECT_GT(memory.live_bytes() + device::kAlignmentBytes, bounds->in_order);
    EXPECT_LE(memory.live_bytes(), memory.pool_bytes());
    EXPECT_EQ(memory.peak_bytes(), bytes.inputs + bytes.outputs + bytes.pool);
  }
}

TEST_P(PlanMemory, WithoutSizesSaysWhichAreMissing) {
  const v1::Explanation told = Explain({});
  const auto symbols = planned_->Symbols();
  EXPECT_EQ(told.memory().empty(), !symbols.empty());
  for (const std::string& symbol : symbols) EXPECT_THAT(told.memory_unknown(), ::testing::HasSubstr(symbol));
}

// Each tensor has 2^62 bytes, which fit in 63 bits; three of them do not.
TEST(PlanMemoryOfSums, SaysThatTheyDoNotFit) {
  v1::Plan plan;
  for (const char* name : {"a", "b", "c"}) {
    v1::PlanParam& input = *plan.add_inputs();
    input.set_name(name);
    input.set_dtype(v1::DTYPE_FLOAT32);
    input.add_shape("i0");
  }
  plan.add_pools()->add_ranks(0);
  plan.set_pool_alignment(64);
  const auto program = Program::Make("id", 1, plan);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  v1::Explanation explanation;
  SetMemory(**program, {{"i0", int64_t{1} << 60}}, &explanation);
  EXPECT_EQ(explanation.memory_unknown(), "with these sizes it is more bytes than fit in 63 bits");
  EXPECT_EQ(explanation.memory_size(), 0);
}

INSTANTIATE_TEST_SUITE_P(Corpus, PlanMemory, ::testing::ValuesIn(testing::CorpusNames()),
                         [](const auto& info) { return info.param; });

// A planner that has gone mad ends nobody.
TEST(PlanMemoryOfAPlan, ThatMakesNoSense) {
  const auto unknown = [](int64_t alignment, std::vector<std::string> buffers) {
    v1::Plan plan;
    plan.set_pool_alignment(alignment);
    v1::PoolRecord& pool = *plan.add_pools();
    pool.add_ranks(0);
    for (const std::string& bytes : buffers) {
      v1::PoolBuffer& buffer = *pool.add_buffers();
      buffer.set_bytes(bytes);
      for (v1::PoolBuffer::Stretch* const stretch : {buffer.add_work(), buffer.add_after()}) stretch->set_last(9);
    }
    const auto program = Program::Make("id", 1, std::move(plan));
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    v1::Explanation explanation;
    SetMemory(**program, {}, &explanation);
    return explanation.memory_unknown();
  };
  EXPECT_EQ(unknown(64, {"64", "100"}), "");
  EXPECT_EQ(unknown(0, {"64"}), "a plan aligns by 0 bytes");
  EXPECT_EQ(unknown(-64, {"64"}), "a plan aligns by -64 bytes");
  EXPECT_EQ(unknown(int64_t{1} << 60, {"64"}), "a plan aligns by 1152921504606846976 bytes");
  EXPECT_EQ(unknown(64, {"64", "-8"}), "a plan has a buffer of -8 bytes");
}

}  // namespace
}  // namespace hir::service
