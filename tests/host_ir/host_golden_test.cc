// Runs every tests/golden/host/**/*.hir as one test. A file is: `// RUN: pass,pass`, the input, a
// line `// ----`, and the expected output: the program after the passes, or the error.
// GOLDEN_UPDATE=1 rewrites the expected part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"

namespace hir::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRun = "// RUN:";
constexpr std::string_view kCut = "// ----\n";

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> Files() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("tests/golden/host")) {
    if (entry.path().extension() == ".hir") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Produce(std::string_view input) {
  const std::string_view passes = input.substr(kRun.size(), input.find('\n') - kRun.size());
  auto graph = ir::Parse(input, kHostOps);
  if (!graph.ok()) return base::Cat(graph.status().ToString(), "\n");
  if (Status s = RunHostPasses(**graph, passes); !s.ok()) return base::Cat(s.ToString(), "\n");
  return ir::Print(**graph);
}

class HostGolden : public testing::TestWithParam<fs::path> {};

TEST_P(HostGolden, Matches) {
  const std::string text = ReadFile(GetParam());
  const size_t cut = text.find(kCut);
  ASSERT_TRUE(text.starts_with(kRun)) << "the first line must be '// RUN: pass,pass'";
  ASSERT_NE(cut, std::string::npos) << "no '// ----' line";
  const std::string got = Produce(text.substr(0, cut));
  if (std::getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(GetParam()) << text.substr(0, cut + kCut.size()) << got;
    return;
  }
  EXPECT_EQ(text.substr(cut + kCut.size()), got);
}

std::string NameOf(const testing::TestParamInfo<fs::path>& info) {
  std::string name = fs::relative(info.param, "tests/golden/host").replace_extension().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, HostGolden, testing::ValuesIn(Files()), NameOf);

}  // namespace
}  // namespace hir::host
