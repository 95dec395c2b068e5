// Goal: what the verifier accepts is in order, also where nobody planned the events. Method: waits and records of the
// host programs of host_programs.h, and of random ones, are dropped, moved or changed at random, one to four at a time.
// What is still accepted runs for concrete sizes on every rank, and every conflict is in order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "host_ir/verify/verify.h"
#include "tests/host_ir/pipeline/host_programs.h"
#include "tests/host_ir/random_program.h"

namespace hir::host {
namespace {

constexpr int64_t kSizesMax = 24;  // Iterations beyond are as those before; each is compared with all others.

using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct Text {
  Lines lines;
  KnownSizes sizes;
};

std::vector<Text> Texts() {
  std::vector<Text> texts;
  for (const EventProgram& program : AllEventPrograms().programs) {
    texts.push_back({LinesOf(ir::Print(*program.graph)), program.sizes});
  }
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const RandomProgram random = ProgramGenerator(seed, seed % 3 == 0, /*streams=*/true).Make();
    const auto graph = ir::Parse(random.text, kUnorderedHostOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    if (graph.ok() && RunHostPasses(**graph, kFinish).ok()) texts.push_back({LinesOf(ir::Print(**graph)), {}});
  }
  return texts;
}

bool IsEvent(const std::string& line) {
  const size_t at = line.find_first_not_of(' ');
  return line.compare(at, 5, "wait(") == 0 || line.compare(at, 7, "record(") == 0;
}

// Swaps words behind `name` with those of another line: "index=..., " or "stream=...}".
void Borrow(std::string& line, const std::string& other, const std::string& name, char end) {
  const size_t at = line.find(name), from = other.find(name);
  if (at == std::string::npos || from == std::string::npos) return;
  line.replace(at, line.find(end, at) - at, other.substr(from, other.find(end, from) - from));
}

// False when it has no events.
bool Change(Lines& lines, base::Prng& random) {
  std::vector<size_t> events;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (IsEvent(lines[i])) events.push_back(i);
  }
  if (events.empty()) return false;
  const auto pick = [&] { return events[static_cast<size_t>(random.Below(std::ssize(events)))]; };
  const size_t at = pick();
  switch (random.Below(5)) {
    case 0: lines.erase(lines.begin() + static_cast<ptrdiff_t>(at)); break;
    case 1: Borrow(lines[at], lines[pick()], "index=", ','); break;
    case 2: Borrow(lines[at], lines[pick()], "stream=", '}'); break;
    default: {
      const bool up = random.OneIn(2);
      size_t place = at;
      for (int64_t n = random.Between(1, 4); n > 0; --n) {
        if (up ? place < 3 : place + 3 > lines.size()) break;
        std::swap(lines[place], lines[up ? place - 1 : place + 1]);
        place += up ? -1 : 1;
      }
    }
  }
  return true;
}

TEST(MovedEvents, WhatIsAcceptedIsInOrder) {
  const char* wanted = std::getenv("HOSTIR_MUTATIONS");
  const int64_t count = wanted != nullptr ? std::atoll(wanted) : 3000;
  const char* asked = std::getenv("HOSTIR_SEED");
  const uint64_t seed = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1;
  std::cout << "seed " << seed << "\n";
  base::Prng random(seed);
  const std::vector<Text> texts = Texts();
  int64_t refused = 0, accepted = 0, not_run = 0, races = 0, caught = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Text& text = texts[static_cast<size_t>(random.Below(std::ssize(texts)))];
    Lines lines = text.lines;
    for (int64_t n = random.Between(1, 4); n > 0; --n) Change(lines, random);
    const std::string changed = base::Join(lines, "\n");
    const auto graph = ir::Parse(changed, kUnorderedHostOps);
    if (!graph.ok()) continue;  // Moved out of its block, or out of what makes its index.
    const Status status = VerifyHost(**graph);
    const ConcreteRuns runs = RunsOf(**graph, text.sizes, kSizesMax);
    ++(status.ok() ? accepted : refused);
    not_run += runs.sizes == 0 ? 1 : 0;
    const std::optional<std::string> race = FindRace(runs, {});
    races += race ? 1 : 0;
    caught += race && !status.ok() ? 1 : 0;
    ASSERT_FALSE(status.ok() && race) << "mutation " << i << ": the verifier accepts it, but " << *race << "\n"
                                      << changed;
  }
  std::cout << count << " mutations: " << accepted << " accepted, " << refused << " refused for their order; " << races
            << " have a race in a run, " << caught << " of these refused; " << not_run << " could not be run\n";
  EXPECT_GT(accepted, count / 20);
  EXPECT_GT(races, count / 20);
  EXPECT_LT(not_run, count / 20);
}

}  // namespace
}  // namespace hir::host
