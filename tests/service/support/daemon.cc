#include "tests/service/support/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <utility>

#include "csrc/base/check.h"

extern char** environ;

namespace hir::service {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kReadyMs = 30000;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WaitForLog(const Daemon& daemon, Client& client, const std::string& line) {
  HIR_CHECK(client.WaitUntil([&](const pb::StatusReply&) { return daemon.Log().find(line) != std::string::npos; }));
}

}  // namespace

// HIR_DAEMON: the path of the program, given by the build.
void Daemon::Spawn(const std::vector<std::string>& flags) {
  std::string directory = (fs::temp_directory_path() / "hostir-test-XXXXXX").string();
  HIR_CHECK(mkdtemp(directory.data()) != nullptr);
  directory_ = directory;
  std::array<int, 2> alive = {}, ready = {};
  HIR_CHECK(pipe2(alive.data(), O_CLOEXEC) == 0 && pipe2(ready.data(), O_CLOEXEC) == 0);
  std::vector<std::string> args = {HIR_DAEMON, "--ready-fd=5", "--alive-fd=6", "--log-level=debug"};
  const auto listens = [](const std::string& flag) { return flag.starts_with("--listen="); };
  if (std::none_of(flags.begin(), flags.end(), listens)) args.push_back("--listen=unix:" + directory_ + "/socket");
  args.insert(args.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const std::string log = directory_ + "/log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // Through numbers that neither can have.
  posix_spawn_file_actions_adddup2(&actions, ready[1], 105);
  posix_spawn_file_actions_adddup2(&actions, alive[0], 106);
  posix_spawn_file_actions_adddup2(&actions, 105, 5);
  posix_spawn_file_actions_adddup2(&actions, 106, 6);
  posix_spawn_file_actions_addclosefrom_np(&actions, 7);
  HIR_CHECK(posix_spawn(&pid_, HIR_DAEMON, &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(alive[0]);
  close(ready[1]);
  alive_fd_ = alive[1];
  ready_fd_ = ready[0];
}

Daemon::Daemon(std::vector<std::string> flags) {
  Spawn(flags);
  pollfd fd = {ready_fd_, POLLIN, 0};
  std::array<char, 256> line = {};
  const bool ready = poll(&fd, 1, kReadyMs) == 1 && read(ready_fd_, line.data(), line.size() - 1) > 0;
  if (!ready) {
    std::fprintf(stderr, "hostird is not ready:\n%s\n", Log().c_str());
    std::abort();
  }
  address_ = line.data();
  address_.pop_back();  // The newline.
}

std::string Daemon::WorkerPath() { return (fs::path(HIR_DAEMON).parent_path() / "hostir-worker").string(); }

std::string Daemon::FailureOf(std::vector<std::string> flags) {
  Daemon daemon(nullptr);
  daemon.Spawn(flags);
  const int code = daemon.Wait();
  return std::to_string(code) + " " + daemon.Log();
}

Daemon::~Daemon() {
  if (status_ < 0) {
    Signal(SIGKILL);
    Wait();
  }
  LetGo();
  close(ready_fd_);
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void Daemon::Signal(int signal) { kill(pid_, signal); }

int Daemon::Wait() {
  if (status_ < 0) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(30);
    while (waitpid(pid_, &status_, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr, "hostird does not end:\n%s\n", Log().c_str());
        std::abort();
      }
      poll(nullptr, 0, 1);
    }
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

void Daemon::LetGo() {
  if (alive_fd_ >= 0) close(std::exchange(alive_fd_, -1));
}

std::string Daemon::Log() const { return ReadAll(directory_ + "/log"); }

int64_t Daemon::NumFds() const {
  return std::distance(fs::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"), fs::directory_iterator());
}

int64_t Daemon::PrivateKiB() const {
  std::istringstream lines(ReadAll("/proc/" + std::to_string(pid_) + "/status"));
  std::string word;
  int64_t kib = 0;
  while (lines >> word) {
    if (word == "RssAnon:") lines >> kib;
  }
  return kib;
}

Client::Client(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
  stub_ = pb::Runtime::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  pb::ConnectRequest request;
  request.set_client("test");
  events_ = stub_->Connect(&connect_context_, request);
  events_->Read(&event_);
}

Client::~Client() {
  connect_context_.TryCancel();
  if (!ended_) events_->Finish();
}

grpc::Status Client::End() {
  ended_ = true;
  return events_->Finish();
}

std::unique_ptr<grpc::ClientContext> Client::Context(int64_t s) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + seconds(s));
  return context;
}

Client::Put Client::Upload(pb::UploadHeader header, const std::string& bytes, size_t chunk_bytes) {
  if (header.session_id().empty()) header.set_session_id(session());
  const auto context = Context();
  pb::UploadReply reply;
  const auto writer = stub_->Upload(context.get(), &reply);
  pb::UploadRequest request;
  *request.mutable_header() = header;
  bool open = writer->Write(request);
  for (size_t at = 0; open && at < bytes.size(); at += chunk_bytes) {
    request.set_chunk(bytes.substr(at, chunk_bytes));
    open = writer->Write(request);
  }
  writer->WritesDone();
  Put put;
  put.status = writer->Finish();
  put.tensor = reply.tensor();
  return put;
}

Client::Got Client::Download(const std::string& handle, std::optional<int64_t> device) {
  pb::DownloadRequest request;
  request.set_session_id(session());
  request.set_handle(handle);
  if (device.has_value()) request.set_device(*device);
  const auto context = Context();
  const auto reader = stub_->Download(context.get(), request);
  Got got;
  pb::DownloadReply reply;
  while (reader->Read(&reply)) {
    if (reply.has_header()) got.header = reply.header();
    got.bytes += reply.chunk();
  }
  got.status = reader->Finish();
  return got;
}

pb::StatusReply Client::Status() {
  const auto context = Context();
  pb::StatusReply reply;
  stub_->Status(context.get(), {}, &reply);
  return reply;
}

bool Client::WaitUntil(const std::function<bool(const pb::StatusReply&)>& done) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    if (done(Status())) return true;
  }
  return false;
}

pid_t Client::Planner() {
  pid_t planner = 0;
  HIR_CHECK(WaitUntil([&](const pb::StatusReply& status) {
    planner = static_cast<pid_t>(status.planner_pid());
    return planner != 0;
  }));
  return planner;
}

grpc::Status Client::Free(const std::vector<std::string>& handles) {
  pb::FreeRequest request;
  request.set_session_id(session());
  for (const std::string& handle : handles) request.add_handles(handle);
  pb::FreeReply reply;
  const auto context = Context();
  return stub_->Free(context.get(), request, &reply);
}

Client::Compiled Client::Compile(const std::string& text) {
  pb::CompileRequest request;
  request.set_session_id(session());
  request.mutable_program()->set_text(text);
  Compiled compiled;
  const auto context = Context();
  compiled.status = stub_->Compile(context.get(), request, &compiled.reply);
  return compiled;
}

Client::Ran Client::Run(const std::string& program_id, const std::vector<std::string>& handles, bool wait,
                        const std::vector<std::string>& freed) {
  pb::RunRequest request;
  request.mutable_free()->Assign(freed.begin(), freed.end());
  request.set_session_id(session());
  request.set_program_id(program_id);
  request.set_wait(wait);
  for (const std::string& handle : handles) request.add_args()->set_handle(handle);
  Ran ran;
  const auto context = Context();
  ran.status = stub_->Run(context.get(), request, &ran.reply);
  return ran;
}

void WaitForPlanning(const Daemon& daemon, Client& client, int64_t planner) {
  WaitForLog(daemon, client, "planning planner=" + std::to_string(planner) + " ");
}

void WaitForPlanBegun(const Daemon& daemon, Client& client, int64_t planner) {
  WaitForLog(daemon, client, "planner=" + std::to_string(planner) + " began ");
}

grpc::Status KillPlannerUnder(const Daemon& daemon, Client& client, const std::string& program, int signal) {
  const int64_t planner = client.Status().planner_pid();
  auto compiling = std::async(std::launch::async, [&] { return client.Compile(program).status; });
  WaitForPlanBegun(daemon, client, planner);
  kill(static_cast<pid_t>(planner), signal);
  return compiling.get();
}

std::string Text(const grpc::Status& status) {
  if (status.ok()) return "OK";
  static const char* const kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return std::string(kNames[status.error_code()]) + ": " + status.error_message();
}

pb::UploadHeader Header(pb::DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& mesh_shape,
                        const std::vector<int64_t>& axes) {
  pb::UploadHeader header;
  header.set_dtype(dtype);
  header.mutable_shape()->Add(shape.begin(), shape.end());
  if (mesh_shape.empty()) return header;
  pb::Mesh& mesh = *header.mutable_sharding()->mutable_mesh();
  int64_t devices = 1;
  for (const int64_t extent : mesh_shape) {
    mesh.add_shape(extent);
    devices *= extent;
  }
  for (int64_t device = 0; device < devices; ++device) mesh.add_devices(device);
  header.mutable_sharding()->mutable_axis_of_dimension()->Add(axes.begin(), axes.end());
  return header;
}

}  // namespace hir::service
