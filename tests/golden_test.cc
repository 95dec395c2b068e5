// Runs every tests/golden/**/*.hir as one test. A file is: `// RUN: pass,pass`, the input, a line `// ----`, and the
// expected output: the program after the passes, or the error. Adding a test is adding a file. GOLDEN_UPDATE=1
// rewrites the expected part in place. Goal: the text of passes and errors is pinned whole, and Parse(Print(g)) prints
// the same text again for every program here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "tools/transform.h"

namespace hir {
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
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("tests/golden")) {
    if (entry.path().extension() == ".hir") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Produce(std::string_view input) {
  const std::string_view passes = input.substr(kRun.size(), input.find('\n') - kRun.size());
  const Result<std::string> out = tools::Transform(input, passes);
  return out.ok() ? *out : out.status().ToString() + "\n";
}

// Printing is canonical: what was printed once prints again.
void CheckRoundTrip(std::string_view text) {
  const ir::OpSet& ops = tools::OpSetOf(text);
  const auto graph = ir::Parse(text, ops);
  if (!graph.ok()) return;
  const std::string once = ir::Print(**graph);
  const auto again = ir::Parse(once, ops);
  ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << once;
  EXPECT_EQ(ir::Print(**again), once);
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, Matches) {
  const std::string text = ReadFile(GetParam());
  const size_t cut = text.find(kCut);
  ASSERT_TRUE(text.starts_with(kRun)) << "the first line must be '// RUN: pass,pass'";
  ASSERT_NE(cut, std::string::npos) << "no '// ----' line";
  CheckRoundTrip(std::string_view(text).substr(0, cut));
  const std::string got = Produce(text.substr(0, cut));
  CheckRoundTrip(got);
  if (std::getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(GetParam()) << text.substr(0, cut + kCut.size()) << got;
    return;
  }
  EXPECT_EQ(text.substr(cut + kCut.size()), got);
}

std::string NameOf(const testing::TestParamInfo<fs::path>& info) {
  std::string name = fs::relative(info.param, "tests/golden").replace_extension().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(Files()), NameOf);

}  // namespace
}  // namespace hir
