// A real hostird on a socket of its own, for tests, and a client that says what it got.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hostir/v1/service.grpc.pb.h"

namespace hir::service {

namespace pb = ::hostir::v1;

// Aborts the test program when the daemon does not start. Destruction kills it, if it still runs, with its workers.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> flags = {"--devices=cpu:2"});
  ~Daemon();

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  // "code message" of how a daemon with these flags ends when it does not become ready; "ready" when it does.
  static std::string FailureOf(std::vector<std::string> flags);

  void Signal(int signal);
  // The exit code, or 128 + the signal; waits for it, at most 30 s.
  int Wait();
  // The worker program beside it.
  static std::string WorkerPath();
  // Closes the descriptor of --alive-fd.
  void LetGo();
  std::string Log() const;

  int64_t NumFds() const;
  // Kilobytes of the daemon's own memory: not what is mapped shared.
  int64_t PrivateKiB() const;

 private:
  explicit Daemon(std::nullptr_t) {}  // Not spawned.
  void Spawn(const std::vector<std::string>& flags);
  std::string directory_, address_;
  pid_t pid_ = 0;
  int alive_fd_ = -1;
  int ready_fd_ = -1;
  int status_ = -1;  // Of waitpid.
};

// One session. Every call has a deadline of 30 s.
class Client {
 public:
  explicit Client(const Daemon& daemon) : Client(daemon.address()) {}
  explicit Client(const std::string& address);
  ~Client();

  pb::Runtime::Stub& stub() { return *stub_; }
  const std::string& session() const { return event_.session_id(); }
  const pb::SessionEvent& event() const { return event_; }
  std::unique_ptr<grpc::ClientContext> Context(int64_t seconds = 30) const;

  struct Put {
    grpc::Status status;
    pb::Tensor tensor;
  };
  // Sends `bytes` in chunks of `chunk_bytes`.
  Put Upload(pb::UploadHeader header, const std::string& bytes, size_t chunk_bytes = 1 << 16);
  struct Got {
    grpc::Status status;
    pb::DownloadHeader header;
    std::string bytes;
  };
  Got Download(const std::string& handle, std::optional<int64_t> device = std::nullopt);

  // How the session ended; waits for it.
  grpc::Status End();

  pb::StatusReply Status();
  // Asks for the status until `done` says so; false after 30 s.
  bool WaitUntil(const std::function<bool(const pb::StatusReply&)>& done);
  // The planner's, once it runs: 0 would be every process of the test's group.
  pid_t Planner();
  grpc::Status Free(const std::vector<std::string>& handles);

  struct Compiled {
    grpc::Status status;
    pb::CompileReply reply;
  };
  Compiled Compile(const std::string& text);
  struct Ran {
    grpc::Status status;
    pb::RunReply reply;
  };
  // `freed` first.
  Ran Run(const std::string& program_id, const std::vector<std::string>& handles, bool wait = true,
          const std::vector<std::string>& freed = {});

 private:
  std::unique_ptr<pb::Runtime::Stub> stub_;
  grpc::ClientContext connect_context_;
  std::unique_ptr<grpc::ClientReader<pb::SessionEvent>> events_;
  bool ended_ = false;
  pb::SessionEvent event_;
};

// Has `client` compile `program`, and sends `signal` to the planner once it has begun with that: the answer. `program`
// is SlowProgram's.
grpc::Status KillPlannerUnder(const Daemon& daemon, Client& client, const std::string& program, int signal);
// Returns once the planner of `daemon` has been given a program, or has begun with it.
void WaitForPlanning(const Daemon& daemon, Client& client, int64_t planner);
void WaitForPlanBegun(const Daemon& daemon, Client& client, int64_t planner);

// "INVALID_ARGUMENT: message", or "OK".
std::string Text(const grpc::Status& status);

// A header for a tensor on a mesh of `mesh_shape` whose devices count up; `axes` as
// Sharding.axis_of_dimension. An empty
// mesh_shape: no sharding.
pb::UploadHeader Header(pb::DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& mesh_shape = {},
                        const std::vector<int64_t>& axes = {});

}  // namespace hir::service
