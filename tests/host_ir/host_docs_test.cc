// docs/host_ops.md has a section for every op, and every rule that the verifier names is in its
// table and has a golden.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "csrc/base/text.h"
#include "host_ir/host_ops.h"

namespace hir::host {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(HostDocs, EveryOpHasASection) {
  const std::string docs = ReadFile("docs/host_ops.md");
  for (const ir::OpInfo& info : kHostOps.ops) {
    EXPECT_NE(docs.find(base::Cat("\n### ", info.name, "\n")), std::string::npos) << info.name;
  }
}

TEST(HostDocs, EveryRuleIsListedAndHasAGolden) {
  const std::string docs = ReadFile("docs/host_ops.md");
  std::set<int> rules;
  const std::regex refuse(R"(Refuse\([^,;]*,\s*(?:twice \? 5 : )?(\d+),)");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("host_ir")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = ReadFile(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), refuse), end; it != end; ++it) {
      rules.insert(std::stoi((*it)[1]));
    }
  }
  rules.insert({1, 2, 5, 17});  // Named in other ways.
  EXPECT_GE(rules.size(), 18u);
  std::string goldens;
  for (const fs::directory_entry& entry : fs::directory_iterator("tests/golden/host/verify")) {
    goldens += ReadFile(entry.path());
  }
  for (int rule : rules) {
    EXPECT_NE(docs.find(base::Cat("| H", rule, " |")), std::string::npos) << "H" << rule;
    EXPECT_NE(goldens.find(base::Cat("(H", rule, ") ")), std::string::npos) << "H" << rule;
  }
}

}  // namespace
}  // namespace hir::host
