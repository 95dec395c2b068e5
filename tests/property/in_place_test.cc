// Goal: an output that takes over an input lies in its memory where each element is read before it is written, and
// nowhere else; what is computed is the same. Method: programs through the whole pipeline in two dtypes and odd sizes;
// which outputs the host program lets lie there is compared with what is known of them, and the values, with the
// outputs in the inputs' memory and apart from it, with the interpreter's.
#include <gtest/gtest.h>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "tests/csrc/codegen/kernel_runner.h"
#include "tests/property/in_place_programs.h"
#include "tests/property/program_generator.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {
namespace {

std::string InPlaceOf(const ir::Graph& host) {
  std::string names;
  for (const ir::Output& output : host.outputs) {
    if (output.alias != nullptr) base::Append(names, names.empty() ? "" : " ", output.value->name);
  }
  return names;
}

class InPlace : public ::testing::TestWithParam<std::string> {};

TEST_P(InPlace, WhereEachElementIsReadBeforeItIsWritten) {
  codegen::cpu::Compiler compiler({});
  base::Prng prng(11);
  const double tolerance = GetParam() == "bf16" ? 0.15 : 1e-4;  // Two of the last places of 7.
  for (const InPlaceProgram& program : InPlacePrograms(GetParam())) {
    for (const fusion::SymbolValues& sizes : {fusion::SymbolValues{{"i0", 1}, {"i1", 5}},
                                              {{"i0", 0}, {"i1", 4}},
                                              {{"i0", 67}, {"i1", 131}},
                                              {{"i0", 5}, {"i1", 9001}}}) {
      SCOPED_TRACE(base::Cat(program.name, "\n", program.text));
      auto graph = ir::Parse(program.text, fusion::kFusionOps);
      ASSERT_TRUE(graph.ok()) << graph.status().ToString();
      std::vector<fusion::HostTensor> inputs;
      for (const ir::Value* param : (*graph)->params) {
        const auto shape = fusion::ShapeOf(*param->type, sizes);
        ASSERT_TRUE(shape.ok()) << shape.status().ToString();
        inputs.push_back(codegen::RandomTensor(prng, param->type->dtype, *shape));
      }
      const auto want = fusion::Interpret(**graph, inputs);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      auto plan = host::PlanProgram(*std::move(graph), {.num_devices = 1});
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(InPlaceOf(*plan->host), program.in_place) << ir::Print(*plan->host);
      std::vector<fusion::HostTensor> apart;
      for (const uint64_t seed : {3, 0}) {  // Apart, and in place: the same bits.
        const auto got = RunOnRanks(*plan, inputs, {.num_ranks = 1, .seed = seed, .compiler = &compiler});
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        for (size_t i = 0; i < want->size(); ++i) {
          EXPECT_EQ(Difference((*got)[i], (*want)[i], tolerance), "") << "output " << i << ", seed " << seed;
          if (!apart.empty()) {
            EXPECT_EQ(Difference((*got)[i], apart[i], 0), "") << "output " << i << " in place";
          }
        }
        apart = *got;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, InPlace, ::testing::Values("f32", "bf16", "f64"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::testing
