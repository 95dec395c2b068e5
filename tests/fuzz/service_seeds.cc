#include "tests/fuzz/service_seeds.h"

#include <array>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "hostir/v1/service.pb.h"
#include "tests/fuzz/corpus.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;

constexpr const char* kNegate = "fusion @negate(%x: f32[i0]) {\n  %y = neg(%x)\n  return %y\n}\n";
constexpr const char* kColumnSums =
    "mesh @m = [0, 1]\nfusion @column_sums(%x: f32[i0, i1] {mesh=@m, shard(0, mesh_x)}) {\n"
    "  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}\n  return %y\n}\n";
constexpr const char* kInPlace =
    "mesh @m = [0, 1, 2, 3]\nfusion @step(%w: f32[8, 2] {mesh=@m, shard(0, mesh_x)}, %rate: f64) {\n"
    "  %n = mul(%w, %rate)\n  return %n alias %w, %w, %n\n}\n";

// A session: requests, in the order in which they are added.
class Session {
 public:
  Session() {
    pb::ConnectRequest connect;
    connect.set_client("fuzz");
    connect.set_progress(true);
    connect.set_lease_ms(100000);
    AddFrame(bytes_, kConnect, connect);
  }

  Session& Compile(const std::string& program, bool as_message = false) {
    pb::CompileRequest request;
    request.set_session_id("$s0");
    request.mutable_program()->set_text(program);
    if (as_message) {
      const auto graph = ir::Parse(program, fusion::kFusionOps);
      if (graph.ok()) ir::ToProto(**graph, *request.mutable_program()->mutable_program());
    }
    return Add(kCompile, request);
  }
  Session& Explain(const std::string& program, const std::vector<std::pair<std::string, int64_t>>& sizes) {
    pb::ExplainRequest request;
    request.set_session_id("$s0");
    request.mutable_program()->set_text(program);
    for (const auto& [symbol, size] : sizes) (*request.mutable_sizes())[symbol] = size;
    return Add(kExplain, request);
  }
  // A tensor of `shape`, in chunks of `chunk` bytes: for the program's input `index`, or whole.
  Session& Upload(const std::vector<int64_t>& shape, int64_t chunk, int index = -1, bool once = false) {
    pb::UploadRequest header;
    pb::UploadHeader& of = *header.mutable_header();
    of.set_session_id("$s0");
    of.set_dtype(pb::DTYPE_FLOAT32);
    int64_t bytes = 4;
    for (const int64_t extent : shape) {
      of.add_shape(extent);
      of.add_sent_once(once);
      if (!once) bytes *= extent;
    }
    if (index >= 0) {
      of.mutable_input()->set_program_id("$p0");
      of.mutable_input()->set_index(index);
    } else if (once) {
      pb::Sharding& sharding = *of.mutable_sharding();
      sharding.mutable_mesh()->add_shape(2);
      sharding.mutable_mesh()->add_devices(0);
      sharding.mutable_mesh()->add_devices(1);
      sharding.add_axis_of_dimension(0);
    }
    Add(kUpload, header);
    for (int64_t at = 0; at < bytes; at += chunk) {
      pb::UploadRequest part;
      part.set_chunk(std::string(static_cast<size_t>(std::min(chunk, bytes - at)), 'x'));
      Add(kUpload, part);
    }
    return *this;
  }
  Session& Run(const std::vector<std::string>& handles, int flags = 0, bool wait = true, int measured = 0) {
    pb::RunRequest request;
    request.set_session_id("$s0");
    request.set_program_id("$p0");
    for (const std::string& handle : handles) {
      if (handle == "number") {
        request.add_args()->set_float_value(0.5);
      } else {
        request.add_args()->set_handle(handle);
      }
    }
    request.set_wait(wait);
    request.set_profile(measured == 1);
    request.set_timeline(measured == 2);
    return Add(kRun, request, flags);
  }
  // Of the first session's runs, whose numbers go on from input to input.
  Session& Cancel(int64_t run, int flags = 0) {
    pb::CancelRequest request;
    request.set_session_id("$s0");
    request.set_run_id(run);
    request.set_request_key("cancel");
    return Add(kCancel, request, flags);
  }
  Session& RunUntil(const std::string& handle, int64_t deadline_ms) {
    pb::RunRequest request;
    request.set_session_id("$s0");
    request.set_program_id("$p0");
    request.add_args()->set_handle(handle);
    request.set_deadline_ms(deadline_ms);
    request.set_request_key("run");
    Add(kRun, request, kGoesOn);
    pb::FreeRequest abandon;
    abandon.set_session_id("$s0");
    abandon.add_abandoned("run");
    return Add(kFree, abandon);
  }
  Session& Download(const std::string& handle, int flags = 0, int64_t device = -1) {
    pb::DownloadRequest request;
    request.set_session_id("$s0");
    request.set_handle(handle);
    if (device >= 0) request.set_device(device);
    return Add(kDownload, request, flags);
  }
  Session& Look(const std::vector<std::string>& handles, bool poll = false) {
    pb::WaitRequest wait;
    wait.set_session_id("$s0");
    wait.set_poll(poll);
    for (const std::string& handle : handles) wait.add_handles(handle);
    Add(kWait, wait);
    pb::ShardsRequest shards;
    shards.set_session_id("$s0");
    shards.set_handle(handles.back());
    return Add(kShards, shards);
  }
  Session& Free(const std::vector<std::string>& handles) {
    pb::FreeRequest free;
    free.set_session_id("$s0");
    for (const std::string& handle : handles) free.add_handles(handle);
    return Add(kFree, free);
  }
  // What a client of the same host does in place of an upload and a download.
  Session& Share(const std::vector<int64_t>& shape) {
    pb::ReserveRequest reserve;
    pb::UploadHeader& of = *reserve.mutable_header();
    of.set_session_id("$s0");
    of.set_dtype(pb::DTYPE_FLOAT32);
    for (const int64_t extent : shape) of.add_shape(extent);
    Add(kReserve, reserve);
    pb::CommitRequest commit;
    commit.set_session_id("$s0");
    commit.set_token("$t0");
    commit.set_request_key("key");
    Add(kCommit, commit);
    pb::DownloadRequest share;
    share.set_session_id("$s0");
    share.set_handle("$h0");
    Add(kShare, share);
    pb::ReleaseRequest release;
    release.set_session_id("$s0");
    release.set_token("$t1");
    return Add(kRelease, release);
  }
  Session& Publish(const std::string& handle, const std::string& name) {
    pb::PublishRequest publish;
    publish.set_session_id("$s0");
    publish.set_handle(handle);
    publish.set_name(name);
    Add(kPublish, publish);
    pb::AttachRequest attach;
    attach.set_session_id("$s0");
    attach.set_name(name);
    attach.set_request_key("other key");
    Add(kAttach, attach);
    pb::NamesRequest names;
    names.set_session_id("$s0");
    return Add(kNames, names);
  }
  Session& PublishProgram(const std::string& name) {
    pb::PublishRequest publish;
    publish.set_session_id("$s0");
    publish.set_program_id("$p0");
    publish.set_name(name);
    publish.set_everyone(true);
    Add(kPublish, publish);
    pb::AttachRequest attach;
    attach.set_session_id("$s0");
    attach.set_name(name);
    return Add(kAttach, attach);
  }
  Session& Withdraw(const std::string& name) {
    pb::WithdrawRequest withdraw;
    withdraw.set_session_id("$s0");
    withdraw.set_name(name);
    return Add(kWithdraw, withdraw);
  }
  // The session's connection is lost, and its client comes back.
  Session& Resume() {
    Leave();
    pb::ConnectRequest connect;
    connect.set_session_id("$s0");
    connect.set_lease_ms(1000);
    return Add(kConnect, connect);
  }
  Session& Disconnect() {
    pb::DisconnectRequest request;
    request.set_session_id("$s0");
    return Add(kDisconnect, request);
  }
  Session& Status() { return Add(kStatus, pb::StatusRequest()); }
  Session& Leave() { return Add(kLeave, pb::StatusRequest()); }
  Session& Fault(Code code) {
    pb::Error error;
    error.set_code(static_cast<int>(code));
    error.set_message("a fault");
    return Add(kFault, error);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Session& Add(int kind, const google::protobuf::Message& message, int flags = 0) {
    AddFrame(bytes_, kind, message, flags);
    return *this;
  }
  std::string bytes_;
};

}  // namespace

Kinds SessionKinds() {
  static const std::array<const google::protobuf::Message*, kFault + 1> kinds = {
      &pb::ConnectRequest::default_instance(), &pb::UploadRequest::default_instance(),
      &pb::DownloadRequest::default_instance(),
#define HIR_UNARY(Method, Request, Reply, thread) &pb::Request::default_instance(),
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY
      &pb::StatusRequest::default_instance(), &pb::Error::default_instance()};
  return kinds;
}

Kinds RequestKinds() { return SessionKinds().first(kLeave); }

std::vector<std::string> ServiceSeeds() {
  std::vector<std::string> seeds;
  const auto add = [&](const Session& session) { seeds.push_back(session.bytes()); };
  add(Session().Status());
  add(Session().Compile(kNegate).Upload({3}, 12).Run({"$h0"}).Download("$h1").Free({"$h0", "$h1"}).Status());
  add(Session()
          .Compile(kNegate, true)
          .Upload({5}, 8, 0)
          .Run({"$h0"}, kGoesOn, false)
          .Download("$h1")
          .Look({"$h0", "$h1"}));
  add(Session().Compile(kColumnSums).Upload({4, 3}, 20, 0).Run({"$h0"}, 0, true, 1).Download("$h1", 0, 1).Leave());
  add(Session()
          .Compile(kColumnSums)
          .Upload({1, 3}, 20, 0)
          .Run({"$h0"}, 0, true, 2)
          .Download("$h1", kGoes)
          .Look({"$h1"}));
  add(Session().Compile(kInPlace).Upload({8, 2}, 64, 0).Run({"$h0", "number"}).Run({"$h1", "number"}).Download("$h4"));
  add(Session().Explain(kColumnSums, {{"i0", 4}, {"i1", 3}}).Explain(kNegate, {}).Explain(kNegate, {{"i0", 1 << 20}}));
  add(Session().Upload({2, 4}, 16, -1, true).Download("$h0").Look({"$h0"}, true).Free({"$h0"}).Download("$h0"));
  add(Session().Compile(kNegate).Upload({3}, 12).Fault(Code::kUnavailable).Run({"$h0"}).Download("$h1").Run({"$h0"}));
  add(Session()
          .Compile(kNegate)
          .Upload({3}, 12)
          .Fault(Code::kResourceExhausted)
          .Run({"$h0"}, kGoesOn, false)
          .Look({"$h1"}));
  add(Session().Compile(kNegate, false).Upload({0}, 12).Run({"$h0"}, kGoes).Leave().Run({"$h0"}));
  add(Session().Share({2, 3}).Resume().Look({"$h0"}).Disconnect().Status());
  add(Session().Upload({3}, 12).Publish("$h0", "weights").Free({"$h0"}).Resume().Withdraw("weights").Disconnect());
  add(Session().Upload({3}, 12).Publish("$h0", "w/2").Leave());
  add(Session().Compile(kNegate).Upload({3}, 12).Run({"$h0"}, kGoesOn, false).Cancel(1).Cancel(1 << 20).Cancel(-1));
  add(Session().Compile(kNegate).Upload({3}, 12).RunUntil("$h0", 1).RunUntil("$h0", 1000).RunUntil("$h0", -1));
  add(Session().Compile(kNegate).PublishProgram("negate").Upload({3}, 12).Run({"$h0"}).Withdraw("negate"));
  add(Session().Compile(kNegate).PublishProgram("w").Upload({3}, 12).Publish("$h0", "w").PublishProgram("w").Leave());
  for (const char* name : {"data_parallel_sgd", "rope", "pipeline_stages"}) {
    for (const std::string& program : Corpus("tests/corpus")) {
      if (program.find(std::string("fusion @") + name + "(") != std::string::npos)
        add(Session().Compile(program, true).Explain(program, {{"i0", 8}}));
    }
  }
  return seeds;
}

std::vector<std::string_view> ServiceWords() {
  return {"$s0", "$s1", "$h0", "$h1",     "$h2", "$h3", "$p0", "$p1",
          "$t0", "$t1", "key", "weights", "i0",  "i1",  "",    "none"};
}

}  // namespace hir::fuzz
