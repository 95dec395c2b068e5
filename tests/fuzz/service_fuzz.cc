// Fuzz target: sessions of a client, every request of service.proto, against the daemon's engine and its handling of
// requests, without a network: gRPC's side is wire.h, the ranks are instant_ranks.h, the planner is a process beside
// (planner_main.cc). Every call is answered once, and when the clients have gone the daemon holds nothing of them.
#include <grpcpp/support/proto_buffer_reader.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/text.h"
#include "service/rpc/listener.h"
#include "service/rpc/runtime_service.h"
#include "service/supervise/child_error.h"
#include "tests/fuzz/instant_ranks.h"
#include "tests/fuzz/service_seeds.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/wire.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using std::chrono::seconds;

constexpr int64_t kDevices = 4;
constexpr base::Nanos kAnswerTimeout = seconds(20);  // Slower machines under sanitizers plan a large program in it.

// Shared by all inputs: making it takes threads and a process.
class Daemon {
 public:
  static Daemon& The() {
    static Daemon* const the = new Daemon();  // Never ended: processes and threads go with this one.
    return *the;
  }
  service::Engine& engine() { return *engine_; }
  service::Methods& service() { return *service_; }
  base::WorkPool& bulk() { return service_->bulk(); }
  InstantRanks& ranks() { return *ranks_; }

 private:
  Daemon() {
    spdlog::set_level(spdlog::level::off);
    service::EngineOptions options;
    options.worker_path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fuzz_planner";
    for (int64_t i = 0; i < kDevices; ++i) options.devices.used.emplace_back();
    options.make_ranks = [this] {
      auto ranks = std::make_unique<InstantRanks>(kDevices);
      ranks_ = ranks.get();
      return ranks;
    };
    options.limits.tensor_bytes_max = int64_t{64} << 20;
    options.limits.recycled_bytes_max = int64_t{1} << 20;
    options.limits.requests_bytes_max = int64_t{16} << 20;
    options.limits.program_bytes_max = int64_t{1} << 16;
    options.limits.programs_max = 16;
    options.limits.program_plans_max = 2;
    options.limits.principal_bytes_max = int64_t{48} << 20;
    options.limits.tensors_max = 32;
    options.limits.principal_tensors_max = 28;
    options.limits.sessions_max = 6;
    options.limits.principal_sessions_max = 4;
    options.limits.session_lease_ms_max = 100000;  // None runs out while an input is played.
    options.limits.transfer_idle_ms = 1000;
    options.limits.queued_plans_max = 4;
    options.limits.queued_runs_max = 4;
    options.limits.request_handles_max = 8;
    options.limits.plan_timeout_ms = 5000;
    options.limits.chunk_bytes_max = 1 << 12;
    options.limits.rpc_threads = 1;
    engine_ = std::make_unique<service::Engine>(options);
    if (const Status started = engine_->Start(); !started.ok()) Found(started.ToString());
    auto listener = service::Listener::Open(*service::ParseAddress(base::Cat("unix:/tmp/hostir-fuzz-", getpid())), {});
    if (!listener.ok()) Found(listener.status().ToString());
    listener_ = *std::move(listener);
    (void)std::filesystem::remove(base::Cat("/tmp/hostir-fuzz-", getpid()));
    service_ = std::make_unique<service::RuntimeService>(*engine_, *listener_, nullptr);
  }

  InstantRanks* ranks_ = nullptr;  // The engine's.
  std::unique_ptr<service::Engine> engine_;
  std::unique_ptr<service::Listener> listener_;
  std::unique_ptr<service::RuntimeService> service_;
};

grpc::ByteBuffer Serialised(const Message& message) {
  const grpc::Slice slice(message.SerializePartialAsString());
  return {&slice, 1};
}

// One input.
class Play {
 public:
  void Run(std::vector<Frame> frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      Message& message = *frames[i].message;
      switch (frames[i].kind) {
        case kConnect: Connect(static_cast<pb::ConnectRequest&>(message)); break;
        case kUpload: i = Upload(frames, i); break;
        case kDownload: Download(frames[i]); break;
        case kLeave: Leave(); break;
        case kFault: {
          const auto& error = static_cast<const pb::Error&>(message);
          daemon_.ranks().FailNext(service::FromError(error));
          break;
        }
        default: Unary(frames[i]);
      }
    }
    Finish();
  }

 private:
  void Connect(const pb::ConnectRequest& request) {
    auto call = std::make_unique<WireStream<pb::SessionEvent>>(wire_, "Connect");
    call->heard = [this](const pb::SessionEvent& event) {
      if (!event.session_id().empty()) sessions_.push_back(event.session_id());
    };
    connects_.push_back(std::make_unique<pb::ConnectRequest>(request));
    call->Begin(daemon_.service().Connect(&call->context, connects_.back().get()));
    const size_t before = sessions_.size();
    Await([&, at = call.get()] { return sessions_.size() > before || at->over(); }, call->what());
    streams_.push_back(std::move(call));
  }

  void Leave() {
    if (streams_.empty()) return;
    EndTransfers();
    streams_.front()->Leave();
    Await([&] { return streams_.front()->over(); }, "the end of a session");
    streams_.erase(streams_.begin());
    Flush();
  }

  // A session that ends has gRPC cancel its transfers, which here have none: they end before.
  void EndTransfers() {
    for (const auto& call : transfers_) Await([&] { return call->over(); }, call->what());
  }
  // Each of the service's two threads has done its work, the end of a session too: a transfer that names a session
  // which is just ending would be cancelled by gRPC.
  void Flush() {
    pb::StatusReply reply;
    for (int i = 0; i < 2; ++i) (void)Ask(kStatus, pb::StatusRequest(), reply);
    std::latch done(1);
    if (daemon_.bulk().Post([&] { done.count_down(); })) done.wait();
  }

  // Consecutive requests are one upload.
  size_t Upload(std::vector<Frame>& frames, size_t first) {
    auto call = std::make_unique<WireUpload>(wire_, "Upload");
    size_t last = first;
    for (size_t i = first; i < frames.size() && frames[i].kind == kUpload; ++i) {
      const auto& request = static_cast<const pb::UploadRequest&>(*frames[i].message);
      if (i > first && request.has_header()) break;
      Resolve(*frames[i].message);
      call->requests.push_back(Serialised(*frames[i].message));
      last = i;
    }
    call->Begin(daemon_.service().Upload(&call->context, &call->answer));
    if ((frames[first].flags & kGoes) != 0) call->Leave();
    Await([at = call.get()] { return at->over(); }, call->what());
    pb::UploadReply reply;
    if (call->outcome().status.ok() && Parsed(call->answer, reply)) handles_.push_back(reply.tensor().handle());
    return last;
  }

  void Download(Frame& frame) {
    Resolve(*frame.message);
    auto call = std::make_unique<WireStream<pb::DownloadReply>>(wire_, "Download");
    struct Got {
      int64_t total = -1, bytes = 0;
    };
    const auto got = std::make_shared<Got>();
    call->heard = [got](const pb::DownloadReply& reply) {
      if (reply.has_header() != (got->total < 0)) Found("a download has one header, first");
      if (reply.has_header()) got->total = reply.header().total_bytes();
      got->bytes += std::ssize(reply.chunk());
    };
    downloads_.push_back(std::make_unique<pb::DownloadRequest>(static_cast<pb::DownloadRequest&>(*frame.message)));
    call->Begin(daemon_.service().Download(&call->context, downloads_.back().get()));
    if ((frame.flags & kGoes) != 0) call->Leave();
    if ((frame.flags & kGoesOn) == 0) {
      Await([at = call.get()] { return at->over(); }, call->what());
      if (call->outcome().status.ok() && (frame.flags & kGoes) == 0 && got->bytes != got->total)
        Found(base::Cat("a download of ", got->total, " bytes had ", got->bytes));
    }
    transfers_.push_back(std::move(call));
  }

  void Unary(Frame& frame) {
    Resolve(*frame.message);
    if (frame.kind == kDisconnect) {
      EndTransfers();
      frame.flags = 0;
    }
    auto call = std::make_unique<WireUnary>(wire_, frame.message->GetDescriptor()->name());
    call->request = Serialised(*frame.message);
    call->Begin(Start(frame.kind, *call));
    if ((frame.flags & kGoes) != 0) call->Leave();
    if ((frame.flags & (kGoesOn | kGoes)) == 0) {
      Await([at = call.get()] { return at->over(); }, call->what());
      Learn(frame.kind, *call);
    }
    if (frame.kind == kDisconnect) Flush();
    calls_.push_back(std::move(call));
  }

  grpc::ServerUnaryReactor* Start(int kind, WireUnary& call) {
    service::Methods& service = daemon_.service();
    switch (kind) {
#define HIR_UNARY(Method, Request, Reply, thread) \
  case k##Method:                                 \
    return service.Method(&call.context, &call.request, &call.answer);
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY
    }
    Found("a kind of request that is none");
  }

  // The ids that an answer has are there for what follows.
  void Learn(int kind, WireUnary& call) {
    if (!call.outcome().status.ok()) return;
    pb::CompileReply compiled;
    pb::ExplainReply explained;
    pb::RunReply run;
    pb::UploadReply committed;
    pb::AttachReply attached;
    pb::SharedMemoryReply shared;
    if (kind == kCompile && Parsed(call.answer, compiled)) programs_.push_back(compiled.program_id());
    if (kind == kExplain && Parsed(call.answer, explained)) programs_.push_back(explained.program_id());
    if (kind == kCommit && Parsed(call.answer, committed)) handles_.push_back(committed.tensor().handle());
    if (kind == kAttach && Parsed(call.answer, attached)) {
      if (attached.has_program()) {
        programs_.push_back(attached.program().program_id());
      } else {
        handles_.push_back(attached.tensor().handle());
      }
    }
    if ((kind == kReserve || kind == kShare) && Parsed(call.answer, shared)) tokens_.push_back(shared.token());
    if (kind == kRun && Parsed(call.answer, run)) {
      for (const pb::Tensor& output : run.outputs()) handles_.push_back(output.handle());
    }
  }

  static bool Parsed(grpc::ByteBuffer& bytes, Message& message) {
    grpc::ProtoBufferReader reader(&bytes);
    if (!message.ParseFromZeroCopyStream(&reader)) Found("an answer that is none");
    return true;
  }

  // Ids in the place of "$h1" and the like, wherever a text is.
  void Resolve(Message& message) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
      for (int i = 0; i < size; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->name() != "program") {
          Resolve(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                       : *reflection.MutableMessage(&message, field));
        } else if (field->type() == FieldDescriptor::TYPE_STRING) {
          const std::string text = field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                        : reflection.GetString(message, field);
          if (!text.starts_with('$')) continue;
          field->is_repeated() ? reflection.SetRepeatedString(&message, field, i, IdOf(text))
                               : reflection.SetString(&message, field, IdOf(text));
        }
      }
    }
  }
  std::string IdOf(const std::string& text) const {
    const std::string_view which = std::string_view(text).substr(1, 1);
    const auto& ids = which == "s" ? sessions_ : which == "h" ? handles_ : which == "t" ? tokens_ : programs_;
    size_t number = 0;
    std::from_chars(text.data() + std::min<size_t>(2, text.size()), text.data() + text.size(), number);
    return ids.empty() ? text : ids[number % ids.size()];
  }

  template <typename Done>
  void Await(Done done, std::string_view what) {
    if (!wire_.RunUntil(done, kAnswerTimeout)) Found(base::Cat(what, " is not answered"));
  }

  // All answers come, the clients go, and nothing is left.
  void Finish() {
    for (const auto& call : calls_) Await([&] { return call->over(); }, call->what());
    EndTransfers();
    EndSessions();
    if (daemon_.engine().report().tensors > 0 || daemon_.engine().report().tensor_bytes > 0) WithdrawAll();
    const base::Nanos deadline = base::Clock::Steady().Now() + kAnswerTimeout;
    for (;;) {
      const service::Engine::Report report = daemon_.engine().report();
      if (report.tensors == 0 && report.tensor_bytes == 0 && report.sessions == 0 && report.queued_plans == 0 &&
          report.queued_runs == 0 && report.runs == report.runs_over)
        break;
      if (base::Clock::Steady().Now() > deadline) {
        Found(base::Cat("left behind: ", report.tensors, " tensors of ", report.tensor_bytes, " bytes, ",
                        report.sessions, " sessions, ", report.queued_plans, " plans, ", report.queued_runs, " of ",
                        report.runs, " runs"));
      }
      std::this_thread::yield();
    }
    CheckUnderWay();
  }

  // Those with a lease outlive their streams.
  void EndSessions() {
    while (!streams_.empty()) Leave();
    for (const std::string& session : sessions_) {
      pb::DisconnectRequest request;
      request.set_session_id(session);
      pb::DisconnectReply reply;
      (void)Ask(kDisconnect, request, reply);  // It may have ended.
    }
    sessions_.clear();
  }

  // Names outlive sessions.
  void WithdrawAll() {
    Connect({});
    if (sessions_.empty()) return;  // Those of before have not all ended.
    pb::NamesRequest names;
    names.set_session_id(sessions_[0]);
    pb::NamesReply named;
    if (!Ask(kNames, names, named).ok()) Found("a session cannot ask for names");
    for (const pb::NamedTensor& tensor : named.tensors()) {
      pb::WithdrawRequest withdraw;
      withdraw.set_session_id(sessions_[0]);
      withdraw.set_name(tensor.name());
      pb::WithdrawReply reply;
      if (!Ask(kWithdraw, withdraw, reply).ok()) Found("a name cannot be withdrawn");
    }
    named.Clear();
    EndSessions();
  }

  // A call that is answered at once.
  grpc::Status Ask(int kind, const Message& request, Message& reply) {
    WireUnary call(wire_, request.GetDescriptor()->name());
    call.request = Serialised(request);
    call.Begin(Start(kind, call));
    Await([&] { return call.over(); }, call.what());
    if (call.outcome().status.ok()) Parsed(call.answer, reply);
    return call.outcome().status;
  }

  void CheckUnderWay() {
    pb::StatusReply reply;
    const grpc::Status status = Ask(kStatus, pb::StatusRequest(), reply);
    if (!status.ok()) Found(status.error_message());
    if (reply.requests_under_way() != 1) Found(base::Cat(reply.requests_under_way() - 1, " requests are left"));
  }

  Daemon& daemon_ = Daemon::The();
  Wire wire_;
  std::vector<std::string> sessions_, handles_, programs_, tokens_;
  std::vector<std::unique_ptr<pb::ConnectRequest>> connects_;
  std::vector<std::unique_ptr<pb::DownloadRequest>> downloads_;
  std::vector<std::unique_ptr<WireStream<pb::SessionEvent>>> streams_;
  std::vector<std::unique_ptr<WireStream<pb::DownloadReply>>> transfers_;
  std::vector<std::unique_ptr<WireUnary>> calls_;
};

}  // namespace

std::vector<std::string> Seeds() { return ServiceSeeds(); }

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  const std::string& donor = seeds[static_cast<size_t>(prng.Below(std::ssize(seeds)))];
  return MutatedFrames(prng, input, donor, SessionKinds(), ServiceWords());
}

void RunOne(std::string_view input) { Play().Run(FramesOf(input, SessionKinds())); }

}  // namespace hir::fuzz
