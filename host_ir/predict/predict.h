// How long a run of a host program will take, said before it is run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"
#include "host_ir/predict/rates.h"

namespace hir::host {

struct PredictedOp {
  const ir::Op* op = nullptr;
  int64_t stream = 0;
  double began = 0, ended = 0;  // Seconds from the begin of the run.
};

// The run of one rank: of the first rank of each RankClass the one that takes longest.
struct Prediction {
  int64_t rank = 0;
  double seconds = 0;                 // Of a run behind another.
  double work_seconds = 0;            // Kernels and products, one behind the other,
  double communication_seconds = 0;   // and communications.
  std::vector<PredictedOp> ops = {};  // In program order; those of loops once an iteration.
};

// Follows the program's streams and events: kernels and products take turns on the device, as do communications on its
// links, and both go on at a time where a GPU runs them. `sizes`: of all symbols of the program.
// Errors: kFailedPrecondition naming what the rates do not say; kUnimplemented for loops of more iterations than
// kIterationsMax; those of Unroll; kInvalidArgument for a size that is missing.
Result<Prediction> Predict(const ir::Graph& program, const std::map<std::string, int64_t>& sizes, const Rates& rates);

}  // namespace hir::host
