// Goal: docs/ops.md describes the table, all of it and nothing else. Method: the lines that the table asks for, looked
// up.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {
namespace {

std::set<std::string> Lines() {
  std::set<std::string> lines;
  std::ifstream page("docs/ops.md");
  for (std::string line; std::getline(page, line);) lines.insert(line);
  return lines;
}

// "kFloat" is printed as "float".
std::string RuleName(std::string_view rule) {
  std::string name(rule.substr(1));
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return name;
}

std::string Operands(int count) {
  if (count < 0) return "...";
  constexpr std::string_view kNames = "x, y, z, w";
  return std::string(kNames.substr(0, count == 0 ? 0 : static_cast<size_t>(3 * count - 2)));
}

std::string TableLine(std::string_view name, int operands, std::string_view rule, std::string_view doc) {
  std::string escaped;
  for (const char c : doc) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return "| `" + std::string(name) + "(" + Operands(operands) + ")` | " + RuleName(rule) + " | " + escaped + " |";
}

TEST(Docs, EveryPointwiseRowHasItsLine) {
  const std::set<std::string> lines = Lines();
  std::set<std::string> wanted;
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) \
  wanted.insert(TableLine(mnemonic, operands, #rule, doc));
#include "csrc/fusion/fusion_ops.def"
  for (const std::string& line : wanted) EXPECT_TRUE(lines.contains(line)) << "docs/ops.md lacks\n" << line;
  size_t in_page = 0;
  for (const std::string& line : lines) in_page += line.starts_with("| `") ? 1 : 0;
  EXPECT_EQ(in_page, wanted.size()) << "docs/ops.md has lines of no row";
}

TEST(Docs, EveryOtherRowHasItsSection) {
  const std::set<std::string> lines = Lines();
  size_t sections = 0;
  for (const ir::OpInfo& info : kFusionOps.ops) {
    const auto op = static_cast<FusionOp>(info.code);
    if (IsPointwise(op) && op != FusionOp::kCast) continue;
    ++sections;
    std::string attrs;
    for (int i = 0; i < info.num_attrs(); ++i) attrs += (i == 0 ? "" : ", ") + std::string(info.attrs[i].name);
    const std::string line = "`" + std::string(info.name) + "(" + Operands(info.num_operands) + ")" +
                             (attrs.empty() ? "" : " {" + attrs + "}") + "`: " + std::string(info.doc);
    EXPECT_TRUE(lines.contains("### " + std::string(info.name))) << info.name << " has no section in docs/ops.md";
    EXPECT_TRUE(lines.contains(line)) << "docs/ops.md lacks\n" << line;
  }
  size_t in_page = 0;
  for (const std::string& line : lines) in_page += line.starts_with("### ") ? 1 : 0;
  EXPECT_EQ(in_page, sections) << "docs/ops.md has sections of no row";
}

}  // namespace
}  // namespace hir::fusion
