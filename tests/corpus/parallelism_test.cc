// Goal: no kernel moves much with few blocks of threads: what is large keeps all of a GPU busy. Method: the programs of
// this folder and those that are measured on GPUs, planned for an H200 at sizes 2^15 times those of the tests; each
// launch that moves more than 1 MiB has a block for each multiprocessor at least.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/corpus/corpus.h"

namespace hir::testing {
namespace {

constexpr int64_t kMuch = int64_t{1} << 20;
constexpr int64_t kTimes = 1 << 15;

int64_t ValueOf(const ir::Expr* expr, const codegen::Sizes& sizes) {
  const auto value = ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto found = sizes.find(std::string(symbol));
    return found != sizes.end() ? found->second : 0;  // A rank's place in its mesh.
  });
  EXPECT_TRUE(value.ok()) << value.status().ToString();
  return value.ok() ? *value : 0;
}

int64_t BytesOf(const ir::Value& value, const codegen::Sizes& sizes) {
  int64_t bytes = DTypeBytes(value.type->dtype);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) bytes *= ValueOf(axis.extent, sizes);
  }
  return bytes;
}

// How many launches move much.
int CheckLaunches(const host::ProgramPlan& plan, const codegen::Sizes& sizes) {
  int large = 0;
  for (const codegen::KernelPlan& kernel : plan.kernels) {
    const auto source = codegen::gpu::EmitCuda(kernel);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    if (!source.ok()) continue;
    for (size_t i = 0; i < kernel.launches.size(); ++i) {
      const codegen::Launch& launch = kernel.launches[i];
      int64_t bytes = 0;
      for (const ir::Value* value : launch.inputs) bytes += BytesOf(*value, sizes);
      for (const ir::Value* value : launch.outputs) bytes += BytesOf(*value, sizes);
      if (bytes <= kMuch) continue;
      ++large;
      const int64_t items = ValueOf(launch.grid, sizes);
      const int64_t blocks = items / source->kernels[i].items_per_cta;
      EXPECT_GE(blocks, codegen::kHopper.multiprocessors)
          << launch.kernel << " moves " << bytes << " bytes in " << blocks
          << " blocks: " << codegen::gpu::DescribeSchedule(*source, i);
    }
  }
  return large;
}

TEST(Parallelism, OfTheCorpus) {
  int programs = 0, launches = 0;
  for (const std::string& name : CorpusNames()) {
    auto program = ReadCorpus(name);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    if (program->sizes.empty()) continue;  // Small, whatever one asks for.
    SCOPED_TRACE(name);
    codegen::Sizes sizes;
    for (const auto& [symbol, size] : program->sizes) sizes[symbol] = size * kTimes;
    const auto plan = host::PlanProgram(
        std::move(program->graph), {.num_devices = program->num_devices, .target = codegen::kHopper, .sizes = sizes});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    ++programs;
    launches += CheckLaunches(*plan, sizes);
  }
  std::cout << programs << " programs, " << launches << " launches of more than 1 MiB\n";
  EXPECT_GE(programs, 38);
  EXPECT_GE(launches, 100);
}

TEST(Parallelism, OfWhatIsMeasured) {
  for (const auto& entry : std::filesystem::directory_iterator("benchmarks/gpu/programs")) {
    SCOPED_TRACE(entry.path().stem().string());
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    auto graph = ir::Parse(text.str(), fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const auto plan = host::PlanProgram(*std::move(graph), {.target = codegen::kHopper});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    CheckLaunches(*plan, {});
  }
}

}  // namespace
}  // namespace hir::testing
