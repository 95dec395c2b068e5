// Run: queues the instructions of one binding. Nothing here allocates or looks up a name, or blocks
// but where the run is timed (profile.cc, timeline.cc).
#include <array>
#include <utility>

#include "csrc/base/text.h"
#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

using base::Cat;

namespace {

size_t At(int index) { return static_cast<size_t>(index); }

}  // namespace

Status EvaluatorImpl::Run(Binding& binding, const RunOptions& options) {
  Binding::State& state = binding.state();
  HIR_CHECK(state.sizes != nullptr);
  seq_base_ = options.seq_base;
  if (options.spans != nullptr) return RunMarked(state, options);
  const bool repeats = options.times == nullptr && replayable_.ok() && ++state.sizes->replays->runs > 1;
  return repeats ? RunReplayed(state, options) : RunOnce(state, options);
}

Status EvaluatorImpl::RunOnce(Binding::State& state, const RunOptions& options) {
  Fork();
  const Status status = RunInstrs(state, options);
  if (std::exchange(in_group_,
                    false)) {  // It failed inside a group; the first error is the one to tell.
    if (mode_ != Mode::kUpdate) (void)options_.communicator->GroupEnd().ok();
  }
  Join();
  return status;
}

void EvaluatorImpl::Fork() {
  if (joins_.empty()) return;
  queues_[0]->Record(*fork_);
  for (int i = 1; i < code_.num_streams; ++i) queues_[At(i)]->Wait(*fork_);
}

void EvaluatorImpl::Join() {
  for (size_t i = 0; i < joins_.size(); ++i) {
    queues_[i + 1]->Record(*joins_[i]);
    queues_[0]->Wait(*joins_[i]);
  }
}

Status EvaluatorImpl::RunInstrs(Binding::State& state, const RunOptions& options) {
  std::vector<int64_t>& values = state.values;
  for (size_t pc = 0; pc < code_.instrs.size(); ++pc) {
    const Instr& instr = code_.instrs[pc];
    const base::Nanos began = options.times == nullptr ? base::Nanos{} : base::Clock::Steady().Now();
    if (marked_) HIR_TRY(BeginSpans(instr, state));
    switch (instr.kind) {
      case Instr::Kind::kView: HIR_TRY(ResolveView(code_.views[At(instr.at)], state)); break;
      case Instr::Kind::kLaunch: Launch(instr, state); break;
      case Instr::Kind::kLibrary: CallLibrary(instr, state); break;
      case Instr::Kind::kCommunication: HIR_TRY(Post(instr, state, options)); break;
      case Instr::Kind::kGroupBegin:
      case Instr::Kind::kGroupEnd: HIR_TRY(Group(pc, state)); break;
      case Instr::Kind::kFill: {
        const FillCode& fill = code_.fills[At(instr.at)];
        StreamOf(instr, state).Fill(state.buffers[At(fill.buffer)], fill.pattern, fill.pattern_bytes);
        break;
      }
      case Instr::Kind::kRecord:
      case Instr::Kind::kWait: {
        device::Event* event = EventOf(instr, state);
        if (event == nullptr) return OutOfRange(instr, state);
        device::Stream& stream = StreamOf(instr, state);
        instr.kind == Instr::Kind::kRecord ? stream.Record(*event) : stream.Wait(*event);
        break;
      }
      case Instr::Kind::kLoop:
      case Instr::Kind::kNext: {
        const LoopCode& loop = code_.loops[At(instr.at)];
        int64_t& index = values[At(loop.index)];
        index = instr.kind == Instr::Kind::kLoop ? values[At(loop.begin)] : index + loop.step;
        const bool enter = index < values[At(loop.end)];
        if (enter && !code_.exprs.Evaluate(loop.level, values)) {
          return InvalidArgument(Cat(Describe(*instr.op), ": an extent overflows 64 bits in iteration ", index));
        }
        if (enter != (instr.kind == Instr::Kind::kLoop)) pc = At(instr.target) - 1;
        break;
      }
      case Instr::Kind::kBranch:
        if (values[At(instr.index)] == 0) pc = At(instr.target) - 1;
        break;
    }
    if (options.times != nullptr) HIR_TRY(TakeTime(instr, began, state, options));
    if (marked_) HIR_TRY(EndSpans());
  }
  return {};
}

Status EvaluatorImpl::ResolveView(const ViewCode& view, Binding::State& state) const {
  const std::vector<int64_t>& values = state.values;
  for (const ViewCode::Check& check : view.checks) {
    const int64_t from = values[At(check.from)], to = values[At(check.to)], extent = values[At(check.extent)];
    if (0 <= from && from <= to && to <= extent) continue;
    return InvalidArgument(Cat(Describe(*view.op), ": [", from, ", ", to, ") is not inside [0, ", extent, ")"));
  }
  for (const auto& [a, b] : view.equal) {
    if (values[At(a)] == values[At(b)]) continue;
    return InvalidArgument(Cat(Describe(*view.op), ": ", values[At(a)], " elements are not ", values[At(b)]));
  }
  const device::Buffer& base = state.buffers[At(view.base)];
  const int64_t offset = values[At(view.offset)] * view.element_bytes;
  // The bytes of a strided view are not a range; what runs on it goes by its strides.
  state.buffers[At(view.dst)] = {base.data + offset, values[At(view.elements)] * view.element_bytes};
  return {};
}

void EvaluatorImpl::Launch(const Instr& instr, Binding::State& state) {
  const LaunchCode& launch = code_.launches[At(instr.at)];
  int64_t* const args = state.args.data() + launch.args;
  int64_t* arg = args;
  for (int buffer : launch.buffers) *arg++ = reinterpret_cast<int64_t>(state.buffers[At(buffer)].data);
  for (int extent : launch.extents) *arg++ = state.values[At(extent)];
  arg += launch.scalars.size();
  StreamOf(instr, state).Launch(*kernels_[At(instr.at)], {args, arg}, state.values[At(launch.grid)]);
}

void EvaluatorImpl::CallLibrary(const Instr& instr, Binding::State& state) {
  const LibraryCode& library = code_.libraries[At(instr.at)];
  std::array<device::Buffer, kCallTensorsMax> tensors;
  size_t count = 0;
  HIR_CHECK(library.inputs.size() + library.outputs.size() <= tensors.size());
  for (const TensorCode& input : library.inputs) tensors[count++] = state.buffers[At(input.buffer)];
  for (const TensorCode& output : library.outputs) tensors[count++] = state.buffers[At(output.buffer)];
  const std::span<const device::Buffer> all(tensors.data(), count);
  if (mode_ != Mode::kQueue) {
    for (const device::Buffer& tensor : all) Fixed(tensor);
    if (mode_ == Mode::kUpdate) return;
    options_.device->CaptureFixed(true);
  }
  state.sizes->calls[At(instr.at)]->Queue(all.first(library.inputs.size()), all.subspan(library.inputs.size()),
                                          StreamOf(instr, state));
  if (mode_ == Mode::kCapture) options_.device->CaptureFixed(false);
}

Status EvaluatorImpl::Post(const Instr& instr, Binding::State& state, const RunOptions& options) {
  const CommunicationCode& communication = code_.communications[At(instr.at)];
  const auto number = static_cast<int>(state.values[At(instr.stream)]);
  device::Stream& stream = *queues_[At(number)];
  comm::CommDesc desc = communication.desc;
  desc.src = communication.src < 0 ? device::Buffer() : state.buffers[At(communication.src)];
  desc.dst = communication.dst < 0 ? device::Buffer() : state.buffers[At(communication.dst)];
  if (communication.team.size() == 1) {
    if (communication.dst >= 0 && !(desc.src == desc.dst)) stream.Copy(desc.dst, desc.src);
    return {};
  }
  // The root of a broadcast that keeps no copy receives where it sends from.
  if (desc.type == comm::CommType::kBroadcast && communication.dst < 0) desc.dst = desc.src;
  desc.count = state.values[At(communication.elements)] / communication.divisor;
  desc.team = communication.teams[At(number)];
  if (const InWindow* const in = communication.window_alloc < 0 ? nullptr : &windows_[At(communication.window_alloc)];
      in != nullptr && in->window != nullptr) {
    desc.window = in->window.get();
    desc.put_at = in->offset + communication.put_bytes;
  }
  desc.seq += options.seq_base;
  if (mode_ != Mode::kQueue) {
    Fixed(desc.src);
    Fixed(desc.dst);
  }
  if (!in_group_) Progress(number, 0, desc.seq);
  if (mode_ == Mode::kUpdate) {
    if (!in_group_) Progress(number, 1, desc.seq);
    return {};
  }
  if (mode_ == Mode::kCapture) {
    if (posts_->count++ == 0) posts_->first_seq = desc.seq - options.seq_base;
    posts_->last_seq = desc.seq - options.seq_base;
    options_.device->CaptureFixed(true);
  }
  const Status posted = options_.communicator->Post(desc, stream);
  if (mode_ == Mode::kCapture) options_.device->CaptureFixed(false);
  if (!posted.ok()) return posted.WithContext(Describe(*instr.op));
  if (!in_group_) Progress(number, 1, desc.seq);
  return {};
}

// What a group posts starts together: its members are entered before it begins, and left when it
// has ended.
Status EvaluatorImpl::Group(size_t pc, const Binding::State& state) {
  if (options_.communicator == nullptr) return {};
  const bool begin = code_.instrs[pc].kind == Instr::Kind::kGroupBegin;
  in_group_ = begin;
  const bool posts = mode_ != Mode::kUpdate;
  if (mode_ == Mode::kCapture) options_.device->CaptureFixed(true);
  Status status = begin || !posts ? Status() : options_.communicator->GroupEnd();
  if (mode_ == Mode::kCapture) options_.device->CaptureFixed(false);
  const Instr::Kind other = begin ? Instr::Kind::kGroupEnd : Instr::Kind::kGroupBegin;
  for (size_t i = begin ? pc + 1 : pc - 1; code_.instrs[i].kind != other; begin ? ++i : --i) {
    const Instr& instr = code_.instrs[i];
    if (instr.kind != Instr::Kind::kCommunication || code_.communications[At(instr.at)].team.size() == 1) continue;
    Progress(static_cast<int>(state.values[At(instr.stream)]), begin ? 0 : 1, instr.op->Int("seq") + seq_base_);
  }
  return begin && posts ? options_.communicator->GroupBegin() : status;
}

void EvaluatorImpl::Progress(int stream, int side, int64_t seq) {
  if (options_.progress_page.data == nullptr) return;
  const device::Buffer word = options_.progress_page.Slice((int64_t{stream} * 2 + side) * 8, 8);
  queues_[At(stream)]->Fill(word, static_cast<uint64_t>(seq), 8);
}

device::Event* EvaluatorImpl::EventOf(const Instr& instr, const Binding::State& state) const {
  const auto& events = events_[At(instr.at)];
  const int64_t index = state.values[At(instr.index)];
  return index < 0 || index >= std::ssize(events) ? nullptr : events[static_cast<size_t>(index)].get();
}

Status EvaluatorImpl::OutOfRange(const Instr& instr, const Binding::State& state) const {
  return InvalidArgument(Cat(Describe(*instr.op), ": index ", state.values[At(instr.index)], " is not in [0, ",
                             events_[At(instr.at)].size(), ")"));
}

Status EvaluatorImpl::Synchronize(base::Nanos timeout) {
  const Status status = streams_[0]->Synchronize(timeout);
  if (status.ok()) {
    retired_.clear();
    retired_graphs_.clear();
    options_.pool->ReleaseReplaced();
    return {};
  }
  const comm::CommProgress progress =
      options_.communicator == nullptr ? comm::CommProgress() : options_.communicator->Progress();
  for (const Instr& instr : code_.instrs) {
    if (instr.kind != Instr::Kind::kCommunication || progress.entered == progress.left) continue;
    if (instr.op->Int("seq") + seq_base_ == progress.entered) return status.WithContext(Describe(*instr.op));
  }
  return status.WithContext(Cat("program @", program_.graph().name()));
}

void EvaluatorImpl::Abort(Status cause) {
  if (options_.communicator != nullptr) options_.communicator->Abort(std::move(cause));
}

// "program @p: allreduce #17 (%c -> %y)"
std::string EvaluatorImpl::Describe(const ir::Op& op) const {
  std::string text = Cat("program @", program_.graph().name(), ": ");
  if (CodeOf(op) == HostOp::kCommunication) {
    base::Append(text, op.Name("type"), " #", op.Int("seq") + seq_base_, " (%", op.operands[0]->name, " -> %",
                 op.operands[1]->name, ")");
  } else {
    base::Append(text, op.info->name);
    for (const ir::Value* operand : op.operands) base::Append(text, " %", operand->name);
  }
  return text;
}

}  // namespace hir::host
