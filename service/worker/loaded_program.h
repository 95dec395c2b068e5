// LoadedProgram: one plan on one rank, ready to run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "host_ir/eval/evaluator.h"
#include "hostir/v1/worker.pb.h"

namespace hir::service {

// Threads: one at a time; NameOf from any.
class LoadedProgram {
 public:
  // Parses the host program, and makes its teams: collective over the ranks of its meshes; a rank that is in none
  // of them has no part in it, and nothing to do in a run. What `options` points to outlives it; its kernels are
  // `kernels`.
  static Result<std::unique_ptr<LoadedProgram>> Load(const ::hostir::v1::Plan& plan, host::EvaluatorOptions options,
                                                     std::unique_ptr<device::KernelSource> kernels);

  // The memory of a bound shard.
  using Memory = std::function<Result<device::Buffer>(int64_t shard)>;
  // Makes the next Run one of these arguments and sizes: no rank waits for another. Errors: Evaluator::Bind's.
  Status Bind(const ::hostir::v1::Execute& execute, const Memory& memory);
  // Lets go of memory that Bind took.
  void Unbind() { binding_ = host::Binding(); }
  // Collective over all ranks; returns when the run is over. `started` is set when it may have communicated: after an
  // error, communicator and streams are not to be used again. `measured` gets what `execute` asks for, when the
  // message asks for them. REQUIRES: Bind was OK.
  Status Run(const ::hostir::v1::Execute& execute, bool& started, ::hostir::v1::Measured& measured);

  // "allgather #3" for the communication `seq` of a run; empty when there is none.
  std::string NameOf(int64_t seq) const;
  // "k3, k4": the work that follows that communication in the program, -1: from its start, up to the next one.
  std::string NextAfter(int64_t seq) const;

  // The communications of run r are numbered from r * kSeqsPerRun, so that those of two runs are told apart.
  static constexpr int64_t kSeqsPerRun = int64_t{1} << 20;

 private:
  LoadedProgram() = default;
  // The id of what `arg` is on this rank.
  int64_t ShardOf(const ::hostir::v1::TensorArg& arg) const;
  bool HasPart() const { return evaluator_ != nullptr; }
  Status Arguments(const ::hostir::v1::Execute& execute, const Memory& memory);
  Status Symbols(const ::hostir::v1::Execute& execute);

  std::unique_ptr<device::KernelSource> kernels_;
  std::unique_ptr<host::HostProgram> program_;
  std::unique_ptr<host::Evaluator> evaluator_;  // Null when the rank has no part.
  host::Binding binding_;
  int rank_ = 0;
  host::Pool* pool_ = nullptr;
  struct Work {
    std::optional<int64_t> seq = {};  // Of a communication.
    std::string name = {};
  };
  std::vector<Work> work_;                 // In the order of the program; once, what is in a loop.
  std::vector<host::Argument> arguments_;  // One per parameter of the host program.
  std::vector<int64_t> symbols_;           // One per symbol of it.
};

}  // namespace hir::service
