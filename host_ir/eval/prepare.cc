// Prepare: everything a run needs and a size does not change.
#include <algorithm>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

using base::Cat;

namespace {

constexpr int64_t kWindowGrain = 512;
// A program's limit: allocs share no bytes in a window, as they do in the pool. Those without room get pieces.
constexpr int64_t kWindowBytesMax = int64_t{1} << 30;

// REQUIRES: its extents are constants.
int64_t BytesOf(const AllocCode& alloc) {
  int64_t bytes = alloc.element_bytes;
  for (const ir::Axis& axis : alloc.op->results[0]->type->axes) {
    if (axis.kind != ir::AxisKind::kBroadcast) bytes *= axis.extent->value;
  }
  return bytes;
}

}  // namespace

Binding::Binding() : state_(std::make_unique<State>()) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

Result<std::unique_ptr<Evaluator>> Evaluator::Prepare(const HostProgram& program, const EvaluatorOptions& options) {
  HIR_CHECK(options.device != nullptr && options.kernels != nullptr && options.pool != nullptr);
  HIR_ASSIGN(Code code, Compile(program, options.rank));
  HIR_ASSIGN(PoolPlan plan, PoolPlan::Make(program.graph(), options.rank));
  auto evaluator = std::make_unique<EvaluatorImpl>(program, options, std::move(code), std::move(plan));
  HIR_TRY(evaluator->Prepare());
  return std::unique_ptr<Evaluator>(std::move(evaluator));
}

EvaluatorImpl::EvaluatorImpl(const HostProgram& program, const EvaluatorOptions& options, Code code, PoolPlan plan)
    : program_(program),
      options_(options),
      streams_(options.streams.begin(), options.streams.end()),
      code_(std::move(code)),
      plan_(std::move(plan)),
      queues_(streams_) {}

Status EvaluatorImpl::Prepare() {
  if (static_cast<size_t>(code_.num_streams) > streams_.size()) {
    return ResourceExhausted(Cat("program @", program_.graph().name(), " uses ", code_.num_streams,
                                 " streams; this rank has ", streams_.size()));
  }
  const auto page_bytes = static_cast<int64_t>(sizeof(int64_t)) * 2 * code_.num_streams;
  if (options_.progress_page.data != nullptr && options_.progress_page.bytes < page_bytes) {
    return InvalidArgument(
        Cat("the progress page has ", options_.progress_page.bytes, " bytes; the program needs ", page_bytes));
  }
  for (size_t i = 0; i < code_.allocs.size(); ++i) {
    if (plan_.Uses(code_.allocs[i].op)) used_allocs_.push_back(i);
  }
  HIR_TRY(FindKernels());
  HIR_TRY(MakeEvents());
  HIR_TRY(MakeTeams());
  HIR_TRY(MakeWindows());
  replayable_ = FindReplayable();
  return {};
}

Status EvaluatorImpl::FindKernels() {
  for (const LaunchCode& launch : code_.launches) {
    HIR_ASSIGN(kernels_.emplace_back(), options_.kernels->Get(launch.kernel));
  }
  if (!code_.libraries.empty() && options_.libraries == nullptr) {
    return Unimplemented(Cat("this rank has no library for ", code_.libraries[0].name));
  }
  return {};
}

Status EvaluatorImpl::MakeEvents() {
  for (int64_t count : code_.events) {
    std::vector<std::unique_ptr<device::Event>>& events = events_.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      HIR_ASSIGN(events.emplace_back(), options_.device->CreateEvent());
    }
  }
  if (code_.num_streams == 1) return {};
  HIR_ASSIGN(fork_, options_.device->CreateEvent());
  for (int i = 1; i < code_.num_streams; ++i) {
    HIR_ASSIGN(joins_.emplace_back(), options_.device->CreateEvent());
  }
  return {};
}

// In program order, which is the same on every member: a team's lane is its stream.
Status EvaluatorImpl::MakeTeams() {
  for (CommunicationCode& communication : code_.communications) {
    if (communication.team.size() == 1) continue;
    const std::string what = Cat(comm::CommTypeName(communication.desc.type), " #", communication.desc.seq);
    if (options_.communicator == nullptr) return Unimplemented(Cat(what, ": this rank has no communicator"));
    communication.teams.resize(static_cast<size_t>(code_.num_streams));
    for (int stream = communication.stream_begin; stream < communication.stream_end; ++stream) {
      Result<comm::TeamId> team = options_.communicator->Team(communication.team, stream);
      if (!team.ok()) return team.status().WithContext(what);
      communication.teams[static_cast<size_t>(stream)] = *team;
    }
  }
  return {};
}

// Allocs that other ranks write into lie in the window of their team, one behind the other: at the same place on all.
// Ranks that have no part in it are no members; FindWindow leaves out allocs that several teams write.
Status EvaluatorImpl::MakeWindows() {
  windows_.resize(code_.allocs.size());
  std::vector<std::pair<comm::TeamId, std::vector<size_t>>> teams;  // In program order, and their allocs.
  std::set<size_t> placed;
  for (CommunicationCode& communication : code_.communications) {
    const bool one_stream = communication.stream_end == communication.stream_begin + 1;
    if (communication.window_alloc < 0 || communication.team.size() < 2 || !one_stream) continue;
    const comm::TeamId team = communication.teams[static_cast<size_t>(communication.stream_begin)];
    const auto alloc = static_cast<size_t>(communication.window_alloc);
    auto of_team = std::ranges::find(teams, team, &std::pair<comm::TeamId, std::vector<size_t>>::first);
    if (of_team == teams.end()) of_team = teams.insert(teams.end(), {team, {}});
    if (placed.insert(alloc).second) of_team->second.push_back(alloc);
  }
  for (const auto& [team, allocs] : teams) {
    int64_t bytes = 0;
    std::vector<std::pair<size_t, int64_t>> offsets;
    for (const size_t alloc : allocs) {
      const int64_t more = base::CeilDiv(BytesOf(code_.allocs[alloc]), kWindowGrain) * kWindowGrain;
      if (more == 0 || bytes + more > kWindowBytesMax) continue;
      offsets.emplace_back(alloc, bytes);
      bytes += more;
    }
    if (bytes == 0) continue;
    HIR_ASSIGN(const auto window, options_.pool->ReserveWindow(*options_.communicator, team, bytes));
    for (const auto& [alloc, offset] : offsets) windows_[alloc] = {window, offset};
  }
  return {};
}

}  // namespace hir::host
