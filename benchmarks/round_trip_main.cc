// What a request costs: a run of an empty program on every rank of a daemon, beside a bare gRPC
// call (the health check) on the same socket, alternating. Prints JSON measurements for bench.py.
// `round_trip ADDRESS PAIRS`.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

class Session {
 public:
  explicit Session(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::Runtime::NewStub(channel)), generic_(channel) {
    events_ = stub_->Connect(&connect_, {});
    v1::SessionEvent hello;
    if (!events_->Read(&hello)) Check(events_->Finish(), "connect");
    run_.set_session_id(hello.session_id());
    v1::CompileRequest compile;
    compile.set_session_id(hello.session_id());
    compile.mutable_program()->set_text(EmptyProgram(hello.num_devices()));
    v1::CompileReply program;
    grpc::ClientContext compile_context, upload_context;
    Check(stub_->Compile(&compile_context, compile, &program), "compile");
    v1::UploadReply uploaded;
    auto writer = stub_->Upload(&upload_context, &uploaded);
    v1::UploadRequest header, chunk;
    header.mutable_header()->set_session_id(hello.session_id());
    header.mutable_header()->set_dtype(v1::DTYPE_FLOAT32);
    header.mutable_header()->add_shape(4);
    header.mutable_header()->mutable_input()->set_program_id(program.program_id());
    chunk.set_chunk(std::string(16, '\1'));
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
  Session session(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  constexpr int kWarmUps = 20;
  constexpr int kCallsEach = 50;  // A pair is the median of these on either side.
  std::vector<double> runs, echoes;
  const auto median = [](auto&& call) {
    std::vector<double> micros;
    for (int i = 0; i < kCallsEach; ++i) micros.push_back(call());
    std::sort(micros.begin(), micros.end());
    return micros[micros.size() / 2];
  };
  for (int i = 0; i < kWarmUps; ++i) {
    session.Run();
    session.Echo();
  }
  for (int pair = 0; pair < std::atoi(argv[2]); ++pair) {
    runs.push_back(median([&] { return session.Run(); }));
    echoes.push_back(median([&] { return session.Echo(); }));
  }
  hir::bench::PrintJson({{.name = "run of an empty program, 4 ranks",
                          .unit = "us",
                          .ours = runs,
                          .theirs = echoes,
                          .peer = "gRPC health check"}});
  std::fflush(stdout);
  std::_Exit(0);  // The session's stream ends with the process.
}
