// Evaluator: runs one host program on one rank. Load (HostProgram) may be slow and may fail on the
// program; Prepare makes teams, finds kernels, plans memory; Bind takes addresses and sizes; Run
// only queues work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "csrc/device/stream.h"
#include "host_ir/eval/host_program.h"
#include "host_ir/eval/library.h"
#include "host_ir/eval/pool.h"
#include "multidevice/comm/communicator.h"

namespace hir::host {

// What a program runs on. All of it outlives the evaluator, and is shared by the evaluators of a
// rank.
struct EvaluatorOptions {
  int64_t rank = 0;
  device::Device* device = nullptr;
  // Stream i of a program is streams[i]; 0 is the caller's. The same streams for all programs of a
  // rank: then their communications keep one order.
  std::span<device::Stream* const> streams = {};
  device::KernelSource* kernels = nullptr;
  LibrarySource* libraries = nullptr;          // Null: programs without library calls.
  comm::Communicator* communicator = nullptr;  // Null: programs that communicate with nobody.
  Pool* pool = nullptr;
  // Optional: two int64 a stream, in memory that the device reaches and a supervisor may read: the
  // seq last entered and last left, written in stream order.
  device::Buffer progress_page = {};
  // Runs that repeat are captured as graphs of the device, where device and communicator can.
  bool replay = true;
};

// What a parameter stands for in one run.
struct Argument {
  device::Buffer buffer = {};  // A tensor's memory: may be empty when this rank does not touch it.
  int64_t scalar_bits = 0;     // A host scalar: the bits of the f64, or the int64.
};

// How long one piece of work took: a launch, a library call, a fill, a communication, or a group
// of them.
struct OpTime {
  const ir::Op* op = nullptr;  // Of a group the first communication that this rank takes part in.
  base::Nanos time = {};
};

// One piece of work of a run, or a wait for an event, as it was queued and as its stream came to it. Times are of the
// machine's steady clock; a device's are known to some microseconds (device/marks.h).
struct OpSpan {
  const ir::Op* op = nullptr;
  int stream = 0;
  base::Nanos queued = {}, queued_end = {};  // On the host. Those of a group's members are the group's.
  base::Nanos began = {}, ended = {};        // On the stream; a communication's waiting for its peers is within.
};

// "k0.1", "matmul -> %y", "allreduce #2", "wait %e": how timelines name it.
std::string NameOf(const ir::Op& op);

struct RunOptions {
  int64_t seq_base = 0;  // Added to every seq: what errors and progress name communications by.
  // Where one of the two is set, no graph is replayed, and Run blocks, up to `wait_timeout` at a time; Abort ends it as
  // it ends what was queued.
  // A profile: each piece of work is waited for before the next is queued, and the wall time of both together is
  // appended. So nothing overlaps, and what queueing and waiting cost is in each time.
  std::vector<OpTime>* times = nullptr;
  // A timeline: the run goes as it would, with a mark before and behind each piece of work; its spans are appended when
  // it is over, in the order in which they were queued, kSpansMax at most.
  std::vector<OpSpan>* spans = nullptr;
  base::Nanos wait_timeout = std::chrono::seconds(60);
};
inline constexpr size_t kSpansMax = 20000;

class Binding;

// Threads: one at a time; Abort from any. After an error of Run or Synchronize the streams have
// failed: the owner makes new ones (or clears them, when no communicator was poisoned).
class Evaluator {
 public:
  // Collective over the ranks of the program's teams. `program` outlives the evaluator.
  // Errors: those of KernelSource::Get and Communicator::Team, naming the op; kUnimplemented for
  // what this rank lacks;
  //         kResourceExhausted for more streams than there are.
  static Result<std::unique_ptr<Evaluator>> Prepare(const HostProgram& program, const EvaluatorOptions& options);
  virtual ~Evaluator() = default;

  // Makes *binding stand for a run with these arguments (one a parameter) and values of
  // HostProgram::symbols(). A binding that is bound again for the same sizes allocates nothing; its
  // queued runs are not touched by it.
  // Errors: kInvalidArgument naming parameter or op: a buffer too small, an output that overlaps
  // another parameter, a
  //         slice outside its tensor; those of the pool and of LibrarySource::Make.
  virtual Status Bind(std::span<const Argument> arguments, std::span<const int64_t> symbols, Binding* binding) = 0;

  // Queues the program and returns: allocates nothing, looks up nothing by name, blocks only as
  // RunOptions says. (The second run for the same sizes may be captured,
  // which allocates; later ones replay it.) Stream 0 is behind all of it: synchronize it, or queue
  // on it, to know the end.
  // Errors: of a post, or of work that is timed; what was queued before is behind stream 0 also
  // then.
  virtual Status Run(Binding& binding, const RunOptions& options) = 0;

  // Waits for what was queued. Errors: the first cause, with the communication that was under way;
  // kDeadlineExceeded when it goes on after `timeout`.
  virtual Status Synchronize(base::Nanos timeout) = 0;
  // Ends the communications under way with `cause`, from any thread.
  virtual void Abort(Status cause) = 0;

  virtual int num_streams() const = 0;
  virtual int64_t num_instructions() const = 0;  // Of a run without loops; for benchmarks.

  // Whether runs that repeat are replayed; if not, why: kUnimplemented, naming what cannot be.
  virtual const Status& replayable() const = 0;
  // What the graphs of the latest sizes are made of, the latest first; a text each.
  virtual std::vector<std::string> DescribeGraphs() const = 0;
};

// The state of one run. Movable; stays alive until the run's work is done. Graphs of its program are
// its too: it goes before the communicator.
class Binding {
 public:
  Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace hir::host
