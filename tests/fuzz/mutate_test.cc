// Goal: no bytes of a client make the parser or the converter crash, and what either accepts prints as text that both
// accept and that prints the same. Method: 100,000 seeded mutations of every golden as text, and as many of their
// messages, by bytes and by fields. HOSTIR_FUZZ_RUNS and HOSTIR_FUZZ_SEED change how many and which.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/proto/program_proto.h"
#include "hostir/v1/program.pb.h"
#include "tests/from_environment.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/mutate_text.h"

namespace hir::fuzz {
namespace {

using hostir::v1::Program;

using testing::FromEnvironment;

// An accepted program survives text, message and copy. What is wrong otherwise.
std::string CheckAccepted(const ir::Graph& graph) {
  const ir::OpSet& ops = graph.ops();
  const std::string text = ir::Print(graph);
  const auto parsed = ir::Parse(text, ops);
  if (!parsed.ok()) return parsed.status().ToString() + "\n" + text;
  if (ir::Print(**parsed) != text) return "printed\n" + text + "again\n" + ir::Print(**parsed);
  Program program;
  ir::ToProto(graph, program);
  const auto converted = ir::FromProto(program, ops);
  if (!converted.ok()) return converted.status().ToString() + "\n" + text;
  if (ir::Print(**converted) != text) return "printed\n" + text + "converted\n" + ir::Print(**converted);
  const std::string copy = ir::Print(*ir::Clone(graph));
  return copy == text ? "" : "printed\n" + text + "copied\n" + copy;
}

// A refusal has one of the codes a client may see for a program.
std::string CheckRefused(const Status& status) {
  const bool known = status.code() == Code::kInvalidArgument || status.code() == Code::kResourceExhausted ||
                     status.code() == Code::kUnimplemented;
  return known && !status.message().empty() ? "" : status.ToString();
}

TEST(Mutations, OfText) {
  const std::vector<std::string> corpus = Corpus();
  const int64_t runs = FromEnvironment("HOSTIR_FUZZ_RUNS", 100000);
  const int64_t seed = FromEnvironment("HOSTIR_FUZZ_SEED", 1);
  int64_t accepted = 0;
  for (int64_t run = 0; run < runs; ++run) {
    base::Prng prng(static_cast<uint64_t>(seed * 1000003 + run));
    const std::string text = MutateText(prng, corpus);
    const auto graph = ir::Parse(text, OpSetOf(text));
    accepted += graph.ok() ? 1 : 0;
    const std::string wrong = graph.ok() ? CheckAccepted(**graph) : CheckRefused(graph.status());
    ASSERT_EQ(wrong, "") << "seed " << seed << " run " << run << "\n" << text;
  }
  std::printf("%lld of %lld accepted\n", static_cast<long long>(accepted), static_cast<long long>(runs));
  EXPECT_GT(accepted, runs / 100) << "the mutations are too wild to test what is accepted";
}

TEST(Mutations, OfMessages) {
  std::vector<Program> corpus;
  for (const std::string& text : Corpus()) {
    const auto graph = ir::Parse(text, OpSetOf(text));
    if (graph.ok()) ir::ToProto(**graph, corpus.emplace_back());
  }
  const int64_t runs = FromEnvironment("HOSTIR_FUZZ_RUNS", 100000);
  const int64_t seed = FromEnvironment("HOSTIR_FUZZ_SEED", 1);
  google::protobuf::SetLogHandler(nullptr);  // It would report each message that is none.
  int64_t accepted = 0, read = 0;
  for (int64_t run = 0; run < runs; ++run) {
    base::Prng prng(static_cast<uint64_t>(seed * 1000003 + run));
    Program program = corpus[static_cast<size_t>(prng.Below(std::ssize(corpus)))];
    if (prng.OneIn(3)) {
      std::string bytes = program.SerializeAsString();
      for (int64_t i = prng.Between(1, 3); i > 0; --i) {
        bytes[static_cast<size_t>(prng.Below(std::ssize(bytes)))] = static_cast<char>(prng.Below(256));
      }
      if (!program.ParseFromString(bytes)) continue;
    } else {
      for (int64_t i = prng.Between(1, 3); i > 0; --i) MutateMessage(prng, program);
    }
    ++read;
    const auto graph = ir::FromProto(program, OpSetNamed(program.op_set()));
    accepted += graph.ok() ? 1 : 0;
    const std::string wrong = graph.ok() ? CheckAccepted(**graph) : CheckRefused(graph.status());
    ASSERT_EQ(wrong, "") << "seed " << seed << " run " << run << "\n" << program.ShortDebugString();
  }
  std::printf("%lld of %lld accepted, %lld were messages\n", static_cast<long long>(accepted),
              static_cast<long long>(runs), static_cast<long long>(read));
  EXPECT_GT(accepted, runs / 100) << "the mutations are too wild to test what is accepted";
}

}  // namespace
}  // namespace hir::fuzz
