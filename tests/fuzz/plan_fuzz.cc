// Fuzz target: programs through all of planning, no code. Its input is a program's message behind a byte: for GPUs;
// with sizes; which; planned twice. What is planned is planned alike both times, its host program passes the static
// verifier, and the daemon takes and explains the plan; what is refused is refused for a reason of the program's.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/target.h"
#include "csrc/ir/expr.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "host_ir/host_ops.h"
#include "host_ir/verify/verify.h"
#include "service/engine/check_program.h"
#include "service/engine/program.h"
#include "service/planner/pipeline.h"
#include "service/rpc/explain.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_program.h"
#include "tests/fuzz/no_code.h"
#include "tests/fuzz/target.h"
#include "tests/property/program_generator.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;

constexpr int64_t kDevices = 4;
constexpr int64_t kProgramBytesMax = int64_t{1} << 18;

std::vector<pb::Program> Programs() {
  std::vector<pb::Program> programs;
  for (const char* folder : {"tests/corpus", "tests/golden/fusion", "tests/golden/programs", "tests/golden/plan",
                             "tests/golden/segments", "tests/golden/stream_loops", "tests/golden/overlap"}) {
    for (pb::Program& program : CorpusMessages(Corpus(folder))) {
      if (program.op_set() == fusion::kFusionOps.name) programs.push_back(std::move(program));
    }
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    testing::GeneratorOptions options = {.num_ops_max = 8};
    if (seed % 2 == 1) options.mesh_shape = seed % 4 == 1 ? std::vector<int64_t>{4} : std::vector<int64_t>{2, 2};
    options.uneven = seed % 3 == 0;
    ir::ToProto(*testing::Generate(seed, options).graph, programs.emplace_back());
  }
  return programs;
}

// Values of the sizes that the program's parameters have.
codegen::Sizes SizesOf(const ir::Graph& graph, int choice) {
  constexpr int64_t kValues[][3] = {{8, 4, 16}, {1, 0, 3}, {7, 5, 1000}, {1 << 20, 4096, 12}};
  std::vector<std::string_view> symbols;
  for (const ir::Value* param : graph.params) {
    for (const ir::Axis& axis : param->type->axes) ir::CollectSymbols(axis.extent, symbols);
  }
  codegen::Sizes sizes;
  for (const std::string_view symbol : symbols)
    sizes.emplace(symbol, kValues[choice & 3][static_cast<int64_t>(sizes.size()) % 3]);
  return sizes;
}

bool IsOfTheProgram(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented ||
         status.code() == Code::kResourceExhausted;
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const pb::Program& program : Programs())
    seeds.push_back(base::Cat(static_cast<char>(seeds.size() % 32), program.SerializeAsString()));
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<pb::Program> donors = Programs();
  const char options = input.empty() || prng.OneIn(16) ? static_cast<char>(prng.Below(32)) : input[0];
  return options + MutatedProgram(prng, input.empty() ? input : input.substr(1), donors);
}

void RunOne(std::string_view input) {
  pb::ProgramSource source;
  if (input.empty() || !source.mutable_program()->ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1)))
    return;
  const int flags = input[0];
  // As the daemon, and then the planner, see it.
  const Result<std::string> text = service::CheckProgram(source, kDevices, kProgramBytesMax);
  if (!text.ok()) {
    if (!IsOfTheProgram(text.status())) Found(text.status().ToString());
    return;
  }
  service::PipelineOptions options = {.num_devices = kDevices, .backend = "cpu", .compile = NoCode};
  if ((flags & 1) != 0) options.target = codegen::kHopper;
  if ((flags & 2) != 0) {
    const auto graph = ir::FromProto(source.program(), fusion::kFusionOps);
    HIR_CHECK(graph.ok());
    options.sizes = SizesOf(**graph, flags >> 2);
  }
  Result<pb::Plan> plan = service::MakePlan(source, options);
  if (!plan.ok()) {
    if (!IsOfTheProgram(plan.status())) Found(plan.status().ToString() + "\n" + *text);
    return;
  }
  if ((flags & 16) != 0) {  // It takes as long again.
    const Result<pb::Plan> again = service::MakePlan(source, options);
    if (!again.ok()) Found("planned a second time: " + again.status().ToString() + "\n" + *text);
    const std::string one = plan->DebugString(), other = again->DebugString();
    const auto differ = std::ranges::mismatch(one, other);
    if (differ.in1 != one.end() || differ.in2 != other.end()) {
      const auto at = static_cast<size_t>(differ.in1 - one.begin());
      const size_t from = one.rfind('\n', at) + 1;
      Found("plans differ\n" + *text + "\n" + one.substr(from, 400) + "\n" + other.substr(from, 400));
    }
  }
  const auto host = ir::Parse(plan->host_program(), host::kHostOps);
  if (!host.ok()) Found(host.status().ToString() + "\n" + *text + "\n" + plan->host_program());
  const Status verified = host::VerifyComplete(**host);
  if (!verified.ok()) Found(verified.ToString() + "\n" + *text + "\n" + plan->host_program());
  const auto program = service::Program::Make("id", 1, *std::move(plan));
  if (!program.ok()) Found(program.status().ToString() + "\n" + *text);
  const service::Sizes sizes(options.sizes.begin(), options.sizes.end());
  pb::ExplainReply reply;
  const Status explained = service::ExplainProgram(**program, sizes, nullptr, {}, &reply);
  if (!explained.ok() && !IsOfTheProgram(explained)) Found(explained.ToString() + "\n" + *text);
}

}  // namespace hir::fuzz
