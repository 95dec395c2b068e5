// A planned program on ranks: every stage of a real run but the service around it. Kernels are compiled, the host
// program goes through its text, each rank has a device, and communications go through a communicator.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/rank/backends.h"
#include "tests/property/ranks.h"

namespace hir::testing {

// The memory of a rank's run, in bytes.
struct RankBytes {
  int64_t inputs = 0, outputs = 0, pool = 0;
};

struct RankRunOptions {
  int64_t num_ranks = 1;
  uint64_t seed = 0;                                            // Of the order in which things happen.
  base::Nanos random_delay_max = std::chrono::milliseconds(5);  // Of each message, simulated.
  Ranks* ranks = nullptr;                                       // Where they run; null: simulated ones.
  codegen::cpu::Compiler* compiler = nullptr;                   // Null only where there are backends.
  // What the ranks' devices, which are not CPUs, take their kernels and their memory's contents by; null: CPUs.
  const rank::Backends* backends = nullptr;
  rank::CompileKernels compile = {};        // Of those backends.
  std::vector<RankBytes>* taken = nullptr;  // By rank, as large as there are ranks; may be null.
};

// The outputs, gathered. `inputs`: one a parameter, whole, broadcast axes written out. Outputs are poisoned before
// the run, but those that may lie in the memory of an input, which three seeds of four have there; and copies of one
// block on several ranks are compared bit by bit.
// Errors: those of any stage; kInternal where two ranks' copies differ.
Result<std::vector<fusion::HostTensor>> RunOnRanks(host::ProgramPlan& plan, std::span<const fusion::HostTensor> inputs,
                                                   const RankRunOptions& options);

// What is wrong with the part `got` of an output, "" when nothing is; `want` has the elements that it should have.
using PartCheck =
    std::function<std::string(size_t output, const fusion::HostTensor& got, const fusion::HostTensor& want)>;

// Each part of an output that a rank of this process holds is what `check` wants beside the elements of `expected` that
// belong there. For ranks of several processes, all of which call it. Errors: those of any stage; kInternal naming
// output and rank.
Status CheckOnRanks(host::ProgramPlan& plan, std::span<const fusion::HostTensor> inputs,
                    std::span<const fusion::HostTensor> expected, const PartCheck& check,
                    const RankRunOptions& options);

}  // namespace hir::testing
