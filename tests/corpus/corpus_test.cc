// Goal: the programs that people run are planned as expected and compute, on as many ranks as their meshes name, what
// the interpreter computes of the program as written. Method: every *.hir of this folder; its plan is compared with
// NAME.plan, its values, on random inputs and with communications delayed at random, with the interpreter's. Adding a
// program is adding a file, and GOLDEN_UPDATE=1 writes its plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "tests/host_ir/pipeline/describe_plan.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {
namespace {

namespace fs = std::filesystem;
constexpr char kFolder[] = "tests/corpus";

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".hir") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Of the line "// Sizes: i0=6 i1=8"; none without it.
fusion::SymbolValues SizesOf(const std::string& text) {
  fusion::SymbolValues sizes;
  constexpr std::string_view kStart = "// Sizes:";
  const size_t at = text.find(kStart);
  if (at == std::string::npos) return sizes;
  std::istringstream words(
      text.substr(at + kStart.size(), text.find('\n', at) - at - kStart.size()));
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    sizes[word.substr(0, equals)] = std::atoll(word.c_str() + equals + 1);
  }
  return sizes;
}

int64_t NumDevices(const ir::Graph& graph) {
  int64_t last = 0;
  for (const ir::Mesh& mesh : graph.meshes()) {
    for (const int64_t device : mesh.mesh.devices()) last = std::max(last, device);
  }
  return last + 1;
}

// Integers name classes and positions: below 16.
fusion::HostTensor Draw(const ir::Value& param, const fusion::SymbolValues& sizes,
                        base::Prng& rng) {
  std::vector<int64_t> shape, stored;
  for (const ir::Axis& axis : param.type->axes) {
    shape.push_back(*fusion::ValueOf(axis.extent, sizes));
    stored.push_back(axis.kind == ir::AxisKind::kBroadcast ? 1 : shape.back());
  }
  std::vector<double> values(
      static_cast<size_t>(fusion::ZeroTensor(DType::kBool, stored).num_elements()));
  for (double& value : values) {
    value = IsFloat(param.type->dtype) ? rng.Unit() * 2 - 1 : static_cast<double>(rng.Below(16));
  }
  return fusion::WrittenOut(fusion::TensorOf(param.type->dtype, stored, values), shape);
}

// ||got - want|| / ||want||; NaN where `got` has one and `want` has not.
double RelativeError(const fusion::HostTensor& got, const fusion::HostTensor& want) {
  if (got.dtype != want.dtype || got.shape != want.shape) return std::nan("");
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 1e-2;
    case DType::kFloat16: return 2e-3;
    case DType::kFloat32: return 1e-5;
    case DType::kFloat64: return 1e-12;
    case DType::kBool:
    case DType::kInt32:
    case DType::kInt64: break;
  }
  return 0;
}

class Corpus : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    text_ = ReadFile(fs::path(kFolder) / (GetParam() + ".hir"));
    auto graph = ir::Parse(text_, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    graph_ = std::move(*graph);
    EXPECT_EQ(graph_->name(), GetParam());
  }
  Result<host::ProgramPlan> Plan() const {
    return host::PlanProgram(ir::Clone(*graph_), {.num_devices = NumDevices(*graph_)});
  }

  std::string text_;
  std::unique_ptr<ir::Graph> graph_;
};

TEST_P(Corpus, IsPlannedAsExpected) {
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const std::string got = host::DescribePlan(*plan);
  const fs::path path = fs::path(kFolder) / (GetParam() + ".plan");
  if (std::getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(path) << got;
    return;
  }
  EXPECT_EQ(ReadFile(path), got);
}

TEST_P(Corpus, ComputesWhatTheProgramSays) {
  const fusion::SymbolValues sizes = SizesOf(text_);
  codegen::cpu::Compiler compiler({});
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    base::Prng rng(seed);
    std::vector<fusion::HostTensor> inputs;
    for (const ir::Value* param : graph_->params) inputs.push_back(Draw(*param, sizes, rng));
    const auto want = fusion::Interpret(*graph_, inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    auto plan = Plan();
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto got = RunOnRanks(
        *plan, inputs, {.num_ranks = NumDevices(*graph_), .seed = seed, .compiler = &compiler});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) {
      // Written so that a NaN fails.
      EXPECT_TRUE(RelativeError((*got)[i], (*want)[i]) <= ToleranceOf((*want)[i].dtype))
          << "output " << i << ": relative error " << RelativeError((*got)[i], (*want)[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Corpus, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::testing
