// What a request costs: a run of an empty program on every rank of a daemon, beside a bare gRPC
// call (the health check) on the same socket, alternating. Prints JSON measurements for bench.py.
// `round_trip ADDRESS PAIRS [all_reduce]`: with it, of a program that has a row on each rank, and adds them up.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "benchmarks/measurement.h"
#include "hostir/v1/service.grpc.pb.h"

namespace {

namespace v1 = hostir::v1;
using Clock = std::chrono::steady_clock;

// One input, which is the output: nothing to compute, on every device of the mesh.
std::string EmptyProgram(int64_t num_devices) {
  std::string devices;
  for (int64_t i = 0; i < num_devices; ++i) devices += (i == 0 ? "" : ", ") + std::to_string(i);
  return "mesh @m = [" + devices + "]\nfusion @empty(%x: f32[4] {mesh=@m}) {\n  return %x\n}\n";
}

void Check(const grpc::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.error_message().c_str());
  std::exit(1);
}

// A row of four on every device; every device gets the sum of them.
std::string AllReduce(int64_t num_devices) {
  std::string program = EmptyProgram(num_devices);
  program.resize(program.find('\n') + 1);
  return program + "fusion @all_reduce(%x: f32[i0, 4] {mesh=@m, shard(0, mesh_x)}) {\n" +
         "  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}\n  return %y\n}\n";
}

class Session {
 public:
  Session(const std::shared_ptr<grpc::Channel>& channel, bool all_reduce)
      : stub_(v1::Runtime::NewStub(channel)), generic_(channel) {
    events_ = stub_->Connect(&connect_, {});
    v1::SessionEvent hello;
    if (!events_->Read(&hello)) Check(events_->Finish(), "connect");
    run_.set_session_id(hello.session_id());
    v1::CompileRequest compile;
    compile.set_session_id(hello.session_id());
    const int64_t rows = all_reduce ? hello.num_devices() : 1;
    compile.mutable_program()->set_text(all_reduce ? AllReduce(rows) : EmptyProgram(hello.num_devices()));
    v1::CompileReply program;
    grpc::ClientContext compile_context, upload_context;
    Check(stub_->Compile(&compile_context, compile, &program), "compile");
    v1::UploadReply uploaded;
    auto writer = stub_->Upload(&upload_context, &uploaded);
    v1::UploadRequest header, chunk;
    header.mutable_header()->set_session_id(hello.session_id());
    header.mutable_header()->set_dtype(v1::DTYPE_FLOAT32);
    if (all_reduce) header.mutable_header()->add_shape(rows);
    header.mutable_header()->add_shape(4);
    header.mutable_header()->mutable_input()->set_program_id(program.program_id());
    chunk.set_chunk(std::string(static_cast<size_t>(16 * rows), '\1'));
    writer->Write(header);
    writer->Write(chunk);
    writer->WritesDone();
    Check(writer->Finish(), "upload");
    run_.set_program_id(program.program_id());
    run_.add_args()->set_handle(uploaded.tensor().handle());
    run_.set_wait(true);
  }

  // One run and one bare call; each returns its microseconds.
  double Run() {
    const auto started = Clock::now();
    grpc::ClientContext context;
    v1::RunReply reply;
    Check(stub_->Run(&context, run_, &reply), "run");
    const double micros = Since(started);
    v1::FreeRequest free;
    free.set_session_id(run_.session_id());
    for (const v1::Tensor& tensor : reply.outputs()) free.add_handles(tensor.handle());
    v1::FreeReply freed;
    grpc::ClientContext free_context;
    Check(stub_->Free(&free_context, free, &freed), "free");
    return micros;
  }

  double Echo() {
    const auto started = Clock::now();
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer reply;
    grpc::Status status;
    const grpc::ByteBuffer request(nullptr, 0);
    auto call = generic_.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    Check(status, "health check");
    return Since(started);
  }

 private:
  static double Since(Clock::time_point started) {
    return std::chrono::duration<double, std::micro>(Clock::now() - started).count();
  }

  std::unique_ptr<v1::Runtime::Stub> stub_;
  grpc::GenericStub generic_;
  grpc::ClientContext connect_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> events_;
  v1::RunRequest run_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s ADDRESS PAIRS\n", argv[0]);
    return 2;
  }
  const bool all_reduce = argc > 3;
  Session session(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()), all_reduce);
  constexpr int kWarmUps = 20;
  constexpr int kCallsEach = 50;  // A pair is the median of these on either side.
  std::vector<double> runs, echoes, mean_runs, mean_echoes;
  const auto sample = [](auto&& call, std::vector<double>& medians, std::vector<double>& means) {
    std::vector<double> micros;
    for (int i = 0; i < kCallsEach; ++i) micros.push_back(call());
    std::sort(micros.begin(), micros.end());
    medians.push_back(micros[micros.size() / 2]);
    means.push_back(std::accumulate(micros.begin(), micros.end(), 0.0) / kCallsEach);
  };
  for (int i = 0; i < kWarmUps; ++i) {
    session.Run();
    session.Echo();
  }
  for (int pair = 0; pair < std::atoi(argv[2]); ++pair) {
    sample([&] { return session.Run(); }, runs, mean_runs);
    sample([&] { return session.Echo(); }, echoes, mean_echoes);
  }
  hir::bench::PrintJson(
      {{.name = all_reduce ? "run of an all-reduce of 16 bytes, 4 ranks" : "run of an empty program, 4 ranks",
        .unit = "us",
        .ours = runs,
        .theirs = echoes,
        .peer = "gRPC health check"},
       {.name = "the same, means in place of medians",
        .unit = "us",
        .ours = mean_runs,
        .theirs = mean_echoes,
        .peer = "gRPC health check"}});
  std::fflush(stdout);
  std::_Exit(0);  // The session's stream ends with the process.
}
