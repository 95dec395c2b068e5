// Goal: what a program's plan is, said in one line a segment and one a communication. Method: every plans/*.hir is a
// program, a line "// ----", and its plan on the devices its meshes name. Adding a test is adding a file;
// GOLDEN_UPDATE=1 rewrites the expected part in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/host_ir/pipeline/describe_plan.h"

namespace hir::host {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kCut = "// ----\n";
constexpr char kFolder[] = "tests/host_ir/pipeline/plans";

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Result<ProgramPlan> PlanText(const std::string& text, int64_t num_devices) {
  HIR_ASSIGN(auto graph, ir::Parse(text.substr(0, text.find(kCut)), fusion::kFusionOps));
  return PlanProgram(std::move(graph), {.num_devices = num_devices});
}

std::string Describe(const std::string& text) {
  const auto plan = PlanText(text, 64);
  return plan.ok() ? DescribePlan(*plan) : plan.status().ToString() + "\n";
}

std::vector<std::string> Files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".hir") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class PlanGolden : public testing::TestWithParam<std::string> {};

TEST_P(PlanGolden, Matches) {
  const fs::path path = fs::path(kFolder) / (GetParam() + ".hir");
  const std::string text = ReadFile(path);
  const size_t cut = text.find(kCut);
  ASSERT_NE(cut, std::string::npos) << "no '// ----' line";
  const std::string got = Describe(text);
  EXPECT_EQ(got, Describe(text)) << "planning is not deterministic";
  if (std::getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(path) << text.substr(0, cut + kCut.size()) << got;
    return;
  }
  EXPECT_EQ(text.substr(cut + kCut.size()), got);
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanGolden, testing::ValuesIn(Files()), [](const auto& info) { return info.param; });

// The bounds that the three examples are held to, whatever else their goldens say.
struct Bound {
  const char* name;
  int kernels_max;
  int library_calls;
};
void PrintTo(const Bound& c, std::ostream* out) { *out << c.name; }

class PlanBounds : public testing::TestWithParam<Bound> {};

TEST_P(PlanBounds, Hold) {
  const auto plan = PlanText(ReadFile(fs::path(kFolder) / (std::string(GetParam().name) + ".hir")), 4);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  int kernels = 0;
  int calls = 0;
  for (const LoweredSegment& segment : plan->segments) {
    kernels += segment.kind == SegmentKind::kKernel;
    calls += segment.kind == SegmentKind::kLibrary;
  }
  EXPECT_LE(kernels, GetParam().kernels_max) << DescribeSegments(*plan);
  EXPECT_EQ(calls, GetParam().library_calls) << DescribeSegments(*plan);
}

INSTANTIATE_TEST_SUITE_P(Examples, PlanBounds,
                         testing::Values(Bound{"adaptive_layernorm_backward", 2, 0},
                                         Bound{"adaptive_layernorm_backward_one_device", 1, 0},
                                         Bound{"rms_norm_backward", 1, 0}, Bound{"rope", 3, 0},
                                         Bound{"tensor_parallel_mlp", 2, 2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hir::host
