// Golden host programs with damage: whatever comes of it is refused or runs through the passes and
// the compiler, and never crashes. What is accepted prints and reads back; where it has no events,
// assign_streams orders it or says that it cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/eval/code.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/assign_streams.h"
#include "host_ir/passes/passes.h"
#include "host_ir/pool_plan.h"
#include "host_ir/verify/verify.h"

namespace hir::host {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Programs() {
  std::vector<std::string> programs;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("tests/golden/host")) {
    if (entry.path().extension() != ".hir") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    programs.push_back(text.str().substr(0, text.str().find("// ----")));
  }
  std::sort(programs.begin(), programs.end());
  return programs;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '@' || c == '.';
    if (!letter || c == '%' || c == '@') {
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    }
    if (letter) {
      word += c;
    } else {
      words.push_back(std::string(1, c));
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

std::string Mutate(const std::vector<std::string>& programs, base::Prng& random) {
  const auto pick = [&](const auto& list) { return static_cast<size_t>(random.Below(std::ssize(list))); };
  const std::string& text = programs[pick(programs)];
  if (random.OneIn(2)) {  // Whole lines.
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    for (int64_t n = random.Between(1, 2); n > 0; --n) {
      const size_t a = pick(lines), b = pick(lines);
      if (random.OneIn(3)) {
        std::swap(lines[a], lines[b]);
      } else if (random.OneIn(2)) {
        lines.insert(lines.begin() + static_cast<ptrdiff_t>(a), std::string(lines[b]));
      } else {
        lines.erase(lines.begin() + static_cast<ptrdiff_t>(a));
      }
    }
    return base::Join(lines, "\n");
  }
  std::vector<std::string> words = Words(text);
  const std::vector<std::string> numbers = {"0",  "1",    "2",     "-1", "7", "63", "64", "9223372036854775807",
                                            "i0", "@m.x", "@m.in", "%i"};
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    std::string& word = words[pick(words)];
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      word = numbers[pick(numbers)];
    } else {
      word = words[pick(words)];
    }
  }
  return base::Join(words, "");
}

bool HasEvents(const ir::Graph& graph) {
  bool has = false;
  ir::ForEachOp(graph.body, [&has](ir::Op* op) { has |= CodeOf(*op) == HostOp::kEvent; });
  return has;
}

TEST(MutatedHostPrograms, AreRefusedOrRun) {
  const char* wanted = std::getenv("HOSTIR_MUTATIONS");
  const int64_t count = wanted != nullptr ? std::atoll(wanted) : 5000;
  const std::vector<std::string> programs = Programs();
  ASSERT_GT(programs.size(), 40u);
  base::Prng random(20);
  int64_t accepted = 0, ordered_ones = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string text = Mutate(programs, random);
    auto graph = ir::Parse(text, kUnorderedHostOps);
    if (!graph.ok()) continue;
    ++accepted;
    const std::string printed = ir::Print(**graph);
    const auto again = ir::Parse(printed, kUnorderedHostOps);
    ASSERT_TRUE(again.ok()) << i << ": " << again.status().ToString() << "\n" << printed;
    ASSERT_EQ(ir::Print(**again), printed);
    if (!HasEvents(**again) && AssignStreams(**again).ok()) {
      const Status ordered = VerifyHost(**again);
      const bool grouped = ordered.message().find("in the same group") != std::string::npos;
      ASSERT_TRUE(ordered.ok() || grouped) << i << ": " << ordered.ToString() << "\n" << printed;
      ++ordered_ones;
    }
    if (!RunHostPasses(**graph, kFinish).ok()) continue;
    const auto program = HostProgram::Load(std::move(*graph));
    ASSERT_TRUE(program.ok()) << i << ": " << program.status().ToString();
    for (int64_t rank = 0; rank < 2; ++rank) {
      (void)Compile(**program, rank).ok();
      (void)PoolPlan::Make((*program)->graph(), rank).ok();
    }
  }
  std::printf("%lld of %lld accepted, %lld ordered\n", static_cast<long long>(accepted), static_cast<long long>(count),
              static_cast<long long>(ordered_ones));
  EXPECT_GT(accepted, count / 50);
}

}  // namespace
}  // namespace hir::host
