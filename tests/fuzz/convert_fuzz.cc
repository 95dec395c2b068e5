// Fuzz target: any bytes as a program's message through the converter; what is accepted must print as text that parses
// to the same.
#include <string>
#include <string_view>
#include <vector>

#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/proto/program_proto.h"
#include "hostir/v1/program.pb.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_program.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const hostir::v1::Program& program : CorpusMessages(Corpus())) seeds.push_back(program.SerializeAsString());
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<hostir::v1::Program> donors = CorpusMessages(Corpus());
  return MutatedProgram(prng, input, donors);
}

void RunOne(std::string_view input) {
  hostir::v1::Program program;
  if (!program.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const ir::OpSet& ops = OpSetNamed(program.op_set());
  const auto graph = ir::FromProto(program, ops);
  if (!graph.ok()) return;
  const std::string printed = ir::Print(**graph);
  const auto again = ir::Parse(printed, ops);
  if (!again.ok()) Found(again.status().ToString() + "\n" + printed);
  if (ir::Print(**again) != printed) Found("printed\n" + printed + "again\n" + ir::Print(**again));
}

}  // namespace hir::fuzz
