// A planned program on simulated ranks: every stage of a real run but the service around it. Kernels are compiled,
// the host program goes through its text, each rank has a device, and communications go through comm/local.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/property/ranks.h"

namespace hir::testing {

struct RankRunOptions {
  int64_t num_ranks = 1;
  uint64_t seed = 0;  // Of the order in which things happen.
  base::Nanos random_delay_max = std::chrono::milliseconds(5);  // Of each message, simulated.
  Ranks* ranks = nullptr;                      // Where they run; null: simulated ones.
  codegen::cpu::Compiler* compiler = nullptr;  // Never null.
};

// The outputs, gathered. `inputs`: one a parameter, whole, broadcast axes written out. Outputs are poisoned before
// the run, and copies of one block on several ranks are compared bit by bit.
// Errors: those of any stage; kInternal where two ranks' copies differ.
Result<std::vector<fusion::HostTensor>> RunOnRanks(host::ProgramPlan& plan,
                                                   std::span<const fusion::HostTensor> inputs,
                                                   const RankRunOptions& options);

}  // namespace hir::testing
