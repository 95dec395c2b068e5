// Random sharded programs with what they should compute, made the same in every process for the same seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/codegen/target.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/property/program_generator.h"
#include "tests/property/stream_annotations.h"

namespace hir::testing {

struct ShardedProgram {
  GeneratedProgram program;
  std::vector<fusion::HostTensor> expected;  // Of the unsharded program, by the interpreter.
  host::ProgramPlan plan;
  // Where `plan` communicates between nodes in other steps: the one for a single node, which gives the same to the bit.
  std::optional<host::ProgramPlan> on_one_node = {};
  StreamTally streams = {};
};

// Sharded over a mesh of that shape, by blocks that are even on every third seed and else may not be; of at most 10 ops
// and 512 elements a tensor; on every second seed the devices are on two or three nodes. `num_devices`: of the plan.
// `streams` not 0: with random stream axes, of which the loops rotate over so many streams. Errors: those of the
// interpreter and of planning, with the program.
Result<ShardedProgram> MakeShardedProgram(uint64_t seed, const std::vector<int64_t>& mesh_shape, int64_t num_devices,
                                          const codegen::Target& target = {}, int streams = 0);

// What the programs of a run had.
struct ShardedTally {
  int64_t programs = 0, communications = 0, uneven = 0, dealt = 0, pinned = 0, on_nodes = 0;

  void Count(const ShardedProgram& made);
  // "60 programs equal on ucx, seeds 1 to 60: 31 with uneven blocks, ..."
  std::string Describe(std::string_view where, uint64_t first_seed) const;
};

// The seeds of a run: `count` from `first`, or what the environment says: HOSTIR_SEEDS=N, or HOSTIR_SEED=S alone.
struct Seeds {
  uint64_t first = 1, count = 1;
};
Seeds SeedsFromEnvironment(Seeds otherwise);

}  // namespace hir::testing
