#include "service/rpc/runtime_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/ir/builder.h"
#include "service/convert/status.h"
#include "service/convert/tensor.h"
#include "service/rpc/explain.h"
#include "service/rpc/principal.h"
#include "service/rpc/transfer_calls.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// So many bytes are freed, or stored, on the transport's thread: some 100 us. More is for a thread of the pool.
constexpr int64_t kHereBytes = 1 << 20;
constexpr size_t kUnreachedShown = 200;  // Of what a client says.

Engine::RunArg FromProto(const pb::RunArg& arg) {
  switch (arg.value_case()) {
    case pb::RunArg::kHandle: return arg.handle();
    case pb::RunArg::kFloatValue: return arg.float_value();
    case pb::RunArg::kIntValue: return arg.int_value();
    case pb::RunArg::kBoolValue: return arg.bool_value();
    case pb::RunArg::kTensor:
    case pb::RunArg::VALUE_NOT_SET: break;
  }
  return std::string();  // No handle of that name.
}

// Tensors that a request brings along for a run, which alone holds them once they are freed. Threads: one at a time.
class Brought {
 public:
  Brought(Engine& engine, std::string session) : engine_(engine), session_(std::move(session)) {}
  Brought(const Brought&) = delete;
  Brought& operator=(const Brought&) = delete;
  ~Brought() { Free(); }

  // Errors: as of an Upload to input `index` of the program.
  Result<std::string> Store(const std::string& program_id, int index, const pb::TensorValue& value) {
    const auto bytes = static_cast<int64_t>(value.elements().size());
    HIR_TRY(CheckChunk(engine_, bytes));
    pb::UploadHeader header;
    header.set_session_id(session_);
    header.set_dtype(value.dtype());
    *header.mutable_shape() = value.shape();
    *header.mutable_sent_once() = value.sent_once();
    *header.mutable_memory_order() = value.memory_order();
    header.mutable_input()->set_program_id(program_id);
    header.mutable_input()->set_index(index);
    HIR_ASSIGN(const std::unique_ptr<Upload> upload, BeginUpload(engine_, header));
    hir::Status status = upload->Expect(bytes);
    if (!status.ok()) return status.WithContext(base::Cat("input ", index));
    upload->Write(value.elements());
    Result<Upload::Stored> stored = upload->End();
    if (!stored.ok()) return stored.status().WithContext(base::Cat("input ", index));
    engine_.metrics().uploaded_bytes.Add(bytes);
    return handles_.emplace_back(std::move(stored->handle));
  }
  void Free() {
    if (!handles_.empty()) (void)engine_.Free(session_, std::exchange(handles_, {}), /*those_there=*/true);
  }

 private:
  Engine& engine_;
  const std::string session_;
  std::vector<std::string> handles_;
};

// Whether tensors that a run brings along take long to store: one element that is sent once may be many.
bool StoresMuch(const pb::RunRequest& request) {
  int64_t bytes = 0;
  for (const pb::RunArg& arg : request.args()) {
    if (!arg.has_tensor()) continue;
    int64_t stored = 8;  // Of an element, at most.
    for (const int64_t extent : arg.tensor().shape()) stored = base::CheckedMul(stored, extent).value_or(INT64_MAX);
    bytes = base::CheckedAdd(bytes, std::max<int64_t>(stored, 0)).value_or(INT64_MAX);
  }
  return bytes > kHereBytes;
}

// Whether letting go of them takes a moment: of memory of the daemon's own; that of devices is a word to their ranks.
bool IsMuch(const TensorStore::Freed& freed) {
  int64_t bytes = 0;
  for (const std::shared_ptr<Tensor>& tensor : freed) {
    if (tensor->shards().host() != nullptr) bytes += tensor->stored_bytes();
  }
  return bytes > kHereBytes;
}

// So many that looking them all up takes a moment, and telling the state of each takes megabytes.
hir::Status CheckHandles(int count, const Engine& engine) {
  const int64_t most = engine.options().limits.request_handles_max;
  if (count <= most) return {};
  return ResourceExhausted(base::Cat("request_handles_max = ", most, ": the request has ", count, "; split it"));
}

// `keeps_inputs`: the client keeps what it knows of an input in whose memory an output is made.
void ToProto(const Engine::Accepted& accepted, bool keeps_inputs, pb::RunReply* reply) {
  reply->set_run_id(accepted.run);
  for (const Engine::Named& output : accepted.outputs) {
    if (output.is_inputs && keeps_inputs) {
      reply->add_outputs()->set_handle(output.handle);
    } else {
      hir::service::ToProto(output.handle, *output.tensor, reply->add_outputs());
    }
  }
}

pb::CancelReply::Found FoundOf(Sequencer::Cancelled found) {
  switch (found) {
    case Sequencer::Cancelled::kTakenBack: return pb::CancelReply::FOUND_QUEUED;
    case Sequencer::Cancelled::kUnderWay: return pb::CancelReply::FOUND_UNDER_WAY;
    case Sequencer::Cancelled::kOver: break;
  }
  return pb::CancelReply::FOUND_OVER;
}

// Empty: it is of none.
template <typename Request>
std::string_view SessionOf(const Request& request) {
  if constexpr (requires { request.session_id(); }) {
    return request.session_id();
  } else if constexpr (requires { request.header().session_id(); }) {
    return request.header().session_id();
  } else {
    return {};
  }
}

void Describe(const Program& program, pb::CompileReply* reply) {
  reply->set_program_id(program.id());
  *reply->mutable_inputs() = program.plan().inputs();
  *reply->mutable_outputs() = program.plan().outputs();
  *reply->mutable_guards() = program.plan().guards();
}

void Describe(const SharedPart& part, pb::SharedShard* shared) {
  shared->set_bytes(part.bytes);
  shared->set_memory(part.within);
  shared->set_memory_offset(part.offset);
  shared->mutable_shard()->set_device(part.device);
  for (const mesh::Range& range : part.elements) {
    shared->mutable_shard()->add_start(range.begin);
    shared->mutable_shard()->add_extent(range.size());
    shared->mutable_shard()->add_step(range.step);
  }
  shared->mutable_stored()->Add(part.stored.begin(), part.stored.end());
}

// Where the elements of `transfer` are.
template <typename Transfer>
void Describe(const Transfer& transfer, pb::SharedMemoryReply* reply) {
  for (const SharedPart& part : transfer.Parts()) Describe(part, reply->add_shards());
}
void Describe(const NodeTransfer& transfer, pb::SharedMemoryReply* reply) {
  for (const NodePart& part : transfer.parts()) {
    pb::SharedShard& shared = *reply->add_shards();
    Describe(part.part, &shared);
    shared.set_node(part.node);
    shared.set_ticket(part.ticket.secret);
  }
}
// `sent`: as of Download.
void Describe(const TensorSpec& sent, pb::SharedMemoryReply* reply) {
  reply->set_dtype(hir::service::ToProto(sent.dtype));
  reply->mutable_shape()->Add(sent.shape.begin(), sent.shape.end());
  for (const bool once : sent.stored_once) reply->add_sent_once(once);
}

}  // namespace

RuntimeService::RuntimeService(Engine& engine, const Listener& listener, AccessLog* access)
    : engine_(engine),
      admission_(engine.options().limits.requests_bytes_max),
      listener_(listener),
      access_(access),
      log_(engine.metrics(), access),
      in_flight_(engine.options().limits.requests_max),
      start_(base::Clock::Steady().Now()),
      pool_({.num_threads = static_cast<int>(engine.options().limits.rpc_threads),
             .queue_depth_max = static_cast<size_t>(engine.options().limits.queued_rpcs_max)}),
      bulk_({.num_threads = static_cast<int>(engine.options().limits.rpc_threads),
             .queue_depth_max = static_cast<size_t>(engine.options().limits.queued_rpcs_max)}),
      shared_transfers_(std::chrono::milliseconds(engine.options().limits.transfer_idle_ms), bulk_),
      open_sessions_(
          [this](const std::string& session) {
            const auto close = [this, session] { Close(session); };
            if (!bulk_.Post(close)) close();  // Rather here than never.
          },
          std::chrono::milliseconds(engine.options().limits.session_idle_ms)) {
  for (const Inheritance::Session& session : engine.options().inheritance.sessions) {
    if (!engine.CheckSession(session.id).ok()) continue;  // Beyond this daemon's limits.
    open_sessions_.Inherit(session.id, session.principal, base::FromMs(session.lease_ms));
  }
}

void RuntimeService::Close(const std::string& session) {
  spdlog::info("session={} closed", session.substr(0, 8));
  engine_.CloseSession(session);
  open_sessions_.CancelTransfers(session);
  shared_transfers_.EndSession(session);
  keys_.EndSession(session);
}

bool RuntimeService::Drain(base::Nanos deadline) {
  engine_.Drain(deadline);
  const bool drained = in_flight_.Drain(deadline - base::Clock::Steady().Now());
  open_sessions_.EndAll(Unavailable("the daemon is shutting down"));
  return drained;
}

void RuntimeService::AwaitCalls() {
  while (!in_flight_.Drain(std::chrono::hours(1))) {
  }
}

template <typename Request, typename Reply>
grpc::ServerUnaryReactor* RuntimeService::Start(std::string_view method, const grpc::CallbackServerContext& context,
                                                const grpc::ByteBuffer* request, grpc::ByteBuffer* answer,
                                                Handle<Request, Reply> handle, On thread) {
  auto made = std::make_unique<Reply>();
  Reply* const reply = made.get();
  CallRecord record = Begin(method, context);
  if (access_ != nullptr) record.bytes_in = static_cast<int64_t>(request->Length());
  const std::shared_ptr<GrpcCall> call = GrpcCall::Make(std::move(record), in_flight_, log_, std::move(made), answer);
  // Taken from gRPC, which would keep them as long as the call waits, and not longer than its client.
  grpc::ByteBuffer bytes;
  const_cast<grpc::ByteBuffer*>(request)->Swap(&bytes);
  Carry(call, std::move(bytes), reply, handle, thread);
  return call.get();
}

template <typename Request, typename Reply>
void RuntimeService::Start(std::string_view method, FramedCalls::Request request, Handle<Request, Reply> handle,
                           On thread) {
  auto made = std::make_unique<Reply>();
  Reply* const reply = made.get();
  CallRecord record = log_.Begin(
      method, request.trace, [&request] { return base::Cat("fd:", request.fd); },
      [&request] { return PrincipalOf(request.peer); });
  if (access_ != nullptr) record.bytes_in = static_cast<int64_t>(request.bytes.Length());
  const auto call = FramedCall::Make(std::move(record), in_flight_, log_, std::move(made), request.socket);
  Carry(call, std::move(request.bytes), reply, handle, thread);
}

void RuntimeService::Carry(FramedCalls::Request request) {
#define HIR_UNARY(Method, Request, Reply, thread)                                                               \
  if (request.method == #Method) {                                                                              \
    return Start<pb::Request, pb::Reply>(#Method, std::move(request), &RuntimeService::Do##Method, On::thread); \
  }
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY
  FramedCalls::Refuse(
      request, hir::Status(Code::kUnimplemented, base::Cat("no method \"", request.method.substr(0, kUnreachedShown),
                                                           "\" is carried by frames; call it by gRPC")));
}

template <typename Request, typename Reply>
void RuntimeService::Carry(const std::shared_ptr<UnaryCall>& call, grpc::ByteBuffer given, Reply* reply,
                           Handle<Request, Reply> handle, On thread) {
  auto work = [this, call, bytes = std::move(given), reply, handle]() mutable {
    Request parsed;
    Charge charge;
    const hir::Status status = admission_.Parse(bytes, Request::descriptor()->name(), parsed, charge);
    if (!status.ok()) return call->ClaimAndEnd(status);
    if (access_ != nullptr)
      call->Learn([&](CallRecord& known) { known.session = CallLog::SessionName(SessionOf(parsed)); });
    call->Hold(open_sessions_.Enter(std::string(SessionOf(parsed))));
    if constexpr (requires { parsed.request_key(); }) {
      if (!parsed.request_key().empty()) {
        auto own = std::make_unique<Reply>();
        Reply* const answered = own.get();
        const std::shared_ptr<KeyedCall> keyed =
            keys_.Begin(parsed.session_id(), parsed.request_key(), DigestOf(bytes), call, std::move(own));
        bytes.Clear();
        if (keyed != nullptr) (this->*handle)(parsed, answered, keyed);
        return;
      }
    }
    bytes.Clear();
    (this->*handle)(parsed, reply, call);
  };
  if (!call->admission().ok()) {
    call->ClaimAndEnd(call->admission());
  } else if (thread == On::kTransport) {
    work();
  } else if (!pool_.Post(std::move(work))) {
    call->ClaimAndEnd(QueueFull(engine_));
  }
}

ProgramCache::Progress RuntimeService::ProgressOf(const std::string& session) {
  return [this, session](const pb::PlanProgress& progress) { open_sessions_.Tell(session, progress); };
}

void RuntimeService::DoCompile(const pb::CompileRequest& request, pb::CompileReply* reply, Call call) {
  engine_.Compile(
      request.session_id(), request.program(),
      [call, reply](Result<std::shared_ptr<const Program>> program) {
        if (!call->Claim()) return;
        if (program.ok()) Describe(**program, reply);
        call->End(program.status());
      },
      call->id(), ProgressOf(request.session_id()));
}

void RuntimeService::DoExplain(const pb::ExplainRequest& request, pb::ExplainReply* reply, Call call) {
  const Sizes sizes(request.sizes().begin(), request.sizes().end());
  // On a thread of the pool: the one that a plan comes on is the planner's, and following a program takes time.
  const auto explain = [this, call, reply, sizes](const Result<std::shared_ptr<const Program>>& planned) {
    if (!planned.ok()) return call->ClaimAndEnd(planned.status());
    const auto work = [this, call, reply, sizes, program = *planned] {
      if (!call->Claim()) return;
      const host::Rates* const rates = engine_.options().rates ? &*engine_.options().rates : nullptr;
      call->End(ExplainProgram(*program, sizes, rates, engine_.TimesOf(*program, sizes), reply));
    };
    if (!pool_.Post(work)) call->ClaimAndEnd(QueueFull(engine_));
  };
  engine_.Compile(
      request.session_id(), request.program(),
      [this, call, sizes, explain, session = request.session_id(),
       progress = ProgressOf(request.session_id())](Result<std::shared_ptr<const Program>> program) {
        const bool all_known =
            program.ok() && CheckNames(**program, sizes).ok() && sizes.size() == (*program)->Symbols().size();
        // With all sizes it is the plan that a run of them gets.
        if (all_known && !(*program)->ServesAll())
          return engine_.PlanFor(session, *program, sizes, explain, call->id(), progress);
        explain(program);
      },
      call->id(), ProgressOf(request.session_id()));
}

void RuntimeService::DoRun(const pb::RunRequest& request, pb::RunReply* reply, Call call) {
  const int given = std::max(request.args_size(), request.handles_size());
  if (given > ir::kParamsMax) {
    return call->ClaimAndEnd(
        InvalidArgument(base::Cat("the run has ", given, " arguments; no program has more than ", ir::kParamsMax)));
  }
  if (request.args_size() > 0 && request.handles_size() > 0) {
    return call->ClaimAndEnd(InvalidArgument(base::Cat("the run has ", request.args_size(), " args and ",
                                                       request.handles_size(), " handles: give one of the two")));
  }
  const hir::Status few = CheckHandles(request.free_size(), engine_);
  if (!few.ok()) return call->ClaimAndEnd(few);
  const bool stores = StoresMuch(request);
  if (request.free().empty() && !stores) return Accept(request, reply, call);
  hir::Result<TensorStore::Freed> freed = Free(request.session_id(), request.free(), true);
  if (!freed.ok()) return call->ClaimAndEnd(freed.status());
  if (!stores && !IsMuch(*freed)) {
    freed->clear();
    return Accept(request, reply, call);
  }
  // The call is done with its request before a thread of the pool is.
  const auto kept = std::make_shared<const pb::RunRequest>(request);
  const auto accept = [this, kept, reply, call, stores] {
    if (!stores) return Accept(*kept, reply, call);
    if (!bulk_.Post([this, kept, reply, call] { Accept(*kept, reply, call); })) call->ClaimAndEnd(QueueFull(engine_));
  };
  LetGo(*std::move(freed), accept);
}

namespace {

Engine::RunRequest WithoutArguments(const pb::RunRequest& request) {
  Engine::RunRequest run;
  run.session = request.session_id();
  run.program_id = request.program_id();
  run.timeout_ms = request.timeout_ms();
  run.deadline_ms = request.deadline_ms();
  run.args.reserve(static_cast<size_t>(std::max(request.args_size(), request.handles_size())));
  run.keeps_inputs = request.keeps_inputs();
  if (request.profile()) run.profile = std::make_shared<pb::RunProfile>();
  if (request.timeline()) run.timeline = std::make_shared<std::string>();
  return run;
}

// Stores those that come with the request, for as long as `brought` has them.
hir::Status TakeArguments(const pb::RunRequest& request, Brought& brought, Engine::RunRequest& run) {
  run.args.assign(request.handles().begin(), request.handles().end());
  for (int i = 0; i < request.args_size(); ++i) {
    const pb::RunArg& arg = request.args(i);
    if (!arg.has_tensor()) {
      run.args.push_back(FromProto(arg));
      continue;
    }
    HIR_ASSIGN(std::string stored, brought.Store(request.program_id(), i, arg.tensor()));
    run.args.push_back(std::move(stored));
    run.brought.push_back(i);
  }
  return {};
}

}  // namespace

void RuntimeService::Accept(const pb::RunRequest& request, pb::RunReply* reply, Call call) {
  if (request.profile() && request.timeline()) {
    return call->ClaimAndEnd(InvalidArgument(
        "profile and timeline: the first waits for each piece of work before the next, the second shows what overlaps; "
        "run once for each"));
  }
  const auto made = std::make_shared<Engine::RunRequest>(WithoutArguments(request));  // A copy has a string a tensor.
  Engine::RunRequest& run = *made;
  run.request = call->id();
  run.trace = call->trace();
  const auto brought = std::make_shared<Brought>(engine_, request.session_id());
  if (const hir::Status taken = TakeArguments(request, *brought, run); !taken.ok()) return call->ClaimAndEnd(taken);
  // Filled before the run can be over: `accepted` is set under the same lock.
  struct Waited {
    std::mutex mutex;
    Engine::Accepted accepted;
  };
  const auto waited = std::make_shared<Waited>();
  const std::string session = request.session_id();
  // Outputs that nobody will ever name are freed.
  const auto drop = [this, session](const Engine::Accepted& accepted) {
    for (const Engine::Named& output : accepted.outputs) {
      if (!output.is_inputs) (void)engine_.Free(session, std::span(&output.handle, 1));
    }
  };
  // Answers; what the reply names is freed when the client has left before it heard of it.
  const auto answer = [drop, reply, keeps_inputs = run.keeps_inputs](
                          Engine::Accepted accepted, const std::shared_ptr<hir::service::Call>& claimed) {
    ToProto(accepted, keeps_inputs, reply);
    // Nothing holds the outputs but their handles when the client hears of them.
    for (Engine::Named& output : accepted.outputs) output.tensor = nullptr;
    claimed->IfUnheard([drop, accepted = std::move(accepted)] { drop(accepted); });
    claimed->End({});
  };
  const bool wait = request.wait() || request.profile() || request.timeline();
  if (wait) {
    run.done = [call, reply, waited, drop, answer, profile = run.profile, timeline = run.timeline](
                   const hir::Status& outcome, base::Nanos took) {
      const std::scoped_lock lock(waited->mutex);
      Engine::Accepted accepted = std::exchange(waited->accepted, {});
      if (!outcome.ok() || !call->Claim()) {
        drop(accepted);
        accepted = {};
        if (!outcome.ok()) call->ClaimAndEnd(outcome);
        return;
      }
      reply->set_run_us(took.count() / 1000);
      if (profile) reply->mutable_profile()->Swap(profile.get());
      if (timeline) reply->set_timeline(std::move(*timeline));
      answer(std::move(accepted), call);
    };
  }
  const auto start = [this, call, waited, drop, answer, made, wait, brought](const hir::Status& planned) {
    if (!planned.ok()) return call->ClaimAndEnd(planned);
    std::unique_lock lock(waited->mutex);
    Result<Engine::Accepted> accepted = engine_.Run(std::move(*made));
    brought->Free();  // Before the client hears of it.
    if (!accepted.ok()) return call->ClaimAndEnd(accepted.status());
    const int64_t number = accepted->run;
    call->LearnRun(number);
    waited->accepted = *std::move(accepted);
    if (wait) {
      lock.unlock();
      return engine_.LookForEnd(number);
    }
    if (!call->Claim()) return drop(waited->accepted);
    answer(std::exchange(waited->accepted, {}), call);
  };
  engine_.WhenPlanned(run, start, ProgressOf(request.session_id()));
}

void RuntimeService::DoCancel(const pb::CancelRequest& request, pb::CancelReply* reply, Call call) {
  if (!call->Claim()) return;
  const auto found =
      engine_.Cancel(request.session_id(), request.run_id(),
                     base::Cat("its client (", engine_.PrincipalOf(request.session_id()), ") cancelled it"));
  if (found.ok()) reply->set_found(FoundOf(*found));
  call->End(found.status());
}

void RuntimeService::DoShards(const pb::ShardsRequest& request, pb::ShardsReply* reply, Call call) {
  const auto spec = [&]() -> Result<TensorSpec> {
    HIR_ASSIGN(const std::shared_ptr<Tensor> tensor, engine_.Find(request.session_id(), request.handle()));
    return tensor->spec();
  }();
  if (!spec.ok()) return call->ClaimAndEnd(spec.status());
  for (const int64_t device : spec->sharding.mesh.devices()) {
    const auto ranges = mesh::ShardSlices(spec->sharding, spec->shape, device, "the tensor");
    if (!ranges.ok()) return call->ClaimAndEnd(ranges.status());
    pb::Shard& shard = *reply->add_shards();
    shard.set_device(device);
    for (const mesh::Range& range : *ranges) {
      shard.add_start(range.begin);
      shard.add_extent(range.size());
      shard.add_step(range.step);
    }
  }
  call->ClaimAndEnd({});
}

void RuntimeService::DoReserve(const pb::ReserveRequest& request, pb::SharedMemoryReply* reply, Call call) {
  if (!call->Claim()) return;
  const pb::UploadHeader& header = request.header();
  if (request.at_nodes()) return BeginNodeUpload(engine_, header, ShareAtNodes(header.session_id(), reply, call));
  const auto share = [&](const TensorSpec& sent, auto transfer) -> hir::Status {
    Describe(sent, reply);
    return AddShared(header.session_id(), std::move(transfer), reply, call);
  };
  const auto reserve = [&]() -> hir::Status {
    if (request.on_devices()) {
      HIR_ASSIGN(std::unique_ptr<DeviceTransfer> transfer, BeginDeviceUpload(engine_, request));
      const TensorSpec sent = transfer->sent();
      return share(sent, std::move(transfer));
    }
    HIR_ASSIGN(std::unique_ptr<hir::service::Upload> upload, BeginUpload(engine_, header));
    HIR_TRY(upload->Reserve());
    const TensorSpec sent = upload->sent();
    return share(sent, std::move(upload));
  };
  call->End(reserve());
}

template <typename Transfer>
hir::Status RuntimeService::AddShared(const std::string& session, std::unique_ptr<Transfer> transfer,
                                      pb::SharedMemoryReply* reply, Call call) {
  Describe(*transfer, reply);
  HIR_ASSIGN(std::string token, shared_transfers_.Add(session, engine_.PrincipalOf(session), std::move(transfer)));
  reply->set_token(token);
  call->IfUnheard([this, session, token] { (void)shared_transfers_.Release(session, token); });
  return {};
}

Engine::NodeTransferDone RuntimeService::ShareAtNodes(const std::string& session, pb::SharedMemoryReply* reply,
                                                      Call call) {
  return [this, session, reply, call](Result<std::unique_ptr<NodeTransfer>> transfer) {
    const Code code = transfer.status().code();
    // No fault of anybody's: who asks by the head for what else is wrong with it hears of that there. A node that is
    // full may be so until a run ends, which nobody waits for by the head.
    if (code == Code::kFailedPrecondition || code == Code::kUnavailable || code == Code::kResourceExhausted)
      return call->End({});
    if (!transfer.ok()) return call->End(transfer.status());
    Describe((*transfer)->sent(), reply);
    call->End(AddShared(session, *std::move(transfer), reply, call));
  };
}

void RuntimeService::DoCommit(const pb::CommitRequest& request, pb::UploadReply* reply, Call call) {
  if (!call->Claim()) return;
  Result<SharedTransfers::Committed> taken = shared_transfers_.Take(request.session_id(), request.token());
  if (!taken.ok()) return call->End(taken.status());
  if (auto* const devices = std::get_if<std::unique_ptr<DeviceTransfer>>(&*taken))
    return Copy(request.session_id(), **devices, reply, call);
  if (auto* const nodes = std::get_if<std::unique_ptr<NodeTransfer>>(&*taken))
    return call->End(Commit(request, std::move(*nodes), reply, call));
  const auto commit = [&]() -> hir::Status {
    const auto upload = std::get<std::unique_ptr<hir::service::Upload>>(*std::move(taken));
    HIR_ASSIGN(const hir::service::Upload::Stored stored, upload->End());
    engine_.metrics().uploaded_bytes.Add(upload->total_bytes());
    Answer({stored.handle, stored.tensor}, request.session_id(), reply->mutable_tensor(), call);
    return {};
  };
  call->End(commit());
}

hir::Status RuntimeService::Commit(const pb::CommitRequest& request, std::unique_ptr<NodeTransfer> transfer,
                                   pb::UploadReply* reply, Call call) {
  const std::vector<std::string> receipts(request.receipts().begin(), request.receipts().end());
  HIR_ASSIGN(Engine::Named made, engine_.Commit(request.session_id(), *transfer, receipts));
  engine_.metrics().uploaded_bytes.Add(transfer->total_bytes());
  engine_.metrics().uploaded_past_head_bytes.Add(transfer->total_bytes());
  transfer = nullptr;  // Before the client hears of it: the handle alone holds the tensor.
  Answer(std::move(made), request.session_id(), reply->mutable_tensor(), call);
  return {};
}

void RuntimeService::Copy(const std::string& session, DeviceTransfer& transfer, pb::UploadReply* reply, Call call) {
  const bool is_upload = transfer.way() == DeviceTransfer::Way::kIn;
  Metrics& metrics = engine_.metrics();
  (is_upload ? metrics.uploaded_bytes : metrics.downloaded_bytes).Add(transfer.total_bytes());
  engine_.Copy(session, transfer, [this, session, reply, call](Result<Engine::Named> made) {
    if (made.ok() && made->tensor != nullptr) Answer(*std::move(made), session, reply->mutable_tensor(), call);
    call->End(made.status());
  });
}

void RuntimeService::Answer(Engine::Named made, const std::string& session, pb::Tensor* tensor, Call call) {
  hir::service::ToProto(made.handle, *made.tensor, tensor);
  call->IfUnheard(
      [this, session, handle = std::move(made.handle)] { (void)engine_.Free(session, std::span(&handle, 1)); });
}

void RuntimeService::DoShare(const pb::DownloadRequest& request, pb::SharedMemoryReply* reply, Call call) {
  const auto device = request.has_device() ? std::optional(request.device()) : std::nullopt;
  if (request.on_devices()) {
    const auto share = [this, session = request.session_id(), reply,
                        call](Result<std::unique_ptr<DeviceTransfer>> transfer) {
      if (!call->Claim()) return;
      if (!transfer.ok()) return call->End(transfer.status());
      Describe((*transfer)->sent(), reply);
      call->End(AddShared(session, *std::move(transfer), reply, call));
    };
    return engine_.BeginDeviceDownload(request.session_id(), request.handle(), device, call->subscriptions(), share);
  }
  if (request.at_nodes()) {
    const auto share = [then = ShareAtNodes(request.session_id(), reply, call),
                        call](Result<std::unique_ptr<NodeTransfer>> transfer) {
      if (call->Claim()) then(std::move(transfer));
    };
    return engine_.BeginNodeDownload(request.session_id(), request.handle(), device, call->subscriptions(), share);
  }
  const auto share = [this, session = request.session_id(), writable = request.writable(), reply,
                      call](Result<std::unique_ptr<hir::service::Download>> download) {
    if (!call->Claim()) return;
    if (!download.ok()) return call->End(download.status());
    const hir::Status allowed = writable ? (*download)->AllowWrites(session) : hir::Status();
    if (!allowed.ok()) return call->End(allowed);
    (*download)->NoteReader(session);
    Describe((*download)->sent(), reply);
    engine_.metrics().downloaded_bytes.Add((*download)->total_bytes());
    call->End(AddShared(session, *std::move(download), reply, call));
  };
  engine_.BeginDownload(request.session_id(), request.handle(), device, call->subscriptions(), share);
}

void RuntimeService::DoRelease(const pb::ReleaseRequest& request, pb::ReleaseReply*, Call call) {
  const Result<std::unique_ptr<NodeTransfer>> over = shared_transfers_.Release(request.session_id(), request.token());
  if (over.ok() && *over != nullptr) {
    const NodeTransfer& transfer = **over;
    Metrics& metrics = engine_.metrics();
    if (!request.unreached().empty()) {
      metrics.unreached_nodes.Add();
      spdlog::warn("session={} reaches a node no longer: {} bytes go by the head error={}",
                   CallLog::SessionName(request.session_id()), transfer.total_bytes(),
                   base::Quoted(request.unreached().substr(0, kUnreachedShown)));
    } else if (!transfer.is_upload()) {
      metrics.downloaded_bytes.Add(transfer.total_bytes());
      metrics.downloaded_past_head_bytes.Add(transfer.total_bytes());
    }
  }
  call->ClaimAndEnd(over.status());
}

void RuntimeService::DoWait(const pb::WaitRequest& request, pb::WaitReply* reply, Call call) {
  const hir::Status few = CheckHandles(request.handles_size(), engine_);
  if (!few.ok()) return call->ClaimAndEnd(few);
  std::vector<Engine::Named> tensors;
  for (const std::string& handle : request.handles()) {
    Result<std::shared_ptr<Tensor>> tensor = engine_.Find(request.session_id(), handle);
    if (!tensor.ok()) return call->ClaimAndEnd(tensor.status());
    tensors.push_back({handle, *std::move(tensor)});
  }
  std::vector<std::shared_ptr<Tensor>> awaited;
  if (!request.poll()) {
    for (const Engine::Named& named : tensors) awaited.push_back(named.tensor);
  }
  auto answer = [call, reply, tensors = std::move(tensors)]() mutable {
    if (!call->Claim()) return;
    for (const Engine::Named& named : tensors) {
      hir::service::ToProto(named.handle, *named.tensor, reply->add_tensors());
    }
    tensors.clear();  // Before the client hears of it: what it frees then is free.
    call->End({});
  };
  engine_.WhenSettled(std::move(awaited), call->subscriptions(), std::move(answer));
}

hir::Result<TensorStore::Freed> RuntimeService::Free(const std::string& session, const Handles& handles,
                                                     bool those_there) {
  HIR_TRY(CheckHandles(handles.size(), engine_));
  const std::vector<std::string> named(handles.begin(), handles.end());
  return engine_.Free(session, named, those_there);
}

void RuntimeService::LetGo(TensorStore::Freed freed, std::function<void()> then) {
  const bool is_much = IsMuch(freed);
  const auto held = std::make_shared<TensorStore::Freed>(std::move(freed));
  const auto let_go = [then = std::move(then), held] {
    held->clear();
    then();
  };
  if (!is_much || !bulk_.Post(let_go)) let_go();
}

void RuntimeService::DoFree(const pb::FreeRequest& request, pb::FreeReply*, Call call) {
  if (const hir::Status few = CheckHandles(request.abandoned_size(), engine_); !few.ok()) return call->ClaimAndEnd(few);
  for (const std::string& key : request.abandoned())
    engine_.TakeBack(request.session_id(), keys_.Abandon(request.session_id(), key));
  // A client that hears of it finds the memory free.
  const auto end = [call] { call->ClaimAndEnd({}); };
  hir::Result<TensorStore::Freed> freed = Free(request.session_id(), request.handles(), false);
  if (!freed.ok()) return call->ClaimAndEnd(freed.status());
  LetGo(*std::move(freed), end);
}

void RuntimeService::EndWhenKept(const hir::Status& status, const Call& call) {
  if (!status.ok()) return call->ClaimAndEnd(status);
  engine_.WhenKept([call](const hir::Status& kept) { call->ClaimAndEnd(kept); });
}

void RuntimeService::DoPublish(const pb::PublishRequest& request, pb::PublishReply*, Call call) {
  const std::string& session = request.session_id();
  if (request.program_id().empty())
    return EndWhenKept(engine_.Publish(session, request.handle(), request.name(), request.everyone()), call);
  if (!request.handle().empty())
    return call->ClaimAndEnd(InvalidArgument("a name for a handle and a program_id: one of them has it"));
  EndWhenKept(engine_.PublishProgram(session, request.program_id(), request.name(), request.everyone()), call);
}

void RuntimeService::DoAttach(const pb::AttachRequest& request, pb::AttachReply* reply, Call call) {
  const auto answer = [this, call, reply, session = request.session_id()](Result<Engine::Attached> found) {
    if (!call->Claim()) {
      if (found.ok() && found->program == nullptr) (void)engine_.Free(session, std::span(&found->handle, 1));
      return;
    }
    if (found.ok() && found->program != nullptr) Describe(*found->program, reply->mutable_program());
    if (found.ok() && found->program == nullptr)
      Answer({found->handle, std::move(found->tensor)}, session, reply->mutable_tensor(), call);
    call->End(found.status());
  };
  engine_.Attach(request.session_id(), request.owner(), request.name(), call->subscriptions(), answer, call->id(),
                 ProgressOf(request.session_id()));
}

void RuntimeService::DoDrainNode(const pb::DrainNodeRequest& request, pb::DrainNodeReply* reply, Call call) {
  Result<std::string> node = engine_.SetDrained(request.node(), !request.back());
  if (node.ok()) reply->set_node(*std::move(node));
  EndWhenKept(node.status(), call);
}

void RuntimeService::DoWithdraw(const pb::WithdrawRequest& request, pb::WithdrawReply*, Call call) {
  EndWhenKept(engine_.Withdraw(request.session_id(), request.name()), call);
}

void RuntimeService::DoNames(const pb::NamesRequest& request, pb::NamesReply* reply, Call call) {
  if (!call->Claim()) return;
  hir::Status status;
  {
    const Result<std::vector<TensorStore::Named>> names = engine_.Names(request.session_id());
    status = names.status();
    for (const TensorStore::Named& each : names.ok() ? *names : std::vector<TensorStore::Named>()) {
      pb::NamedTensor& named = *reply->add_tensors();
      named.set_name(each.name);
      named.set_owner(each.owner);
      named.set_everyone(each.everyone);
      const TensorStore::Published& published = each.published;
      if (published.program != nullptr) {
        named.set_program_bytes(std::ssize(*published.program));
      } else {
        hir::service::ToProto("", *published.tensor, named.mutable_tensor());
      }
    }
  }
  call->End(status);
}

void RuntimeService::DoDisconnect(const pb::DisconnectRequest& request, pb::DisconnectReply*, Call call) {
  const hir::Status status = open_sessions_.Disconnect(request.session_id());
  if (status.ok()) Close(request.session_id());  // A client that hears of it finds the memory free.
  call->ClaimAndEnd(status);
}

void RuntimeService::DoEvents(const pb::EventsRequest&, pb::EventsReply* reply, Call call) {
  if (!call->Claim()) return;
  FillEvents(0, reply);
  call->End({});
}

void RuntimeService::DoStatus(const pb::StatusRequest&, pb::StatusReply* reply, Call call) {
  FillStatus(reply);
  call->ClaimAndEnd({});
}

// --- the faces -------------------------------------------------------------------------------------------------

CallRecord RuntimeService::Begin(std::string_view method, const grpc::CallbackServerContext& context) const {
  return log_.Begin(method, context, [&] {
    const Result<std::string> principal = PrincipalOf(context, listener_);
    return principal.ok() ? *principal : std::string();
  });
}

grpc::ServerWriteReactor<pb::SessionEvent>* RuntimeService::Connect(grpc::CallbackServerContext* context,
                                                                    const pb::ConnectRequest* request) {
  Result<std::string> principal = PrincipalOf(*context, listener_);
  return new SessionCall({engine_, bulk_, admission_, in_flight_, open_sessions_, shared_transfers_, keys_, log_},
                         *request, Begin("Connect", *context), std::move(principal));
}

grpc::ServerReadReactor<grpc::ByteBuffer>* RuntimeService::Upload(grpc::CallbackServerContext* context,
                                                                  grpc::ByteBuffer* answer) {
  return new UploadCall({engine_, bulk_, admission_, in_flight_, open_sessions_, shared_transfers_, keys_, log_},
                        *context, Begin("Upload", *context), answer);
}

grpc::ServerWriteReactor<pb::DownloadReply>* RuntimeService::Download(grpc::CallbackServerContext* context,
                                                                      const pb::DownloadRequest* request) {
  return DownloadCall::Make({engine_, bulk_, admission_, in_flight_, open_sessions_, shared_transfers_, keys_, log_},
                            *context, Begin("Download", *context), *request);
}

#define HIR_UNARY(Method, Request, Reply, thread)                                                               \
  grpc::ServerUnaryReactor* RuntimeService::Method(grpc::CallbackServerContext* context,                        \
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* answer) { \
    return Start(#Method, *context, request, answer, &RuntimeService::Do##Method, On::thread);                  \
  }
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY

}  // namespace hir::service
