// Fuzz target: any bytes through the parser of programs; what is accepted prints as text that prints the same again.
#include <span>
#include <string_view>

#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_bytes.h"
#include "tests/fuzz/mutate_text.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {

std::vector<std::string> Seeds() { return Corpus(); }

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  if (input.empty() || prng.OneIn(20)) return MutateText(prng, seeds);
  if (prng.OneIn(8)) return MutateBytes(prng, input);
  return MutateText(prng, input, seeds[static_cast<size_t>(prng.Below(std::ssize(seeds)))]);
}

void RunOne(std::string_view text) {
  const ir::OpSet& ops = OpSetOf(text);
  const auto graph = ir::Parse(text, ops);
  if (!graph.ok()) return;
  const std::string printed = ir::Print(**graph);
  const auto again = ir::Parse(printed, ops);
  if (!again.ok()) Found(again.status().ToString() + "\n" + printed);
  if (ir::Print(**again) != printed) Found("printed\n" + printed + "again\n" + ir::Print(**again));
}

}  // namespace hir::fuzz
