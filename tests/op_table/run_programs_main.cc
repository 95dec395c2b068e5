// run-programs FOLDER: runs fusion programs on arrays by each executor, for whoever compares the results with something
// else. FOLDER/programs.txt has a line "NAME RANKS EXECUTOR..." for each: the text is FOLDER/NAME.hir, its inputs are
// FOLDER/NAME.K.npy, its outputs become FOLDER/NAME.EXECUTOR.K.npy. What goes wrong becomes FOLDER/NAME.EXECUTOR.error,
// or FOLDER/NAME.error where the text is no program.
//
//   interpreter   the reference interpreter
//   cpu           compiled for CPUs, on RANKS local ranks
//   gpu           the CUDA C++ of a Hopper GPU, emulated; library calls as the interpreter does them
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/csrc/codegen/gpu/emulated_programs.h"
#include "tests/property/run_on_ranks.h"
#include "tools/arrays/npy.h"

namespace hir {
namespace {

using base::Cat;
using fusion::HostTensor;

struct Listed {
  std::string name;
  int64_t ranks = 1;
  std::vector<std::string> executors;
};

std::vector<Listed> ReadList(const std::string& folder) {
  std::vector<Listed> programs;
  std::ifstream file(folder + "/programs.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Listed& program = programs.emplace_back();
    words >> program.name >> program.ranks;
    for (std::string word; words >> word;) program.executors.push_back(word);
  }
  return programs;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Result<std::vector<HostTensor>> ReadInputs(const ir::Graph& graph, const std::string& stem) {
  std::vector<HostTensor> inputs;
  for (size_t k = 0; k < graph.params.size(); ++k) {
    HIR_ASSIGN(const arrays::NpyFile file, arrays::NpyFile::Open(Cat(stem, ".", k, ".npy")));
    const DType dtype = graph.params[k]->type->dtype;
    if (!arrays::Holds(file.header().descr, dtype))
      return InvalidArgument(Cat(file.path(), " holds ", file.header().descr, ", not ", DTypeName(dtype)));
    HostTensor tensor = fusion::ZeroTensor(dtype, file.header().shape);
    if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), file.data(), tensor.bytes.size());
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

Status WriteOutputs(const std::vector<HostTensor>& outputs, const std::string& stem) {
  for (size_t k = 0; k < outputs.size(); ++k) {
    HIR_ASSIGN(arrays::NpyWriter file,
               arrays::NpyWriter::Open(Cat(stem, ".", k, ".npy"), outputs[k].dtype, outputs[k].shape, true));
    HIR_TRY(file.Write(0, outputs[k].bytes));
  }
  return {};
}

// On each executor's own terms; the GPU's programs are compiled together, so they run last.
class Runs {
 public:
  explicit Runs(std::string folder) : folder_(std::move(folder)) {}

  void Start(const Listed& program) {
    const std::string stem = folder_ + "/" + program.name;
    auto graph = ir::Parse(ReadFile(stem + ".hir"), fusion::kFusionOps);
    if (!graph.ok()) return WriteError(stem, graph.status());
    auto inputs = ReadInputs(**graph, stem);
    if (!inputs.ok()) return WriteError(stem, inputs.status());
    for (const std::string& executor : program.executors) {
      if (executor == "gpu") {
        Emulate(stem + ".gpu", **graph, *inputs);
      } else if (executor == "cpu") {
        Write(stem + ".cpu", OnRanks(**graph, *inputs, program.ranks));
      } else {
        Write(stem + ".interpreter", fusion::Interpret(**graph, *inputs));
      }
    }
  }

  void Finish() {
    const Status built = emulated_.Build();
    for (size_t k = 0; k < stems_.size(); ++k) {
      if (!built.ok()) {
        WriteError(stems_[k], built);
      } else {
        Write(stems_[k], emulated_.Outputs(k));
      }
    }
  }

 private:
  Result<std::vector<HostTensor>> OnRanks(const ir::Graph& graph, const std::vector<HostTensor>& inputs,
                                          int64_t ranks) {
    HIR_ASSIGN(host::ProgramPlan plan, host::PlanProgram(ir::Clone(graph), {.num_devices = ranks}));
    return testing::RunOnRanks(plan, inputs, {.num_ranks = ranks, .compiler = &compiler_});
  }

  void Emulate(const std::string& stem, const ir::Graph& graph, const std::vector<HostTensor>& inputs) {
    if (!codegen::gpu::CanEmulate()) return WriteError(stem, Unavailable("no C++ compiler (c++) on this machine"));
    auto plan = host::PlanProgram(ir::Clone(graph), {.target = codegen::kHopper});
    if (!plan.ok()) return WriteError(stem, plan.status());
    emulated_.AddGroups(stem, std::move(plan->local.graph), inputs, {}, std::move(plan->segmented->groups));
    if (emulated_.size() != stems_.size() + 1) return WriteError(stem, Internal("not planned: see above"));
    stems_.push_back(stem);
  }

  static void Write(const std::string& stem, const Result<std::vector<HostTensor>>& outputs) {
    if (!outputs.ok()) return WriteError(stem, outputs.status());
    const Status written = WriteOutputs(*outputs, stem);
    if (!written.ok()) WriteError(stem, written);
  }

  static void WriteError(const std::string& stem, const Status& status) {
    std::ofstream(stem + ".error") << status.ToString() << "\n";
  }

  const std::string folder_;
  codegen::cpu::Compiler compiler_{{}};
  codegen::gpu::EmulatedPrograms emulated_{1};
  std::vector<std::string> stems_;  // Of the emulated programs.
};

}  // namespace
}  // namespace hir

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run-programs FOLDER\n");
    return 2;
  }
  hir::Runs runs(argv[1]);
  for (const hir::Listed& program : hir::ReadList(argv[1])) runs.Start(program);
  runs.Finish();
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}
