#include "service/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/tensor.h"
#include "service/engine/check_program.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kDeadlineMsMost = int64_t{1} << 40;  // Any time.

std::string ValuesOf(DType dtype) {
  if (dtype == DType::kBool) return "true or false, 0 or 1";
  const IntLimits limits = LimitsOf(dtype);
  return base::Cat("an integer from ", limits.least, " to ", limits.greatest);
}

// A number for a scalar of `dtype`, as the nearest double and the nearest integer. Floats round; what another type
// does not hold exactly is kInvalidArgument, as of a constant.
Status SetScalar(const Engine::RunArg& arg, DType dtype, double& as_float, int64_t& as_int) {
  const auto* real = std::get_if<double>(&arg);
  if (real != nullptr) {
    constexpr double kLimit = 9223372036854774784.0;  // The largest double below 2^63.
    as_float = *real;
    as_int = std::isnan(*real) ? 0 : static_cast<int64_t>(std::clamp(*real, -0x1p63, kLimit));
  } else {
    const auto* flag = std::get_if<bool>(&arg);
    as_int = flag != nullptr ? int64_t{*flag} : std::get<int64_t>(arg);
    as_float = static_cast<double>(as_int);
  }
  if (IsFloat(dtype)) return {};
  const bool exact = real == nullptr || static_cast<double>(as_int) == *real;
  const IntLimits limits = LimitsOf(dtype);
  const bool fits = as_int >= limits.least && as_int <= limits.greatest;
  if (exact && fits) return {};
  return InvalidArgument(base::Cat(real != nullptr ? base::FormatDouble(*real) : base::Cat(as_int), " is no ",
                                   DTypeName(dtype), ": ", ValuesOf(dtype)));
}

}  // namespace

FleetOptions FleetOf(const EngineOptions& options) {
  std::vector<std::string> devices;
  for (int64_t rank = 0; rank < options.num_devices(); ++rank) devices.push_back(options.devices.NameOf(rank));
  return {.worker_path = options.worker_path,
          .worker_args = options.worker_args,
          .devices = std::move(devices),
          .threads_per_rank = options.threads_per_rank,
          .cores = options.cores,
          .busy_wait = options.busy_wait,
          .setup_timeout = milliseconds(options.limits.setup_timeout_ms),
          .comm_timeout = milliseconds(options.limits.comm_timeout_ms),
          .heartbeat = milliseconds(options.limits.heartbeat_ms)};
}

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      released_(std::make_shared<ReleasedShards>([wakeup = wakeup_] { wakeup->Signal(); })),
      store_({.num_devices = options_.num_devices(),
              .tensor_bytes_max = options_.limits.tensor_bytes_max,
              .tensors_max = options_.limits.tensors_max,
              .sessions_max = options_.limits.sessions_max,
              .principal_bytes_max = options_.limits.principal_bytes_max,
              .principal_tensors_max = options_.limits.principal_tensors_max,
              .principal_sessions_max = options_.limits.principal_sessions_max,
              .on_devices = options_.devices.own_memory,
              .staging_bytes_max = options_.limits.staging_bytes_max,
              .recycled_bytes_max = options_.limits.recycled_bytes_max,
              .journal = options_.journal,
              .first_shard = options_.inheritance.first_shard,
              .nodes = options_.nodes},
             released_),
      programs_(
          {options_.worker_path, options_.worker_args, base::Cat(options_.devices.kind, ":0"), options_.num_devices(),
           options_.devices.target(), options_.limits.resharding_bytes_max, options_.limits.loop_streams,
           options_.limits.planner_bytes_max, [this] { return sequencer_.snapshot().links; }},
          options_.limits, metrics_, [this] { return store_.sessions_by_principal().size() > 1; }),
      sequencer_(options_.make_ranks ? options_.make_ranks() : std::make_unique<Fleet>(FleetOf(options_)),
                 {options_.limits.queued_runs_max,
                  options_.devices.own_memory,
                  {milliseconds(options_.limits.run_timeout_ms), "run_timeout_ms"},
                  milliseconds(options_.limits.cancel_grace_ms),
                  metrics_,
                  [times = run_times_](const RunJob& job) -> std::optional<base::Nanos> {
                    const auto taken = times->Find(job.program->number(), job.sizes);
                    return taken ? std::optional(taken->last) : std::nullopt;
                  },
                  options_.starts_later},
                 wakeup_, released_, [this] { return programs_.TakeGone(); }) {
  sequencer_.Inherit(store_.Inherit(options_.inheritance));
}

Engine::~Engine() { Stop(); }

Status Engine::Start() { return CheckDevices().ok() ? sequencer_.Start() : Status(); }

Status Engine::CheckDevices() const {
  const Devices& devices = options_.devices;
  if (!devices.used.empty()) return {};
  return Status(Code::kFailedPrecondition, base::Cat("this daemon has no device: ", devices.failure.message()));
}

Result<std::string> Engine::SetDrained(const std::string& node, bool drained) {
  std::vector<std::string> names;  // By number: devices are in the order of their nodes.
  for (const LocalDevice& device : options_.devices.used) {
    if (!device.node.empty() && (names.empty() || names.back() != device.node)) names.push_back(device.node);
  }
  auto found = std::ranges::find(names, node);
  const std::optional<int64_t> number = base::ParseInt(node);
  if (found == names.end() && number && *number >= 0 && *number < std::ssize(names)) found = names.begin() + *number;
  if (found == names.end() && !names.empty()) {
    return Status(Code::kNotFound, base::Cat(base::Quoted(node.substr(0, 128)), " is no node: 0 to ", names.size() - 1,
                                             ", or ", base::Join(names, ", ")));
  }
  HIR_TRY(sequencer_.SetDrained(found - names.begin(), drained));
  if (options_.journal != nullptr) options_.journal->Drained(found - names.begin(), drained);
  return *found;
}

void Engine::Drain(base::Nanos deadline) {
  {
    const std::scoped_lock lock(accepting_);  // A run that is being accepted is queued before we wait for the queue.
    draining_ = true;
  }
  store_.EndJournal();  // Sessions end for this daemon's end: a later one goes on with them.
  sequencer_.Drain(deadline - base::Clock::Steady().Now());
}

void Engine::Stop(const Status& why) {
  const Status cause = why.ok() ? Unavailable(base::Cat("the daemon is shutting down, drain_timeout_ms = ",
                                                        options_.limits.drain_timeout_ms, " after it was asked to"))
                                : why;
  draining_ = true;
  store_.EndJournal();
  sequencer_.Stop(cause);
  programs_.Stop(cause);
}

Result<std::string> Engine::OpenSession(std::string principal, int64_t lease_ms) {
  if (draining_) return Unavailable("the daemon is shutting down");
  return store_.OpenSession(std::move(principal), lease_ms);
}

void Engine::WhenKept(std::function<void(const Status&)> done) {
  if (options_.journal == nullptr) return done({});
  options_.journal->WhenKept(std::move(done));
}

void Engine::CloseSession(const std::string& session) {
  const Owner owner = OwnerOf(session);
  store_.CloseSession(session);
  const std::scoped_lock lock(accepting_);  // Whoever found the session there has queued its run, or sees its end.
  if (draining_) return;                    // It may have ended for that: then Stop says what of.
  const Status cause(Code::kCancelled, "its session has ended");
  sequencer_.Cancel(owner, cause);
  programs_.Cancel(owner, cause);
}

void Engine::Compile(const std::string& session, const ::hostir::v1::ProgramSource& source, CompileDone done,
                     int64_t request, ProgramCache::Progress progress) {
  if (draining_) return done(Unavailable("the daemon is shutting down"));
  if (Status status = store_.CheckSession(session); !status.ok()) return done(std::move(status));
  if (Status status = CheckDevices(); !status.ok()) return done(std::move(status));
  const Result<std::string> sent = ProgramBytes(source, options_.limits.program_bytes_max);
  if (!sent.ok()) return done(sent.status());
  if (std::shared_ptr<const Program> found = programs_.FindSent(*sent)) return done(std::move(found));
  const Result<std::string> text = CheckProgram(source, options_.num_devices(), options_.limits.program_bytes_max);
  if (!text.ok()) return done(text.status());
  programs_.Get(*text, source, std::move(done), {OwnerOf(session), request, std::move(progress)});
}

void Engine::PlanFor(const std::string& session, const std::shared_ptr<const Program>& program, const Sizes& sizes,
                     CompileDone done, int64_t request, ProgramCache::Progress progress) {
  if (Status status = program->CheckSizes(sizes); !status.ok()) return done(std::move(status));
  programs_.GetFor(program, sizes, std::move(done), {OwnerOf(session), request, std::move(progress)});
}

void Engine::WhenPlanned(const RunRequest& request, std::function<void(const Status&)> then,
                         ProgramCache::Progress progress) {
  const Result<std::shared_ptr<const Program>> program = programs_.Find(request.program_id);
  const auto sizes = [&]() -> std::optional<Sizes> {
    RunJob job;
    if (!program.ok() || (*program)->ServesAll() || !Look(request, **program, job).ok()) return {};
    return std::move(job.sizes);
  }();
  if (!sizes) return then({});  // What is wrong with the request is for Run to say.
  programs_.GetFor(*program, *sizes, [then = std::move(then)](const auto& sized) { then(sized.status()); },
                   {OwnerOf(request.session), request.request, std::move(progress)});
}

Result<Engine::Accepted> Engine::Run(RunRequest request) {
  HIR_ASSIGN(const std::shared_ptr<const Program> program, programs_.Find(request.program_id));
  const std::scoped_lock lock(accepting_);
  if (draining_) return Unavailable("the daemon is shutting down");
  RunJob job;
  HIR_ASSIGN(job.timeout, TimeOf(request));
  HIR_ASSIGN(job.deadline, DeadlineOf(request, *program));
  HIR_TRY(Look(request, *program, job));
  job.program = programs_.FindFor(program, job.sizes);
  if (job.program == nullptr) {
    return Unavailable(base::Cat("the plan of ", program->plan().name(), " for these sizes was evicted; try again"));
  }
  Accepted accepted;
  Replaced replaced;
  Status made = MakeOutputs(request, job, accepted, replaced);
  const std::vector<std::shared_ptr<Tensor>> inputs = replaced.in_place.empty() ? decltype(job.inputs)() : job.inputs;
  if (made.ok()) {
    job.run = accepted.run = runs_ + 1;
    job.done = std::move(request.done);
    if (request.profile == nullptr && request.timeline == nullptr) job.done = Timed(std::move(job.done), job);
    job.owner = OwnerOf(request.session);
    job.request = request.request;
    job.profile = std::move(request.profile);
    job.timeline = std::move(request.timeline);
    job.trace = std::move(request.trace);
    job.communications = communication_bytes_.Of(*job.program, job.sizes);
    made = sequencer_.Post(std::move(job));
  }
  if (!made.ok()) {
    for (const auto& [output, input] : replaced.in_place) {
      const Named& of = accepted.outputs[output];
      store_.PutBack(request.session, of.handle, inputs[input]);
      of.tensor->readiness()->Settle(inputs[input]->condition().error);  // Whoever has met it reads what is there.
    }
    for (const Named& output : accepted.outputs) {
      if (!output.is_inputs)
        (void)store_.Free(request.session, std::span(&output.handle, 1));  // Fails without session.
    }
    return made;
  }
  ++runs_;
  (void)store_.Free(request.session, replaced.consumed);
  return accepted;
}

Result<TimeLimit> Engine::TimeOf(const RunRequest& request) const {
  const int64_t most = options_.limits.run_timeout_ms;
  if (request.timeout_ms < 0) {
    return InvalidArgument(base::Cat("timeout_ms = ", request.timeout_ms, ": the time of a run is not negative"));
  }
  if (request.timeout_ms > most) {
    return ResourceExhausted(base::Cat("run_timeout_ms = ", most, ": the run asks for ", request.timeout_ms,
                                       " ms; ask for less, or start the daemon with a higher limit"));
  }
  if (request.timeout_ms > 0) return TimeLimit{milliseconds(request.timeout_ms)};
  return TimeLimit{milliseconds(most), "run_timeout_ms"};
}

Result<RunDeadline> Engine::DeadlineOf(const RunRequest& request, const Program& program) {
  const int64_t ms = request.deadline_ms;
  if (ms < 0) return InvalidArgument(base::Cat("deadline_ms = ", ms, ": the time of a run is not negative"));
  if (ms == 0) return RunDeadline();
  const RunDeadline deadline = {request.came + milliseconds(std::min(ms, kDeadlineMsMost)), ms};
  if (base::Clock::Steady().Now() < deadline.at) return deadline;
  return deadline.Passed(base::Cat("a run of ", program.plan().name()), "before it was accepted");
}

Result<Sequencer::Cancelled> Engine::Cancel(const std::string& session, int64_t run, std::string_view who) {
  HIR_TRY(store_.CheckSession(session));
  if (run < 1 || run > runs_) {
    return Status(Code::kNotFound,
                  base::Cat("run ", run, ": there has been none of that number; the latest is ", runs_.load()));
  }
  return sequencer_.CancelRun(OwnerOf(session), run, who);
}

// Looks up every argument, and checks it against its input.
Status Engine::Look(const RunRequest& request, const Program& program, RunJob& job) const {
  const auto& inputs = program.plan().inputs();
  HIR_TRY(store_.CheckSession(request.session));
  if (static_cast<int>(request.args.size()) != inputs.size()) {
    return InvalidArgument(
        base::Cat(program.plan().name(), " has ", inputs.size(), " inputs, ", request.args.size(), " were given"));
  }
  for (int i = 0; i < inputs.size(); ++i) {
    const RunArg& arg = request.args[static_cast<size_t>(i)];
    job.inputs.emplace_back();
    job.float_scalars.push_back(0);
    job.int_scalars.push_back(0);
    if (const auto* handle = std::get_if<std::string>(&arg)) {
      Result<std::shared_ptr<Tensor>> tensor = store_.Find(request.session, *handle);
      if (!tensor.ok()) return tensor.status().WithContext(base::Cat("input ", i, " (", inputs[i].name(), ")"));
      job.inputs.back() = *std::move(tensor);
      HIR_TRY(program.Fits(i, job.inputs.back()->spec(), job.sizes));
      continue;
    }
    if (!inputs[i].scalar()) {
      return InvalidArgument(base::Cat("input ", i, " (", inputs[i].name(), "): a tensor is wanted, ", inputs[i].type(),
                                       ", not a number"));
    }
    HIR_ASSIGN(const DType dtype, FromProto(inputs[i].dtype()));
    HIR_TRY(SetScalar(arg, dtype, job.float_scalars.back(), job.int_scalars.back())
                .WithContext(base::Cat("input ", i, " (", inputs[i].name(), ")")));
  }
  for (int i = 0; i < inputs.size() && !job.sizes.empty(); ++i) {  // Again: now every symbol has its value.
    if (job.inputs[static_cast<size_t>(i)] != nullptr) {
      HIR_TRY(program.Fits(i, job.inputs[static_cast<size_t>(i)]->spec(), job.sizes));
    }
  }
  return program.CheckSizes(job.sizes);
}

// `done`, and the run's time for RunTimes.
std::function<void(const Status&, base::Nanos)> Engine::Timed(std::function<void(const Status&, base::Nanos)> done,
                                                              const RunJob& job) const {
  return [done = std::move(done), times = run_times_, number = job.program->number(), sizes = job.sizes](
             const Status& status, base::Nanos took) {
    if (status.ok()) times->Add(number, sizes, took);
    if (done) done(status, took);
  };
}

std::shared_ptr<Tensor> Engine::MakeInPlace(const RunRequest& request, const RunJob& job, size_t output) {
  const auto& param = job.program->plan().outputs(static_cast<int>(output));
  if (!param.in_place() || !param.has_alias_input()) return nullptr;
  const int input = param.alias_input();
  const std::shared_ptr<Tensor>& old = job.inputs[static_cast<size_t>(input)];
  if (old == nullptr || std::ranges::find(request.brought, input) != request.brought.end()) return nullptr;
  auto made = std::make_shared<Tensor>(old->shared_spec(), old->shared_shards(), TensorState::kPending);
  const auto& handle = std::get<std::string>(request.args[static_cast<size_t>(input)]);
  return store_.Replace(request.session, handle, old, made) ? made : nullptr;
}

Status Engine::MakeOutputs(const RunRequest& request, RunJob& job, Accepted& accepted, Replaced& replaced) {
  const auto& plan = job.program->plan();
  for (int i = 0; i < plan.outputs_size(); ++i) {
    const auto& param = plan.outputs(i);
    std::shared_ptr<Tensor> tensor = MakeInPlace(request, job, static_cast<size_t>(i));
    if (tensor != nullptr) {
      const auto input = static_cast<size_t>(param.alias_input());
      replaced.in_place.emplace_back(i, input);
      accepted.outputs.push_back({std::get<std::string>(request.args[input]), tensor, /*is_inputs=*/true});
      job.outputs.push_back(std::move(tensor));
      continue;
    }
    bool is_new = false;
    if (param.has_same_as_input()) {
      tensor = job.inputs[static_cast<size_t>(param.same_as_input())];
    } else if (param.has_same_as_output()) {
      tensor = accepted.outputs[static_cast<size_t>(param.same_as_output())].tensor;
    } else {
      HIR_ASSIGN(std::shared_ptr<const TensorSpec> spec, job.program->OutputSpec(i, job.sizes));
      // Its memory is free when the run is over.
      if (param.has_alias_input() && !request.keeps_inputs) {
        replaced.consumed.push_back(std::get<std::string>(request.args[static_cast<size_t>(param.alias_input())]));
      }
      HIR_ASSIGN(std::shared_ptr<ShardSet> shards, store_.Allocate(request.session, *spec, TensorStore::Use::kOutput));
      tensor = std::make_shared<Tensor>(std::move(spec), std::move(shards), TensorState::kPending);
      is_new = true;
    }
    HIR_ASSIGN(std::string handle, store_.AddHandle(request.session, tensor));
    accepted.outputs.push_back({std::move(handle), tensor});
    job.outputs.push_back(is_new ? tensor : nullptr);
  }
  return {};
}

Result<TensorSpec> Engine::SpecOf(TensorSpec spec, std::string_view program_id, int index) {
  if (draining_) return Unavailable("the daemon is shutting down");
  HIR_TRY(CheckDevices());
  if (program_id.empty()) {
    // So that programs can take it both ways: one element on all devices.
    for (size_t axis = 0; axis < spec.shape.size() && axis < spec.stored_once.size(); ++axis) {
      if (spec.shape[axis] == 1 && spec.sharding.Ways(axis) > 1) spec.stored_once[axis] = true;
    }
    return spec;
  }
  HIR_ASSIGN(const std::shared_ptr<const Program> program, programs_.Find(program_id));
  if (index < 0 || index >= program->plan().inputs_size()) {
    return InvalidArgument(base::Cat("input ", index, " of a program that has ", program->plan().inputs_size()));
  }
  const std::vector<int64_t> sent = std::move(spec.memory_order);
  HIR_ASSIGN(TensorSpec wanted, program->InputSpec(index, spec.dtype, spec.shape));
  HIR_TRY(CheckMemoryOrder(sent, wanted.shape.size()));
  if (SameMemory(wanted, sent)) return wanted;
  return InvalidArgument(base::Cat("input ", index, " (", program->plan().inputs(index).name(), "): the elements come ",
                                   DescribeOrder(sent), "; the program wants them ", DescribeOrder(wanted.memory_order),
                                   ", as its stride_order says"));
}

Result<std::unique_ptr<Upload>> Engine::BeginUpload(const std::string& session, TensorSpec spec,
                                                    const std::vector<bool>& sent_once, std::string_view program_id,
                                                    int index) {
  HIR_ASSIGN(spec, SpecOf(std::move(spec), program_id, index));
  Result<std::unique_ptr<Upload>> upload = Upload::Begin(store_, session, spec, sent_once);
  if (upload.ok() || program_id.empty()) return upload;
  HIR_ASSIGN(const std::shared_ptr<const Program> program, programs_.Find(program_id));
  return upload.status().WithContext(base::Cat("input ", index, " (", program->plan().inputs(index).name(), ")"));
}

Result<std::unique_ptr<DeviceTransfer>> Engine::BeginDeviceUpload(const std::string& session, TensorSpec spec,
                                                                  const std::vector<bool>& sent_once,
                                                                  std::string_view program_id, int index, bool lends) {
  HIR_ASSIGN(spec, SpecOf(std::move(spec), program_id, index));
  return DeviceTransfer::In(store_, session, spec, sent_once, lends);
}

void Engine::BeginDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                           Subscriptions& subscriptions, std::function<void(Result<std::unique_ptr<Download>>)> done) {
  Result<std::shared_ptr<Tensor>> found = store_.Find(session, handle);
  if (!found.ok()) return done(found.status());
  // A pointer of its own: `tensor` goes before it is called.
  const std::shared_ptr<Readiness> readiness = (*found)->readiness();
  subscriptions.WhenSettled(readiness,
                            [this, session, tensor = *std::move(found), device, done = std::move(done)]() mutable {
                              OpenDownload(session, std::move(tensor), device, std::move(done));
                            });
}

void Engine::OpenDownload(const std::string& session, std::shared_ptr<Tensor> tensor, std::optional<int64_t> device,
                          std::function<void(Result<std::unique_ptr<Download>>)> done) {
  const auto fail = [&](Status status) {
    tensor = nullptr;
    done(std::move(status));
  };
  const Readiness::Condition condition = tensor->condition();
  if (condition.state != TensorState::kReady) return fail(condition.error);
  const Result<std::vector<size_t>> positions = Download::Positions(*tensor, device);
  if (!positions.ok()) return fail(positions.status());
  if (std::shared_ptr<HostShards> host = tensor->shards().host()) {
    return done(std::make_unique<Download>(std::move(tensor), device, std::move(host)));
  }
  Result<std::shared_ptr<HostShards>> copy = store_.AllocateCopy(tensor->shards(), *positions);
  if (!copy.ok()) return fail(copy.status());
  FetchJob job = {.owner = OwnerOf(session), .tensor = tensor, .into = *copy};
  job.done = [tensor = std::move(tensor), device, copy = *std::move(copy), done](const Status& status) mutable {
    auto download = std::make_unique<Download>(std::move(tensor), device, std::move(copy));
    if (status.ok()) return done(std::move(download));
    download = nullptr;
    done(status);
  };
  if (Status posted = sequencer_.Post(std::move(job)); !posted.ok()) fail(std::move(posted));
}

void Engine::BeginDeviceDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                                 Subscriptions& subscriptions,
                                 std::function<void(Result<std::unique_ptr<DeviceTransfer>>)> done) {
  Result<std::shared_ptr<Tensor>> found = store_.Find(session, handle);
  if (!found.ok()) return done(found.status());
  const std::shared_ptr<Readiness> readiness = (*found)->readiness();  // As above.
  subscriptions.WhenSettled(readiness, [tensor = *std::move(found), device, done = std::move(done)]() mutable {
    const Readiness::Condition condition = tensor->condition();
    if (condition.state != TensorState::kReady) return done(condition.error);
    if (tensor->shards().host() != nullptr)
      return done(Status(Code::kFailedPrecondition, "its elements are in the host's memory: download it from there"));
    done(DeviceTransfer::Out(std::move(tensor), device));
  });
}

void Engine::Copy(const std::string& session, DeviceTransfer& transfer, std::function<void(Result<Named>)> done) {
  if (!transfer.is_offered())
    return done(Status(Code::kFailedPrecondition, "no memory has been offered with the transfer's token"));
  Sequencer::Job job;
  if (transfer.way() == DeviceTransfer::Way::kOut) {
    FetchJob fetch = {.owner = OwnerOf(session), .tensor = transfer.tensor(), .into_devices = transfer.TakeMemory()};
    fetch.done = [done](const Status& status) { done(status.ok() ? Result<Named>(Named()) : Result<Named>(status)); };
    job = std::move(fetch);
  } else {
    StoreJob store = {.owner = OwnerOf(session),
                      .tensor = transfer.tensor(),
                      .from_devices = transfer.TakeMemory(),
                      .lends = transfer.lends()};
    store.done = [this, session, tensor = transfer.tensor(), lends = transfer.lends(),
                  done](const Status& status) mutable {
      Named made = {.handle = {}, .tensor = std::move(tensor)};
      Result<std::string> handle = status.ok() ? store_.AddHandle(session, made.tensor) : Result<std::string>(status);
      if (handle.ok() && lends) {
        if (Status lent = store_.Lend(session, made.tensor); !lent.ok()) handle = lent;
      }
      if (handle.ok()) {
        made.handle = *std::move(handle);
        return done(std::move(made));
      }
      made.tensor = nullptr;  // Before its client hears of it: what nobody can name is free.
      done(handle.status());
    };
    job = std::move(store);
  }
  if (Status posted = sequencer_.Post(std::move(job)); !posted.ok()) done(std::move(posted));
}

void Engine::Grant(const std::string& session, std::unique_ptr<NodeTransfer> transfer, NodeTransferDone done) {
  SessionSlots::Slot slot = node_transfers_.Take(session);
  if (slot == nullptr) {
    transfer = nullptr;
    return done(
        ResourceExhausted(base::Cat("this session has node_transfers_max = ", options_.limits.node_transfers_max,
                                    " transfers to and from nodes under way: go by the head")));
  }
  transfer->Hold(std::move(slot));
  std::vector<Ticket> tickets = transfer->Tickets();
  const auto shared = std::make_shared<std::unique_ptr<NodeTransfer>>(std::move(transfer));
  sequencer_.Ask(std::move(tickets), [shared, done = std::move(done)](Result<std::unique_ptr<service::Grant>> grant) {
    std::unique_ptr<NodeTransfer> granted = std::move(*shared);
    if (grant.ok()) {
      granted->Hold(*std::move(grant));
      return done(std::move(granted));
    }
    granted = nullptr;
    done(grant.status());
  });
}

void Engine::BeginNodeUpload(const std::string& session, TensorSpec spec, const std::vector<bool>& sent_once,
                             std::string_view program_id, int index, NodeTransferDone done) {
  const auto begin = [&]() -> Result<std::unique_ptr<NodeTransfer>> {
    if (!at_nodes()) return Status(Code::kFailedPrecondition, "all shards are this daemon's, or its devices'");
    HIR_ASSIGN(spec, SpecOf(std::move(spec), program_id, index));
    return NodeTransfer::In(store_, session, spec, sent_once, options_.devices.used);
  };
  Result<std::unique_ptr<NodeTransfer>> transfer = begin();
  if (!transfer.ok()) return done(transfer.status());
  sequencer_.Keep((*transfer)->tensor());
  Grant(session, *std::move(transfer), std::move(done));
}

void Engine::BeginNodeDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                               Subscriptions& subscriptions, NodeTransferDone done) {
  if (!at_nodes()) return done(Status(Code::kFailedPrecondition, "all shards are this daemon's, or its devices'"));
  Result<std::shared_ptr<Tensor>> found = store_.Find(session, handle);
  if (!found.ok()) return done(found.status());
  const std::shared_ptr<Readiness> readiness = (*found)->readiness();  // As of BeginDownload.
  auto open = [this, session, tensor = *std::move(found), device, done = std::move(done)]() mutable {
    const auto begin = [&]() -> Result<std::unique_ptr<NodeTransfer>> {
      const Readiness::Condition condition = tensor->condition();
      if (condition.state != TensorState::kReady) return condition.error;
      if (tensor->shards().host() != nullptr) return Status(Code::kFailedPrecondition, "no run has taken it to nodes");
      return NodeTransfer::Out(std::move(tensor), device, options_.devices.used);
    };
    Result<std::unique_ptr<NodeTransfer>> transfer = begin();
    tensor = nullptr;
    if (!transfer.ok()) return done(transfer.status());
    Grant(session, *std::move(transfer), std::move(done));
  };
  subscriptions.WhenSettled(readiness, std::move(open));
}

Result<Engine::Named> Engine::Commit(const std::string& session, const NodeTransfer& transfer,
                                     std::span<const std::string> receipts) {
  HIR_TRY(transfer.CheckWritten(receipts));
  Named made = {.handle = {}, .tensor = transfer.tensor()};
  HIR_ASSIGN(made.handle, store_.AddHandle(session, made.tensor));
  return made;
}

Result<std::shared_ptr<Tensor>> Engine::Find(const std::string& session, const std::string& handle) const {
  return store_.Find(session, handle);
}

void Engine::WhenSettled(std::vector<std::shared_ptr<Tensor>> tensors, Subscriptions& subscriptions,
                         std::function<void()> done) {
  // The last one to let go of `all` calls.
  const std::shared_ptr<void> all(nullptr, [done = std::move(done)](void*) { done(); });
  for (const std::shared_ptr<Tensor>& tensor : tensors) subscriptions.WhenSettled(tensor->readiness(), [all] {});
  tensors.clear();
}

Result<TensorStore::Freed> Engine::Free(const std::string& session, std::span<const std::string> handles,
                                        bool those_there) {
  return store_.Free(session, handles, those_there);
}

Status Engine::PublishProgram(const std::string& session, const std::string& program_id, const std::string& name,
                              bool everyone) {
  HIR_TRY(store_.CheckSession(session));
  HIR_ASSIGN(std::string text, programs_.TextOf(program_id));
  return store_.PublishProgram(session, std::move(text), name, everyone);
}

void Engine::Attach(const std::string& session, const std::string& owner, const std::string& name,
                    Subscriptions& subscriptions, std::function<void(Result<Attached>)> done, int64_t request,
                    ProgramCache::Progress progress) {
  Result<TensorStore::Published> found = store_.FindNamed(session, owner, name);
  if (!found.ok()) return done(found.status());
  if (found->program != nullptr) {
    ::hostir::v1::ProgramSource source;
    source.set_text(*found->program);
    const auto planned = [done = std::move(done)](Result<std::shared_ptr<const Program>> program) {
      if (!program.ok()) return done(program.status());
      done(Attached{{}, {}, *std::move(program)});
    };
    return Compile(session, source, planned, request, std::move(progress));
  }
  const std::shared_ptr<Readiness> readiness = found->tensor->readiness();
  auto attach = [this, session, tensor = std::move(found->tensor), done = std::move(done)]() mutable {
    Result<std::string> handle = store_.AddHandle(session, tensor);
    if (handle.ok()) return done(Attached{*std::move(handle), std::move(tensor), {}});
    tensor = nullptr;
    done(handle.status());
  };
  subscriptions.WhenSettled(readiness, std::move(attach));
}

Engine::Report Engine::report() const {
  return {.mesh = sequencer_.snapshot(),
          .under_way = sequencer_.under_way_long(),
          .planner_pids = programs_.planner_pids(),
          .tensor_bytes = store_.tensor_bytes(),
          .recycled_bytes = store_.recycled_bytes(),
          .tensors = store_.num_tensors(),
          .sessions = store_.num_sessions(),
          .programs = programs_.size(),
          .plans = programs_.num_planned(),
          .runs = runs_,
          .runs_over = sequencer_.num_over(),
          .queued_plans = programs_.num_queued(),
          .queued_runs = sequencer_.num_queued(),
          .draining = draining_,
          .staging_bytes = store_.staging_bytes(),
          .sessions_of = store_.sessions_by_principal(),
          .queued_runs_of = sequencer_.queued_by_principal()};
}

}  // namespace hir::service
