// Replay: runs that repeat become graphs of the device.
//
// The first run for some sizes is queued. The second is captured, and from then on a run is one launch of that graph:
// launches, copies and fills are given the binding's addresses and scalars first, when it was bound anew. Operands of
// communications and library calls cannot be changed: there is a graph for each of the last sets of them.
#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "csrc/base/text.h"
#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

using base::Cat;

namespace {

constexpr size_t kReplaysKept = 4;
// For one set of sizes: whoever brings other addresses each time gains nothing by captures. A client whose addresses
// settle later is found by one look in so many runs.
constexpr int64_t kCapturesMax = 16;
constexpr int64_t kRunsPerLook = 64;
// A graph is launched in about the time of three kernels.
constexpr int64_t kWorkMin = 4;

}  // namespace

bool IsWork(Instr::Kind kind) {
  switch (kind) {
    case Instr::Kind::kLaunch:
    case Instr::Kind::kLibrary:
    case Instr::Kind::kCommunication:
    case Instr::Kind::kFill: return true;
    case Instr::Kind::kView:
    case Instr::Kind::kGroupBegin:
    case Instr::Kind::kGroupEnd:
    case Instr::Kind::kRecord:
    case Instr::Kind::kWait:
    case Instr::Kind::kLoop:
    case Instr::Kind::kNext:
    case Instr::Kind::kBranch: return false;
  }
  return false;
}

Status EvaluatorImpl::FindReplayable() const {
  if (!options_.replay) return Unimplemented("replay is switched off");
  if (!options_.device->can_capture()) {
    return Unimplemented(Cat(options_.device->name(), " captures no graphs"));
  }
  int64_t work = code_.loops.empty() ? 0 : kWorkMin;
  for (const Instr& instr : code_.instrs) {
    const bool posts = instr.kind == Instr::Kind::kCommunication &&
                       code_.communications[static_cast<size_t>(instr.at)].team.size() > 1;
    if (posts && !options_.communicator->can_capture())
      return Unimplemented(Cat(Describe(*instr.op), ": this communicator's posts cannot be captured"));
    work += IsWork(instr.kind) ? 1 : 0;
  }
  if (work >= kWorkMin) return {};
  return Unimplemented(Cat("a run queues ", work, " pieces of work: a graph gains from ", kWorkMin, " on"));
}

std::vector<std::string> EvaluatorImpl::DescribeGraphs() const {
  std::vector<std::string> texts;
  if (sizes_.empty()) return texts;
  for (const Replay& replay : sizes_.front()->replays->replays) {
    if (replay.graph != nullptr) texts.push_back(replay.graph->Describe());
  }
  return texts;
}

// A communicator follows what communicates, and refuses it when it has failed.
Status EvaluatorImpl::LaunchGraph(Replay& replay, const RunOptions& options) {
  if (replay.posts.count == 0) {
    replay.graph->Launch(*streams_[0]);
    return {};
  }
  comm::GraphPosts posts = replay.posts;
  posts.first_seq += options.seq_base;
  posts.last_seq += options.seq_base;
  const Status launched = options_.communicator->LaunchGraph(*replay.graph, *streams_[0], posts);
  return launched.ok() ? launched : launched.WithContext(Cat("program @", program_.graph().name(), " as a graph"));
}

Status EvaluatorImpl::RunReplayed(Binding::State& state, const RunOptions& options) {
  Replays& replays = *state.sizes->replays;
  for (size_t i = 0; i < replays.replays.size(); ++i) {
    Replay& replay = replays.replays[i];
    const bool same_seq = options_.progress_page.data == nullptr || replay.seq_base == options.seq_base;
    if (replay.bound != state.bound || !same_seq) {
      HIR_ASSIGN(const bool updated, Update(replay, state, options));
      if (!updated) {
        if (replay.graph == nullptr) Retire(replays, i--);
        continue;
      }
    }
    const auto begin = replays.replays.begin();
    std::rotate(begin, begin + static_cast<ptrdiff_t>(i), begin + static_cast<ptrdiff_t>(i) + 1);
    return LaunchGraph(*begin, options);
  }
  return replays.captures < kCapturesMax || ComeBack(replays, state) ? RunCaptured(state, options)
                                                                     : RunOnce(state, options);
}

// Whether the binding's addresses are those of a run that was looked at not long ago.
bool EvaluatorImpl::ComeBack(Replays& replays, const Binding::State& state) const {
  std::vector<const std::byte*>& seen = replays.seen;
  const auto of = [&](const TensorCode& param) -> const std::byte* {
    return param.buffer < 0 ? nullptr : state.buffers[static_cast<size_t>(param.buffer)].data;
  };
  if (replays.runs - replays.seen_at >= kRunsPerLook) {
    seen.clear();
    std::ranges::transform(code_.params, std::back_inserter(seen), of);
    replays.seen_at = replays.runs;
    return false;
  }
  if (seen.empty() || !std::ranges::equal(code_.params, seen, std::equal_to(), of)) return false;
  seen.clear();  // Until the next look.
  return true;
}

Result<bool> EvaluatorImpl::Update(Replay& replay, Binding::State& state, const RunOptions& options) {
  replay.bound = 0;
  replay.graph->BeginUpdate();
  updaters_.assign(streams_.size(), &replay.graph->updater());
  queues_ = updaters_;
  mode_ = Mode::kUpdate;
  fixed_ = &replay.fixed;
  fixed_at_ = 0;
  fixed_equal_ = true;
  const Status status = RunOnce(state, options);
  queues_ = streams_;
  mode_ = Mode::kQueue;
  const Status updated = replay.graph->EndUpdate();
  HIR_TRY(status);
  if (!fixed_equal_ || fixed_at_ != replay.fixed.size()) return false;
  if (!updated.ok()) {  // Another path through the program, or a change that the device cannot make.
    retired_graphs_.push_back(std::move(replay.graph));
    return false;
  }
  replay.bound = state.bound;
  replay.seq_base = options.seq_base;
  return true;
}

// What a graph is not made of, for whatever reason, is queued as ever.
Status EvaluatorImpl::RunCaptured(Binding::State& state, const RunOptions& options) {
  Replays& replays = *state.sizes->replays;
  ++replays.captures;
  if (!options_.device->BeginCapture(*streams_[0]).ok()) return RunOnce(state, options);
  Replay replay = {.graph = nullptr, .bound = state.bound, .seq_base = options.seq_base};
  mode_ = Mode::kCapture;
  fixed_ = &replay.fixed;
  posts_ = &replay.posts;
  const Status status = RunOnce(state, options);
  mode_ = Mode::kQueue;
  Result<std::unique_ptr<device::Graph>> graph = options_.device->EndCapture(*streams_[0]);
  HIR_TRY(status);
  if (!graph.ok()) {
    if (graph.status().code() == hir::Code::kUnimplemented) replayable_ = graph.status();
    return RunOnce(state, options);
  }
  replay.graph = *std::move(graph);
  if (replays.replays.size() == kReplaysKept) Retire(replays, kReplaysKept - 1);
  replays.replays.insert(replays.replays.begin(), std::move(replay));
  return LaunchGraph(replays.replays.front(), options);
}

void EvaluatorImpl::Retire(Replays& replays, size_t index) {
  if (Replay& replay = replays.replays[index]; replay.graph != nullptr) {
    retired_graphs_.push_back(std::move(replay.graph));
  }
  replays.replays.erase(replays.replays.begin() + static_cast<ptrdiff_t>(index));
}

void EvaluatorImpl::Fixed(const device::Buffer& buffer) {
  if (mode_ == Mode::kCapture) return fixed_->push_back(buffer);
  fixed_equal_ = fixed_equal_ && fixed_at_ < fixed_->size() && (*fixed_)[fixed_at_] == buffer;
  ++fixed_at_;
}

}  // namespace hir::host
