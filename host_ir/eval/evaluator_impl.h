// The evaluator's parts. Private to host_ir/eval.
#pragma once

#include <optional>

#include "host_ir/eval/code.h"
#include "host_ir/eval/evaluator.h"
#include "host_ir/pool_plan.h"

namespace hir::host {

// A run of a program that was captured, and what of it cannot be changed.
struct Replay {
  std::unique_ptr<device::Graph> graph;
  std::vector<device::Buffer> fixed = {};  // Operands of communications and library calls, in order.
  uint64_t bound = 0;                      // The Bind that its arguments are of; 0: none.
  int64_t seq_base = 0;
  comm::GraphPosts posts = {};  // Their seq without seq_base.
};
struct Replays {
  int64_t runs = 0;
  int64_t captures = 0;
  std::vector<Replay> replays = {};  // The latest first.
  // The parameters' addresses in one run, the one of that number; empty: of none.
  std::vector<const std::byte*> seen = {};
  int64_t seen_at = 0;
};

// What depends on sizes alone: kept for the sizes that came last.
struct Sizes {
  std::vector<int64_t> symbols;
  std::vector<int64_t> values;        // Of all slots that do not depend on a loop.
  std::vector<int64_t> pool_offsets;  // One a used alloc.
  std::vector<int64_t> alloc_bytes;
  int64_t pool_bytes = 0;
  std::vector<std::unique_ptr<LibraryCall>> calls;
  const std::unique_ptr<Replays> replays = std::make_unique<Replays>();
};

struct Binding::State {
  std::shared_ptr<const Sizes> sizes;
  std::shared_ptr<const device::Allocation> memory;  // The pool's.
  std::vector<int64_t> values;
  std::vector<device::Buffer> buffers;
  std::vector<int64_t> args;  // Of all launches.
  uint64_t bound = 0;         // The number of the Bind that made it so.
};

// Whether it is queued and does something there.
bool IsWork(Instr::Kind kind);

class EvaluatorImpl final : public Evaluator {
 public:
  EvaluatorImpl(const HostProgram& program, const EvaluatorOptions& options, Code code, PoolPlan plan);
  Status Prepare();

  Status Bind(std::span<const Argument> arguments, std::span<const int64_t> symbols, Binding* binding) override;
  Status Run(Binding& binding, const RunOptions& options) override;
  Status Synchronize(base::Nanos timeout) override;
  void Abort(Status cause) override;
  int num_streams() const override { return code_.num_streams; }
  int64_t num_instructions() const override { return std::ssize(code_.instrs); }
  const Status& replayable() const override { return replayable_; }
  std::vector<std::string> DescribeGraphs() const override;

 private:
  static constexpr size_t kSizesKept = 8;
  // What a walk over the instructions does with them: queue them; queue them in a capture, noting what is fixed;
  // compare them with a capture.
  enum class Mode : uint8_t { kQueue, kCapture, kUpdate };

  // prepare.cc
  Status FindKernels();
  Status MakeTeams();
  Status MakeWindows();
  Status MakeEvents();

  // bind.cc
  Result<std::shared_ptr<const Sizes>> SizesFor(std::span<const int64_t> symbols);
  Status MakeCalls(Sizes& sizes);
  Result<LibraryTensor> Describe(const TensorCode& tensor, const Sizes& sizes) const;
  Status BindParams(std::span<const Argument> arguments, Binding::State& state);
  Status CheckOverlap(const Binding::State& state);
  void FillArgs(std::span<const Argument> arguments, Binding::State& state) const;

  // replay.cc
  // OK, or why runs are not captured.
  Status FindReplayable() const;
  Status RunReplayed(Binding::State& state, const RunOptions& options);
  Status RunCaptured(Binding::State& state, const RunOptions& options);
  // Makes the graph stand for this run; false when it cannot.
  bool ComeBack(Replays& replays, const Binding::State& state) const;
  Result<bool> Update(Replay& replay, Binding::State& state, const RunOptions& options);
  void Retire(Replays& replays, size_t index);
  Status LaunchGraph(Replay& replay, const RunOptions& options);
  void Fixed(const device::Buffer& buffer);

  // profile.cc
  // Waits for what `instr` has queued since `began`, and notes the time of it.
  Status TakeTime(const Instr& instr, base::Nanos began, const Binding::State& state, const RunOptions& options);

  // timeline.cc
  Status RunMarked(Binding::State& state, const RunOptions& options);
  // Marks the streams before `instr` is queued, and behind all that was since.
  Status BeginSpans(const Instr& instr, const Binding::State& state);
  Status BeginSpan(const Instr& instr, const Binding::State& state);
  Status EndSpans();

  // run.cc
  Status RunOnce(Binding::State& state, const RunOptions& options);
  Status RunInstrs(Binding::State& state, const RunOptions& options);
  Status ResolveView(const ViewCode& view, Binding::State& state) const;
  Status Post(const Instr& instr, Binding::State& state, const RunOptions& options);
  Status Group(size_t pc, const Binding::State& state);
  Status OutOfRange(const Instr& instr, const Binding::State& state) const;
  void Launch(const Instr& instr, Binding::State& state);
  void CallLibrary(const Instr& instr, Binding::State& state);
  void Progress(int stream, int side, int64_t seq);
  void Fork();
  void Join();
  // The event of a record or wait; null when its index is out of range.
  device::Event* EventOf(const Instr& instr, const Binding::State& state) const;
  device::Stream& StreamOf(const Instr& instr, const Binding::State& state) const {
    return *queues_[static_cast<size_t>(state.values[static_cast<size_t>(instr.stream)])];
  }
  std::string Describe(const ir::Op& op) const;

  const HostProgram& program_;
  const EvaluatorOptions options_;
  const std::vector<device::Stream*> streams_;
  Code code_;
  const PoolPlan plan_;
  std::vector<size_t> used_allocs_;  // Into code_.allocs.
  // Where an alloc lies that other ranks write into.
  struct InWindow {
    std::shared_ptr<const comm::Window> window = {};
    int64_t offset = 0;
  };
  std::vector<InWindow> windows_;  // One an alloc of code_; mostly none.
  std::vector<const device::Kernel*> kernels_;
  std::vector<std::vector<std::unique_ptr<device::Event>>> events_;
  std::unique_ptr<device::Event> fork_;
  std::vector<std::unique_ptr<device::Event>> joins_;  // One a stream but the first.
  std::vector<std::shared_ptr<const Sizes>> sizes_;    // The latest first.
  std::vector<std::shared_ptr<const Sizes>> retired_;  // Perhaps in queued runs still.
  bool in_group_ = false;
  struct Marked {
    std::unique_ptr<device::Marks> marks;
    std::vector<OpSpan> spans;
    std::vector<int64_t> begins, ends;  // Marks, one a span.
  };
  std::optional<Marked> marked_;      // While a run with a timeline is queued.
  base::Nanos group_began_ = {};      // In a run that is timed.
  const ir::Op* group_op_ = nullptr;  // Its first communication with others, there.
  int64_t seq_base_ = 0;
  uint64_t binds_ = 0;
  struct {
    std::vector<size_t> by_address, read, written;  // The last two reach to where the walk over the first is.
  } checked_;                                       // By CheckOverlap, which allocates nothing from the second time on.

  // Replays: see replay.cc.
  Status replayable_;
  Mode mode_ = Mode::kQueue;
  std::span<device::Stream* const> queues_;  // streams_, or a graph's updater in their places.
  std::vector<device::Stream*> updaters_;
  std::vector<device::Buffer>* fixed_ = nullptr;  // Of the capture, or of the replay that is updated.
  comm::GraphPosts* posts_ = nullptr;             // Of the capture.
  size_t fixed_at_ = 0;
  bool fixed_equal_ = true;
  std::vector<std::unique_ptr<device::Graph>> retired_graphs_;  // Perhaps in queued runs still.
};

}  // namespace hir::host
