// The resharding oracle: every pair of {replicated, split along axes, dealt in turns, partial} on the meshes 2, 3, 4,
// 2x2, 2x3 and between them, of up to three axes, of sizes that divide, one over, smaller than the mesh, and none;
// those that cannot be dealt in whole turns must be refused. Each pair is a program that goes through the whole
// pipeline and the evaluator of each rank; outputs are poisoned before, and every part is compared with values counted
// out in a loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "multidevice/mesh.h"
#include "tests/multidevice/plan/resharding_pairs.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {

// Two ways to lie, and all sizes that they are tried with.
struct ReshardingPair {
  mesh::DeviceMesh from_mesh, to_mesh;
  plan::Placed from, to;
  std::vector<std::vector<int64_t>> shapes;
  plan::Case what;  // Its shape is one of those.
};

// All of them that devices 0 .. num_devices - 1 can hold, in one order.
std::vector<ReshardingPair> AllReshardingPairs(int64_t num_devices);

// `count` of `all` drawn by `seed`, or what the environment says: HOSTIR_PAIRS=N or all, or A-B for those from number A
// until B of all; HOSTIR_SEED=S.
struct PairSample {
  std::vector<ReshardingPair> pairs;
  size_t of = 0;
  uint64_t seed = 0;
};
PairSample DrawPairs(std::vector<ReshardingPair> all, size_t count, uint64_t seed);

// What ran.
struct PairTally {
  int64_t pairs = 0, runs = 0, refused = 0, communications = 0;
  std::map<std::string, int64_t, std::less<>> meshes, sizes, types;

  // "200 of 3302 pairs (seed 1), 1240 pairs x sizes equal on ucx, ..."
  std::string Describe(std::string_view backend, const PairSample& sample) const;
};

// All sizes. Errors: of any stage, kInternal for a value that is not where it should be, with the pair and the size.
Status CheckPair(const ReshardingPair& pair, const RankRunOptions& options, const codegen::Target& target,
                 PairTally& tally);

}  // namespace hir::testing
