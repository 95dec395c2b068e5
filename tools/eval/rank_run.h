// RankRun: one rank's part of a planned program: its memory, its runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/trace.h"
#include "host_ir/eval/evaluator.h"
#include "tools/eval/device_kind.h"
#include "tools/eval/planned.h"
#include "tools/eval/rank_device.h"
#include "tools/eval/ranks.h"

namespace hir::eval {

// What was measured.
struct Timing {
  double prepare_ms = 0;                 // Kernels loaded, teams made.
  double first_run_ms = 0;               // Wall-clock, from bind to the end.
  std::vector<double> samples_ms;        // Of one run each, here.
  double bind_us = 0;                    // Of the host, for a run of sizes that came before.
  double queue_us = 0;                   // Of the host, to queue a run; the median.
  std::vector<std::string> graphs = {};  // What they are made of.
};

// What a rank holds while it runs.
struct Memory {
  int64_t shard_bytes = 0;          // Inputs and outputs.
  int64_t pool_bytes = 0;           // Temporaries, at most at any time.
  int64_t communication_bytes = 0;  // Data on its way, at most at any time.
};

// Whether this machine has memory for each input that is made up, of which `rank` makes its part.
Status InputsFit(const Options& options, const Planned& planned, int64_t rank);

// One thread. The steps are called in this order; those marked collective by every rank. After an error work may still
// be queued that uses what is held here: the process ends without destroying it.
class RankRun {
 public:
  // What is given outlives it.
  RankRun(const Options& options, Ranks& ranks, const DeviceKind& kind, RankDevice& on, Planned& planned)
      : options_(options), ranks_(ranks), kind_(kind), on_(on), planned_(planned), pool_(on.device()) {}
  Status Prepare();     // Collective: loads kernels, makes teams.
  Status LoadInputs();  // And memory for the outputs.
  Status RunOnce();     // Collective. Outputs hold no values of earlier runs before.
  // Both collective. What is measured is added to timing().
  Status PrepareMeasure();
  Status Measure(int64_t samples);
  Status RunMarked();  // Collective: a run with a timeline.
  // Makes the files (rank 0), and writes this rank's elements.
  Status CreateOutputs();
  Status WriteOutputs();

  // The most that Measure queues before it waits for them, or for other ranks.
  int64_t RunsQueued() const;
  const Timing& timing() const { return timing_; }
  Memory memory() const;                                                      // After a run.
  const std::vector<base::TraceSpan>& timeline() const { return timeline_; }  // This rank's.
  // Written files, without repeats.
  std::vector<std::string> OutputPaths() const;

 private:
  Status Allocate(size_t param, std::string_view name, const arrays::Part& part);
  Result<arrays::Part> PartOf(const plan::Boundary& boundary, std::span<const int64_t> whole, bool* held) const;
  // Memory of an input for a rank's part of it, filled from its file or made up.
  Status LoadPart(size_t input, std::string_view name, DType dtype, const arrays::Part& part);
  Status LoadOwn();  // Of a host program.
  Status Poison();
  Status Queue();
  Status QueueSample();
  Status Synchronize(int64_t runs = 1);
  Status MeasureBind();
  base::Nanos Timeout() const { return std::chrono::seconds(options_.timeout_s); }
  // Of the host, for so many runs: long enough for one that is stuck to end by the deadline of its communication.
  base::Nanos WaitFor(int64_t runs) const { return TimesRuns(Timeout(), runs) + kTellTime; }
  // The parameters before the outputs; of a host program all, since all may be read.
  size_t NumInputs() const { return planned_.is_host ? arguments_.size() : planned_.plan.local.inputs.size(); }
  bool HasPart() const { return evaluator_ != nullptr; }

  const Options& options_;
  Ranks& ranks_;
  const DeviceKind& kind_;
  RankDevice& on_;
  Planned& planned_;
  Timing timing_;

  // In the order in which they are made.
  host::Pool pool_;
  std::unique_ptr<device::KernelSource> kernels_;
  std::unique_ptr<host::HostProgram> program_;
  std::unique_ptr<host::Evaluator> evaluator_;               // Null when this rank is in no mesh of the program.
  std::vector<std::unique_ptr<device::Allocation>> memory_;  // One a parameter; null: none.
  std::unique_ptr<device::Allocation> flushed_;
  std::vector<host::Argument> arguments_;
  std::vector<int64_t> symbols_;
  host::Binding binding_;
  std::vector<double> queue_us_;
  std::vector<base::TraceSpan> timeline_;
};

}  // namespace hir::eval
