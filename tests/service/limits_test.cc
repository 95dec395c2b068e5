// Goal: at a limit a request is served, beyond it refused by the limit's name, and the next is served.
// Method: daemons with small limits; workers and planner are stopped, or never answer, so that queues fill and times
// run out. A time limit that is too long never fails a test; one that is to run out has nobody who could keep it.
// Elsewhere: tensors_max (session_test), tensor_bytes_max, chunk_bytes_max (transfer_test), rpc_threads,
// queued_rpcs_max, requests_max (rpc/request_queue_test), connections_max (rpc/listener_test), connection_idle_ms
// (tests/python/test_connections.py).
#include "service/engine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/check.h"
#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

std::string Flag(const LimitInfo& limit, int64_t value) {
  std::string name(limit.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name + "=" + std::to_string(value);
}

std::map<std::string, int64_t> Shown(Client& client) {
  std::map<std::string, int64_t> values;
  const pb::StatusReply status = client.Status();
  for (const pb::Limit& limit : status.limits()) values[limit.name()] = limit.value();
  return values;
}

// One device, one tensor of two elements, and @p on it.
struct Served {
  explicit Served(std::vector<std::string> flags) : daemon(Flags(std::move(flags))) {
    const Client::Compiled compiled = client.Compile(Negate("p"));
    EXPECT_EQ(Text(compiled.status), "OK");
    program = compiled.reply.program_id();
    x = client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
  }
  static std::vector<std::string> Flags(std::vector<std::string> flags) {
    flags.push_back("--devices=cpu:1");
    return flags;
  }
  pid_t Worker() { return static_cast<pid_t>(client.Status().devices(0).pid()); }
  std::string Run(int64_t timeout_ms) {
    pb::RunRequest request;
    request.set_session_id(client.session());
    request.set_program_id(program);
    request.add_args()->set_handle(x);
    request.set_wait(true);
    request.set_timeout_ms(timeout_ms);
    pb::RunReply reply;
    const auto context = client.Context(60);
    return Text(client.stub().Run(context.get(), request, &reply));
  }

  Daemon daemon;
  Client client{daemon};
  std::string program, x;
};

// A worker program that never answers when its arguments match `pattern` of the shell, and is the real one otherwise.
class SilentWorker {
 public:
  explicit SilentWorker(const std::string& pattern) {
    std::string directory = (std::filesystem::temp_directory_path() / "hostir-test-XXXXXX").string();
    HIR_CHECK(mkdtemp(directory.data()) != nullptr);
    directory_ = directory;
    std::ofstream(path()) << "#!/bin/sh\ncase \"$*\" in " << pattern << ") exec sleep 60;; esac\nexec "
                          << Daemon::WorkerPath() << " \"$@\"\n";
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }
  ~SilentWorker() { std::filesystem::remove_all(directory_); }
  std::string path() const { return directory_ + "/worker"; }

 private:
  std::string directory_;
};

TEST(Limits, EachHasAFlagADefaultAndARange) {
  std::vector<std::string> flags = {"--devices=cpu:1"};
  std::map<std::string, int64_t> defaults, given;
  for (const LimitInfo& limit : kLimits) {
    defaults[std::string(limit.name)] = Limits().*limit.value;
    // A millisecond is too short for the mesh to start, and no request is of one byte.
    const bool holds_requests = limit.name == "requests_bytes_max" || limit.name == "transport_bytes_max";
    const int64_t other = limit.name == "setup_timeout_ms" ? 20000
                          : holds_requests                 ? int64_t{1} << 26
                                                           : Limits().*limit.value + 1;
    given[std::string(limit.name)] = other;
    flags.push_back(Flag(limit, other));
    for (const int64_t value : {limit.least - 1, limit.most + 1}) {
      const std::string failure = Daemon::FailureOf({Flag(limit, value)});
      EXPECT_THAT(failure, testing::HasSubstr(std::to_string(value) + " is not in range"));
      EXPECT_THAT(failure, testing::HasSubstr(Flag(limit, value).substr(0, limit.name.size() + 2)));
    }
  }
  given["tensor_bytes_max"] = 1;
  {
    Daemon daemon(flags);
    Client client(daemon);
    EXPECT_EQ(Shown(client), given);
  }
  Daemon daemon({"--devices=cpu:1"});
  Client client(daemon);
  std::map<std::string, int64_t> shown = Shown(client);
  EXPECT_GT(shown["tensor_bytes_max"], int64_t{1} << 26) << "half of the machine's memory";
  EXPECT_GT(shown["staging_bytes_max"], int64_t{1} << 25) << "a quarter of it";
  EXPECT_EQ(shown["setup_timeout_ms"], 10000) << "without GPUs";
  EXPECT_EQ(shown["recycled_bytes_max"], shown["tensor_bytes_max"] / 4);
  EXPECT_GT(shown["device_bytes_max"], int64_t{1} << 26) << "of one device: 30 % of the memory";
  EXPECT_GT(shown["requests_bytes_max"], int64_t{1} << 20);
  EXPECT_GE(shown["transport_bytes_max"], int64_t{1} << 26);
  const int64_t worker = client.Status().devices(0).pid();
  std::ifstream arguments("/proc/" + std::to_string(worker) + "/cmdline");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(arguments), {}),
              testing::HasSubstr("--device-bytes-max=" + std::to_string(shown["device_bytes_max"])))
      << "the worker keeps it";
  EXPECT_EQ(shown["principal_bytes_max"], shown["tensor_bytes_max"]);
  EXPECT_EQ(shown["principal_tensors_max"], 65536 - 8192) << "there is room for who is not yet here";
  EXPECT_EQ(shown["principal_sessions_max"], 256 - 32);
  EXPECT_GE(shown["planner_bytes_max"], int64_t{256} << 20);
  EXPECT_EQ(shown["cancel_grace_ms"], 1000) << "without GPUs";
  for (const char* name : {"tensor_bytes_max", "recycled_bytes_max", "device_bytes_max", "staging_bytes_max",
                           "setup_timeout_ms", "requests_bytes_max", "transport_bytes_max", "principal_bytes_max",
                           "principal_tensors_max", "principal_sessions_max", "planner_bytes_max", "cancel_grace_ms"})
    shown[name] = 0;
  EXPECT_EQ(shown, defaults);
}

// What a run needs between its kernels: two squares at once. What other runs needed before is in nobody's way.
TEST(Limits, BytesOfADevice) {
  Daemon daemon({"--devices=cpu:1", "--device-bytes-max=1000000"});
  Client client(daemon);
  const auto run = [&](const std::string& name, int64_t size) {
    const Client::Compiled compiled =
        client.Compile("fusion @" + name +
                       "(%a: f32[i0, 1], %b: f32[1, i0]) {\n  %p = matmul(%a, %b)\n  %q = matmul(%p, %p)\n"
                       "  %s = sum(%q) {axes=[0, 1], keepdim=false, dtype=null}\n  return %s\n}\n");
    EXPECT_EQ(Text(compiled.status), "OK");
    const std::string ones = Bytes(std::vector<float>(static_cast<size_t>(size), 1));
    const Client::Put a = client.Upload(Header(pb::DTYPE_FLOAT32, {size, 1}), ones);
    const Client::Put b = client.Upload(Header(pb::DTYPE_FLOAT32, {1, size}), ones);
    return Text(client.Run(compiled.reply.program_id(), {a.tensor.handle(), b.tensor.handle()}).status);
  };
  EXPECT_EQ(run("p", 330), "OK");
  EXPECT_EQ(run("p", 353), "OK");  // 996,872 bytes, and a few that the sum takes.
  const std::string refused = run("p", 354);
  EXPECT_THAT(refused, testing::MatchesRegex("RESOURCE_EXHAUSTED: rank 0: cpu:0: limit device_bytes_max: 1000000 "
                                             "bytes, 0 in use, 100[0-9]* asked for; run smaller sizes, or raise it "
                                             "\\(hostird --device-bytes-max\\)"));
  EXPECT_THAT(daemon.Log(), testing::ContainsRegex("rank=0 generation=1 seq=[0-9]+ run=3 error="));
  EXPECT_EQ(run("p", 100), "OK");
  EXPECT_EQ(run("q", 353), "OK") << "what @p bound is given back";
  EXPECT_EQ(client.Status().generation(), 1) << "no worker died of it";
}

// The system's, that the daemon is started with: beyond it a request fails, not the daemon.
TEST(Limits, BytesOfAFile) {
  rlimit before = {};
  HIR_CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {1 << 20, before.rlim_max};
  HIR_CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  Served served({});
  HIR_CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto put = [&](int64_t bytes) {
    const std::string content(static_cast<size_t>(bytes), 'x');
    return Text(served.client.Upload(Header(pb::DTYPE_BOOL, {bytes}), content).status);
  };
  EXPECT_EQ(put(1 << 20), "OK");
  EXPECT_EQ(put((1 << 20) + 1),
            "RESOURCE_EXHAUSTED: memfd of 1048577 bytes: File too large; a file may have 1048576 "
            "bytes here, and shared memory is one: start the daemon with a higher limit (ulimit "
            "-f)");
  EXPECT_EQ(served.Run(0), "OK");
}

TEST(Limits, ChunksFitAMessage) {
  Daemon daemon({"--devices=cpu:1", "--message-bytes-max=20000"});
  Client client(daemon);
  EXPECT_EQ(client.event().chunk_bytes_max(), 20000 - 1024);
  EXPECT_EQ(Shown(client)["chunk_bytes_max"], 20000 - 1024);
  const std::string bytes(50000, 'x');
  const Client::Put put = client.Upload(Header(pb::DTYPE_BOOL, {50000}), bytes, 20000 - 1024);
  EXPECT_EQ(Text(put.status), "OK");
  EXPECT_EQ(client.Download(put.tensor.handle()).bytes, bytes);
}

TEST(Limits, HandlesOfARequest) {
  Served served({"--request-handles-max=2"});
  EXPECT_EQ(served.client.event().request_handles_max(), 2);
  const auto wait = [&](const std::vector<std::string>& handles) {
    pb::WaitRequest request;
    request.set_session_id(served.client.session());
    for (const std::string& handle : handles) request.add_handles(handle);
    pb::WaitReply reply;
    const auto context = served.client.Context();
    const std::string text = Text(served.client.stub().Wait(context.get(), request, &reply));
    EXPECT_EQ(reply.tensors_size(), text == "OK" ? request.handles_size() : 0);
    return text;
  };
  const std::string refused = "RESOURCE_EXHAUSTED: request_handles_max = 2: the request has 3; split it";
  const std::string& x = served.x;
  EXPECT_EQ(wait({x, x}), "OK");
  EXPECT_EQ(wait({x, x, x}), refused);
  EXPECT_EQ(Text(served.client.Free({x, "a", "b"})), refused);
  EXPECT_EQ(Text(served.client.Run(served.program, {x}, true, {"a", "b"}).status), "OK");
  EXPECT_EQ(Text(served.client.Run(served.program, {x}, true, {"a", "b", x}).status), refused);
  EXPECT_EQ(wait({x, x}), "OK") << "nothing was freed";
}

TEST(Limits, Sessions) {
  Daemon daemon({"--devices=cpu:1", "--sessions-max=2"});
  Client first(daemon);
  {
    Client second(daemon);
    EXPECT_FALSE(second.session().empty());
    EXPECT_EQ(Text(Client(daemon).End()), "RESOURCE_EXHAUSTED: sessions_max = 2: all are in use; close some");
  }
  EXPECT_TRUE(first.WaitUntil([](const pb::StatusReply& status) { return status.sessions() == 1; }));
  EXPECT_FALSE(Client(daemon).session().empty());
}

TEST(Limits, BytesOfAProgram) {
  Daemon daemon({"--devices=cpu:1", "--program-bytes-max=1000"});
  Client client(daemon);
  const auto padded = [](size_t bytes) {  // As a message: the text, its number and its length.
    std::string text = Negate("p");
    return text.append(bytes - 3 - text.size(), '\n');
  };
  EXPECT_EQ(Text(client.Compile(padded(1000)).status), "OK");
  EXPECT_EQ(Text(client.Compile(padded(1001)).status),
            "RESOURCE_EXHAUSTED: program_bytes_max = 1000: the program has 1001 bytes; split it");
  // 100 letters a tensor, of which one is sent.
  std::string text = "fusion @p(%v0: f32[" + std::string(100, 'n') + "]) {\n";
  const auto negate = [&](int from, int to) {
    for (int i = from; i < to; ++i) text += "  %v" + std::to_string(i + 1) + " = neg(%v" + std::to_string(i) + ")\n";
  };
  negate(0, 4);
  EXPECT_EQ(Text(client.Compile(text + "  return %v4\n}\n").status), "OK");
  negate(4, 9);
  text += "  return %v9\n}\n";
  EXPECT_LT(text.size(), 500U);
  const std::string refused = Text(client.Compile(text).status);
  EXPECT_TRUE(
      refused.starts_with("RESOURCE_EXHAUSTED: program_bytes_max = 1000: with the type of "
                          "every tensor the program has 1"))
      << refused;
}

// What is not kept is parsed again: the same program, once planned.
TEST(Limits, BytesOfProgramsAsSent) {
  for (const char* bytes : {"0", "1000", "67108864"}) {
    Daemon daemon({"--devices=cpu:1", std::string("--program-texts-bytes-max=") + bytes});
    Client client(daemon);
    const std::string text = Negate("p");
    const std::string id = client.Compile(text).reply.program_id();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(client.Compile(text).reply.program_id(), id);
      EXPECT_EQ(client.Compile(text + std::string(static_cast<size_t>(i), '\n')).reply.program_id(), id);
    }
    EXPECT_EQ(client.Status().plans(), 1);
    EXPECT_EQ(Text(client.Compile("fusion @").status).substr(0, 16), "INVALID_ARGUMENT");
  }
}

TEST(Limits, TimeThatARunAsksFor) {
  Served served({"--run-timeout-ms=30000"});
  EXPECT_EQ(served.Run(0), "OK");
  EXPECT_EQ(served.Run(30000), "OK");
  EXPECT_EQ(served.Run(30001),
            "RESOURCE_EXHAUSTED: run_timeout_ms = 30000: the run asks for 30001 ms; ask for less, "
            "or start the daemon with a higher limit");
  EXPECT_THAT(served.Run(INT64_MAX), testing::HasSubstr("the run asks for 9223372036854775807 ms; ask for less"));
  EXPECT_EQ(served.Run(-1), "INVALID_ARGUMENT: timeout_ms = -1: the time of a run is not negative");
  EXPECT_EQ(served.Run(0), "OK");
}

TEST(Limits, TimeOfARun) {
  Served served({"--run-timeout-ms=5000"});
  EXPECT_EQ(served.Run(0), "OK");
  kill(served.Worker(), SIGSTOP);
  EXPECT_EQ(served.Run(0),
            "DEADLINE_EXCEEDED: run 2 of p took longer than run_timeout_ms = 5000 ms: rank 0 does "
            "not answer (stopped); the mesh is being restarted");
  EXPECT_EQ(served.Run(0), "OK");
}

TEST(Limits, TimeOfACommunication) {
  Daemon daemon({"--devices=cpu:2", "--comm-timeout-ms=3000"});
  Client client(daemon);
  const std::string program = client.Compile(kColumnSums).reply.program_id();
  const std::string x = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4})).tensor.handle();
  const Client::Ran ran = client.Run(program, {x});
  ASSERT_EQ(Text(ran.status), "OK");
  // The next run finds memory at the workers, and is posted to all at once.
  EXPECT_EQ(Text(client.Free({ran.reply.outputs(0).handle()})), "OK");
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGSTOP);
  EXPECT_THAT(Text(client.Run(program, {x}).status),
              testing::MatchesRegex("DEADLINE_EXCEEDED: run 2 of column_sums: rank 0: .*rank 1 has not .* allreduce.*; "
                                    "rank 0 waiting 3.0 s, longer than comm_timeout_ms = 3000; "
                                    "rank 1 does not answer \\(stopped\\); the mesh is being restarted"));
  EXPECT_EQ(Text(client.Run(program, {x}).status), "OK");
}

TEST(Limits, TimeOfTheSetup) {
  const SilentWorker silent("*--role=worker*");
  EXPECT_THAT(Daemon::FailureOf({"--devices=cpu:1", "--worker=" + silent.path(), "--setup-timeout-ms=200"}),
              testing::HasSubstr("cannot start 1 workers: the start of the mesh took longer than "
                                 "setup_timeout_ms = 200 ms: rank 0 does not answer\""));
}

TEST(Limits, TimeOfTheSetupAgain) {
  const SilentWorker silent("*--role=worker*--generation=2*");
  Served served({"--worker=" + silent.path(), "--setup-timeout-ms=5000"});
  EXPECT_EQ(served.Run(0), "OK");
  kill(served.Worker(), SIGKILL);
  EXPECT_TRUE(served.client.WaitUntil([](const pb::StatusReply& status) { return status.generation() == 2; }));
  EXPECT_EQ(served.Run(0),
            "UNAVAILABLE: the mesh could not be restarted: DEADLINE_EXCEEDED: the start of the "
            "mesh took longer than setup_timeout_ms = 5000 ms: rank 0 does not answer");
  EXPECT_TRUE(served.client.WaitUntil(
      [](const pb::StatusReply& status) { return status.serving() && status.generation() >= 3; }));
  EXPECT_EQ(served.Run(0), "OK") << "a tensor outlives both generations";
}

// What is accepted and ends in time is tested in lifecycle_test.
TEST(Limits, TimeOfTheDrain) {
  Served served({"--drain-timeout-ms=300"});
  const pid_t planner = served.client.Planner();
  kill(served.Worker(), SIGSTOP);
  kill(planner, SIGSTOP);
  auto running = std::async(std::launch::async, [&] { return served.Run(0); });
  EXPECT_TRUE(served.client.WaitUntil([](const pb::StatusReply& status) { return status.runs() == 1; }));
  auto queued = std::async(std::launch::async, [&] { return served.Run(0); });
  EXPECT_TRUE(served.client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 1; }));
  auto compiling = std::async(std::launch::async, [&] {
    Client other(served.daemon);
    return Text(other.Compile(Negate("q")).status);
  });
  EXPECT_TRUE(served.client.WaitUntil([](const pb::StatusReply& status) { return status.queued_plans() == 1; }));
  served.daemon.Signal(SIGTERM);
  const std::string cause = "the daemon is shutting down, drain_timeout_ms = 300 after it was asked to";
  EXPECT_EQ(running.get(), "UNAVAILABLE: run 1 of p: " + cause);
  EXPECT_EQ(queued.get(), "UNAVAILABLE: " + cause);
  EXPECT_EQ(compiling.get(), "UNAVAILABLE: " + cause);
  EXPECT_EQ(served.daemon.Wait(), 0);
  EXPECT_THAT(served.daemon.Log(), testing::HasSubstr("drain_timeout_ms=300 is over"));
}

TEST(Limits, NobodyIsWaitedForWhenTheOnlyClientHasGone) {
  Served served({"--drain-timeout-ms=1000000"});
  kill(served.Worker(), SIGSTOP);
  EXPECT_EQ(Text(served.client.Run(served.program, {served.x}, /*wait=*/false).status), "OK");
  EXPECT_TRUE(served.client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 0; }));
  served.daemon.LetGo();
  EXPECT_EQ(served.daemon.Wait(), 0);
}

TEST(Limits, DeathsOfThePlanner) {
  {
    Daemon daemon({"--devices=cpu:1", "--planner-deaths-max=1"});
    Client client(daemon);
    const std::string slow = SlowProgram();
    EXPECT_EQ(KillPlannerUnder(daemon, client, slow, SIGSEGV).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(Text(client.Compile(slow).status),
                testing::MatchesRegex("FAILED_PRECONDITION: program [0-9a-f]* made the planner die "
                                      "planner_deaths_max = 1 times; .*"));
    EXPECT_THAT(daemon.Log(), testing::ContainsRegex("planner request=[1-9][0-9]* deaths=1 error="))
        << "the same number as in the request's line";
    EXPECT_EQ(Text(client.Compile(Negate("q")).status), "OK");
  }
  {  // Not for ever.
    Daemon daemon({"--devices=cpu:1", "--planner-deaths-max=1", "--planner-deaths-ms=1"});
    Client client(daemon);
    const std::string slow = SlowProgram();
    EXPECT_EQ(KillPlannerUnder(daemon, client, slow, SIGSEGV).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply&) { return Text(client.Compile(slow).status) == "OK"; }));
  }
  Daemon daemon({"--devices=cpu:1", "--planner-deaths-max=2"});
  Client client(daemon);
  const std::string slow = SlowProgram();
  EXPECT_EQ(KillPlannerUnder(daemon, client, slow, SIGSEGV).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Text(client.Compile(slow).status), "OK");
}

TEST(Limits, TimeOfAPlan) {
  {
    Daemon daemon({"--devices=cpu:1", "--plan-timeout-ms=30000"});
    Client client(daemon);
    const pid_t planner = client.Planner();
    kill(planner, SIGSTOP);
    auto compiling = std::async(std::launch::async, [&] { return Text(client.Compile(Negate("p")).status); });
    WaitForPlanning(daemon, client, planner);
    kill(planner, SIGCONT);
    EXPECT_EQ(compiling.get(), "OK") << "late, but in time";
  }
  Daemon daemon({"--devices=cpu:1", "--plan-timeout-ms=2000"});
  Client client(daemon);
  kill(client.Planner(), SIGSTOP);
  EXPECT_EQ(Text(client.Compile(Negate("p")).status),
            "DEADLINE_EXCEEDED: planning took longer than plan_timeout_ms = 2000; make the program "
            "smaller, or start the daemon with a higher limit");
  EXPECT_TRUE(
      client.WaitUntil([&](const pb::StatusReply&) { return Text(client.Compile(Negate("q")).status) == "OK"; }));
}

TEST(Limits, QueuedRuns) {
  Daemon daemon({"--devices=cpu:1", "--queued-runs-max=2"});
  Client client(daemon);
  const Client::Compiled program = client.Compile(Negate("p"));
  ASSERT_EQ(Text(program.status), "OK");
  const std::string x = client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
  const pid_t worker = static_cast<pid_t>(client.Status().devices(0).pid());
  kill(worker, SIGSTOP);
  const auto run = [&] { return Text(client.Run(program.reply.program_id(), {x}, /*wait=*/false).status); };
  EXPECT_EQ(run(), "OK");
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 0; }));
  EXPECT_EQ(run(), "OK");
  EXPECT_EQ(run(), "OK");
  const int64_t tensors = client.Status().tensors();
  EXPECT_EQ(run(),
            "RESOURCE_EXHAUSTED: queued_runs_max = 2: as many runs of this session wait for their turn; wait for some");
  EXPECT_EQ(client.Status().tensors(), tensors) << "nothing is left of a run that is refused";
  {
    Client other(daemon);
    const std::string its = other.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
    EXPECT_EQ(Text(other.Run(program.reply.program_id(), {its}, /*wait=*/false).status), "OK") << "of each session";
    EXPECT_EQ(client.Status().queued_runs(), 3);
  }
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 2; }))
      << "who has gone takes its queued runs along";
  kill(worker, SIGCONT);
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 0; }));
  EXPECT_EQ(run(), "OK");
}

TEST(Limits, QueuedPlans) {
  Daemon daemon({"--devices=cpu:1", "--queued-plans-max=2"});
  Client client(daemon);
  const pid_t planner = client.Planner();
  kill(planner, SIGSTOP);
  std::vector<std::future<std::string>> compiling;
  for (int i = 0; i < 2; ++i) {
    compiling.push_back(std::async(
        std::launch::async, [&client, i] { return Text(client.Compile(Negate("p" + std::to_string(i))).status); }));
    EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply& status) { return status.queued_plans() == i + 1; }));
  }
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status),
            "RESOURCE_EXHAUSTED: queued_plans_max = 2: as many programs of this session wait for the planner; try "
            "again later");
  kill(planner, SIGCONT);
  for (auto& answer : compiling) EXPECT_EQ(answer.get(), "OK");
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status), "OK");
}

TEST(Limits, ProgramsThatAreKept) {
  Daemon daemon({"--devices=cpu:1", "--programs-max=2"});
  Client client(daemon);
  const std::string first = client.Compile(Negate("p0")).reply.program_id();
  const std::string second = client.Compile(Negate("p1")).reply.program_id();
  const std::string x = client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
  EXPECT_EQ(Text(client.Run(first, {x}).status), "OK");  // Now the second was not used for longest.
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status), "OK");
  EXPECT_EQ(Text(client.Run(first, {x}).status), "OK");
  EXPECT_EQ(Text(client.Run(second, {x}).status),
            "NOT_FOUND: no program \"" + second + "\" here, or no longer: compile it again");
  EXPECT_EQ(Text(client.Run(client.Compile(Negate("p1")).reply.program_id(), {x}).status), "OK");
}

// To gather 4,096 bytes in two halves a rank holds its own and all.
TEST(Limits, BytesOfAResharding) {
  const std::string gather =
      "mesh @m = [0, 1]\n"
      "fusion @gather(%x: f32[1024] {mesh=@m, shard(0, mesh_x)}) {\n"
      "  %y: f32[1024] {mesh=@m} = set(%x)\n  return %y\n}\n";
  {
    Daemon daemon({"--devices=cpu:2", "--resharding-bytes-max=6144"});
    Client client(daemon);
    EXPECT_EQ(Text(client.Compile(gather).status), "OK");
  }
  Daemon daemon({"--devices=cpu:2", "--resharding-bytes-max=6143"});
  Client client(daemon);
  const grpc::Status status = client.Compile(gather).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << Text(status);
  EXPECT_THAT(status.error_message(),
              testing::HasSubstr("%y: resharding from axis 0 split 2 ways over mesh_x to replicated: "
                                 "every sequence of steps holds more than resharding_bytes_max = 6143 "
                                 "bytes on a rank at once (at least 6144); raise it, or split the "
                                 "tensor further"));
  EXPECT_EQ(Text(client.Compile(Negate("p")).status), "OK") << "the next is served";
}

TEST(Limits, AnAnswerIsAsLongAsItIs) {
  Daemon daemon({"--devices=cpu:1", "--message-bytes-max=4096"});
  Client client(daemon);
  std::string text = "fusion @chain(%x: f32[2]) {\n  %v0 = neg(%x)\n";
  for (int i = 1; i < 100; ++i) text += "  %v" + std::to_string(i) + " = exp(%v" + std::to_string(i - 1) + ")\n";
  pb::ExplainRequest request;
  request.set_session_id(client.session());
  request.mutable_program()->set_text(text + "  return %v99\n}\n");
  ASSERT_LE(request.ByteSizeLong(), 4096U);
  pb::ExplainReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Explain(context.get(), request, &reply)), "OK");
  EXPECT_GT(reply.ByteSizeLong(), 4096U);
}

TEST(Limits, BytesOfAMessage) {
  Daemon daemon({"--devices=cpu:1", "--message-bytes-max=20000"});
  Client client(daemon);
  const grpc::Status status = client.Compile(std::string(20000, '/')).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << Text(status);
  // The words that docs/configuration.md quotes.
  EXPECT_THAT(status.error_message(), testing::MatchesRegex("Received message larger than max \\(.* vs. 20000\\)"));
  EXPECT_EQ(Text(client.Compile(Negate("p") + std::string(19000, '\n')).status), "OK");
}

}  // namespace
}  // namespace hir::service
