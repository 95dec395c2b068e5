// Goal: whatever dies, the request ends with a typed error in 2 s, the daemon lives, the mesh serves
// again in 10 s, and the next run is right. Method: processes are stopped (so that the moment is
// certain) and killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kNegate =
    "mesh @m = [0, 1]\nfusion @negate(%y: f32[i0] {mesh=@m}) {\n  %z = neg(%y)\n  return %z\n}\n";

class Fault : public testing::Test {
 protected:
  explicit Fault(const std::string& more = "--rpc-threads=4")
      : daemon({"--devices=cpu:2", "--plan-timeout-ms=3000", more}), client(daemon) {}

  Daemon daemon;
  Client client;

  std::string Id() {
    const Client::Compiled compiled = client.Compile(kColumnSums);
    EXPECT_EQ(Text(compiled.status), "OK");
    return compiled.reply.program_id();
  }
  std::string Put() {
    const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4}));
    EXPECT_EQ(Text(put.status), "OK");
    return put.tensor.handle();
  }
  void ExpectRunsRight(const std::string& program, const std::string& x) {
    const Client::Ran ran = client.Run(program, {x});
    ASSERT_EQ(Text(ran.status), "OK");
    EXPECT_EQ(Floats(client.Download(ran.reply.outputs(0).handle()).bytes), (std::vector<float>{4, 6}));
  }
  // Calls `begin`; true when the daemon has got the `calls` calls that it begins.
  bool Begun(int64_t calls, const std::function<void()>& begin) {
    int64_t expected = client.Status().requests() + calls;
    begin();
    return client.WaitUntil([&](const pb::StatusReply& status) { return status.requests() == ++expected; });
  }
  bool NoneUnderWay() {
    return client.WaitUntil([](const pb::StatusReply& status) { return status.requests_under_way() == 1; });
  }
  int64_t Worker(int rank) { return client.Status().devices(rank).pid(); }
  // Waits for a generation after `generation` to serve.
  void ExpectHeals(int64_t generation) {
    const auto start = steady_clock::now();
    EXPECT_TRUE(client.WaitUntil(
        [&](const pb::StatusReply& status) { return status.serving() && status.generation() > generation; }));
    EXPECT_LT(steady_clock::now() - start, seconds(10));
  }
};

TEST_F(Fault, WorkerKilledAtRest) {
  const std::string program = Id(), x = Put();
  ExpectRunsRight(program, x);
  kill(static_cast<pid_t>(Worker(1)), SIGKILL);
  ExpectHeals(1);
  EXPECT_EQ(client.Status().last_failure(),
            "UNAVAILABLE: rank 1 died (killed by signal 9) during idle; the mesh is being restarted");
  ExpectRunsRight(program, x);  // On the same tensor: it was not lost.
}

// A run that finds memory for its outputs at the workers is posted to all of them at once; else each of them is sent
// what it lacks.
class FaultInARun : public Fault, public testing::WithParamInterface<const char*> {
 protected:
  // Run 1, after which the next one is of the kind that is asked for.
  void RunBefore(const std::string& program, const std::string& x) {
    const Client::Ran ran = client.Run(program, {x});
    ASSERT_EQ(Text(ran.status), "OK");
    if (GetParam() == std::string("Posted")) {
      ASSERT_EQ(Text(client.Free({ran.reply.outputs(0).handle()})), "OK");
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Each, FaultInARun, testing::Values("Posted", "Sent"),
                         [](const auto& kind) { return kind.param; });

TEST_P(FaultInARun, WorkerKilled) {
  const std::string program = Id(), x = Put();
  RunBefore(program, x);
  const pid_t worker = static_cast<pid_t>(Worker(1));
  kill(worker, SIGSTOP);  // Now the run cannot end: rank 0 waits in the all-reduce.
  const Client::Ran queued = client.Run(program, {x}, /*wait=*/false);
  ASSERT_EQ(Text(queued.status), "OK");
  const Client::Ran next = client.Run(program, {x}, /*wait=*/false);
  auto waiting = std::async(std::launch::async, [&] { return client.Download(queued.reply.outputs(0).handle()); });
  const auto start = steady_clock::now();
  kill(worker, SIGKILL);
  const Client::Got got = waiting.get();
  EXPECT_LT(steady_clock::now() - start, seconds(2));
  EXPECT_EQ(Text(got.status),
            "UNAVAILABLE: rank 1 died (killed by signal 9) during run 2 of column_sums; the mesh "
            "is being restarted");
  ExpectHeals(1);
  // The one behind it in the queue ran on the new mesh.
  EXPECT_EQ(Floats(client.Download(next.reply.outputs(0).handle()).bytes), (std::vector<float>{4, 6}));
  ExpectRunsRight(program, x);
  // What a poisoned tensor goes into is poisoned, by the same cause.
  const Client::Compiled negate = client.Compile(kNegate);
  ASSERT_EQ(Text(negate.status), "OK");
  EXPECT_EQ(Text(client.Run(negate.reply.program_id(), {queued.reply.outputs(0).handle()}).status),
            "UNAVAILABLE: rank 1 died (killed by signal 9) during run 2 of column_sums; the mesh is "
            "being restarted; it poisoned input 0 (y)");
}

TEST_P(FaultInARun, AStuckRankIsNamedAtTheDeadline) {
  const std::string program = Id(), x = Put();
  RunBefore(program, x);
  kill(static_cast<pid_t>(Worker(1)), SIGSTOP);
  pb::RunRequest request;
  request.set_session_id(client.session());
  request.set_program_id(program);
  request.add_args()->set_handle(x);
  request.set_wait(true);
  request.set_timeout_ms(200);
  pb::RunReply reply;
  const auto context = client.Context();
  const auto start = steady_clock::now();
  EXPECT_EQ(
      Text(client.stub().Run(context.get(), request, &reply)),
      "DEADLINE_EXCEEDED: run 2 of column_sums took longer than 200 ms: rank 1 does not answer (stopped); rank 0 is "
      "waiting in allreduce #0; the mesh is being restarted");
  EXPECT_LT(steady_clock::now() - start, seconds(2));
  ExpectHeals(1);
  ExpectRunsRight(program, x);
}

// However many runs are between them, a poisoned tensor names its cause, and nothing else.
TEST_F(Fault, TheLastOfALongChainNamesTheCause) {
  const std::string program = Id(), x = Put();
  const Client::Compiled negate = client.Compile(kNegate);
  ASSERT_EQ(Text(negate.status), "OK");
  const pid_t worker = static_cast<pid_t>(Worker(1));
  kill(worker, SIGSTOP);
  const Client::Ran first = client.Run(program, {x}, /*wait=*/false);
  ASSERT_EQ(Text(first.status), "OK");
  std::string last = first.reply.outputs(0).handle();
  const auto run = [&](bool wait) { return client.Run(negate.reply.program_id(), {last}, wait); };
  kill(worker, SIGKILL);
  for (int i = 0; i < 300; ++i) {
    const Client::Ran ran = run(/*wait=*/false);
    ASSERT_EQ(Text(ran.status), "OK");
    last = ran.reply.outputs(0).handle();
  }
  const std::string cause = "rank 1 died (killed by signal 9) during run 1 of column_sums; the mesh is being restarted";
  EXPECT_EQ(Text(client.Download(last).status), "UNAVAILABLE: " + cause);
  EXPECT_EQ(Text(run(/*wait=*/true).status), "UNAVAILABLE: " + cause + "; it poisoned input 0 (y)");
  pb::WaitRequest request;
  request.set_session_id(client.session());
  request.add_handles(last);
  pb::WaitReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Wait(context.get(), request, &reply)), "OK");
  EXPECT_EQ(reply.tensors(0).error().message(), cause);
}

TEST_F(Fault, PlannerKilledAtRest) {
  const pid_t planner = client.Planner();
  kill(planner, SIGKILL);
  const std::string line = "planner=" + std::to_string(planner) + " ended at rest error=\"killed by signal 9\"";
  EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply& status) {  // Another thread writes the log.
    const bool replaced = status.planner_pid() != planner && status.planner_pid() != 0;
    return replaced && daemon.Log().find(line) != std::string::npos;
  })) << line;
  ExpectRunsRight(Id(), Put());
}

// A handler that a library has put there may wait for what the crash holds, for ever.
TEST_F(Fault, ACrashIsHandledByNobody) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer handles them";
#endif
  const pb::StatusReply status = client.Status();
  std::vector<int64_t> pids = {status.planner_pid()};
  for (const pb::Device& device : status.devices()) pids.push_back(device.pid());
  for (const int64_t pid : pids) {
    std::ifstream lines("/proc/" + std::to_string(pid) + "/status");
    std::string word;
    uint64_t handled = 0;
    while (lines >> word && word != "SigCgt:") {
    }
    ASSERT_TRUE(lines >> std::hex >> handled);
    for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
      EXPECT_EQ(handled >> (crash - 1) & 1, 0U) << "signal " << crash << " of process " << pid;
  }
}

TEST_F(Fault, PlannerDiesOfAProgram) {
  const std::string slow = SlowProgram();
  EXPECT_THAT(Text(KillPlannerUnder(daemon, client, slow, SIGSEGV)),
              testing::MatchesRegex("UNAVAILABLE: the planner died .killed by signal 11. while it planned program "
                                    "[0-9a-f]*; this is a fault of hostir: please report it with the program's "
                                    "text; the planner is restarted"));
  // Another program is planned by the next planner.
  EXPECT_EQ(Text(client.Compile(Negate("f")).status), "OK");
  EXPECT_EQ(Text(client.Compile(slow).status), "OK") << "once is not held against it";
}

TEST_F(Fault, AProgramThatThePlannerDiesOfIsRefused) {
  const std::string slow = SlowProgram();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(KillPlannerUnder(daemon, client, slow, SIGABRT).error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_THAT(Text(client.Compile(slow).status),
              testing::MatchesRegex("FAILED_PRECONDITION: program [0-9a-f]* made the planner die "
                                    "planner_deaths_max = 2 times; this is a fault of hostir: please report it with "
                                    "the program's text; it is refused for planner_deaths_ms = 3600000"));
  EXPECT_EQ(Text(client.Compile(Negate("f")).status), "OK");
}

TEST_F(Fault, AKilledPlannerIsHeldAgainstNoProgram) {
  const std::string slow = SlowProgram();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Text(KillPlannerUnder(daemon, client, slow, SIGKILL)),
                testing::MatchesRegex("UNAVAILABLE: the planner died .killed by signal 9. while it planned "
                                      "program [0-9a-f]*; somebody ended it, or memory ran out, which is not held "
                                      "against the program; the planner is restarted"));
  }
  EXPECT_EQ(Text(client.Compile(slow).status), "OK");
}

std::future<std::string> Compiling(Client& client, const std::string& program) {
  return std::async(std::launch::async, [&client, program] { return Text(client.Compile(program).status); });
}

// Two programs are in its care when the planner dies: of neither, or of the first.
class TwoPrograms : public ::testing::Test {
 protected:
  pid_t Planner() { return watching_.Planner(); }
  bool BothAreThere() {
    return watching_.WaitUntil([](const pb::StatusReply& status) { return status.queued_plans() == 2; });
  }

  Daemon daemon_{{"--devices=cpu:1", "--planner-deaths-max=1", "--planners=1"}};
  Client first_{daemon_}, second_{daemon_}, watching_{daemon_};
};

TEST_F(TwoPrograms, NeitherWasBegun) {
  const pid_t planner = Planner();
  kill(planner, SIGSTOP);
  auto one = Compiling(first_, Negate("one")), two = Compiling(second_, Negate("two"));
  WaitForPlanning(daemon_, watching_, planner);
  EXPECT_TRUE(BothAreThere());
  kill(planner, SIGSEGV);
  kill(planner, SIGCONT);  // To that.
  EXPECT_EQ(one.get(), "OK") << "the next planner has it";
  EXPECT_EQ(two.get(), "OK");
  EXPECT_NE(daemon_.Log().find("not begun, planned again error=\"killed by signal 11\""), std::string::npos);
}

TEST_F(TwoPrograms, TheFirstWasBegun) {
  const std::string culprit = SlowProgram(), other = SlowProgram();
  const pid_t planner = Planner();
  auto one = Compiling(first_, culprit);
  WaitForPlanBegun(daemon_, watching_, planner);
  auto two = Compiling(second_, other);
  EXPECT_TRUE(BothAreThere());
  kill(planner, SIGSEGV);
  EXPECT_THAT(one.get(), testing::HasSubstr("this is a fault of hostir"));
  EXPECT_EQ(two.get(), "OK");
  EXPECT_THAT(Compiling(first_, culprit).get(), testing::StartsWith("FAILED_PRECONDITION"));
  EXPECT_EQ(Compiling(first_, other).get(), "OK");
}

TEST_F(Fault, AProgramStartsBesideAnothersLongPlan) {
  const pid_t planner = client.Planner();
  kill(planner, SIGSTOP);
  Client other(daemon);
  auto planned = Compiling(client, Negate("long"));
  WaitForPlanning(daemon, other, planner);
  EXPECT_EQ(Text(other.Compile(Negate("f")).status), "OK");
  const pb::StatusReply status = other.Status();
  EXPECT_EQ(status.queued_plans(), 1) << "that one is still planned";
  ASSERT_EQ(status.planner_pids_size(), 2);
  EXPECT_EQ(status.planner_pids(0), planner);
  kill(static_cast<pid_t>(status.planner_pids(1)), SIGKILL);  // At rest.
  kill(planner, SIGCONT);
  EXPECT_EQ(planned.get(), "OK");
}

TEST_F(Fault, APlannerThatHangsIsReplaced) {
  kill(client.Planner(), SIGSTOP);
  EXPECT_EQ(Text(client.Compile(kColumnSums).status),
            "DEADLINE_EXCEEDED: planning took longer than plan_timeout_ms = 3000; make the program "
            "smaller, or start the daemon with a higher limit");
  ExpectRunsRight(Id(), Put());
}

TEST_F(Fault, AClientThatLeavesInAnUpload) {
  {
    Client leaving(daemon);
    const auto context = leaving.Context();
    pb::UploadReply reply;
    const auto writer = leaving.stub().Upload(context.get(), &reply);
    pb::UploadRequest request;
    *request.mutable_header() = Header(pb::DTYPE_BOOL, {1 << 20});
    request.mutable_header()->set_session_id(leaving.session());
    writer->Write(request);
    request.set_chunk(std::string(1 << 16, 'x'));
    writer->Write(request);
    EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 1 << 16; }));
    context->TryCancel();
    writer->Finish();
  }
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& s) { return s.tensor_bytes() == 0 && s.sessions() == 1; }));
}

// Its connection stays: what the session moved ends with the session all the same.
TEST_F(Fault, ASessionThatEndsInTransfers) {
  const std::string program = Id();
  const pid_t worker = static_cast<pid_t>(Worker(0));
  auto leaving = std::make_unique<Client>(daemon);
  const std::string x =
      leaving->Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4})).tensor.handle();
  kill(worker, SIGSTOP);
  const Client::Ran ran = leaving->Run(program, {x}, /*wait=*/false);
  ASSERT_EQ(Text(ran.status), "OK");
  // One that waits for its next chunk, one for its tensor; by another client's connection.
  const auto uploading = client.Context(), downloading = client.Context();
  pb::UploadReply reply;
  std::unique_ptr<grpc::ClientWriter<pb::UploadRequest>> writer;
  std::unique_ptr<grpc::ClientReader<pb::DownloadReply>> reader;
  EXPECT_TRUE(Begun(2, [&] {
    writer = client.stub().Upload(uploading.get(), &reply);
    pb::UploadRequest upload;
    *upload.mutable_header() = Header(pb::DTYPE_BOOL, {1 << 20});
    upload.mutable_header()->set_session_id(leaving->session());
    writer->Write(upload);
    upload.set_chunk(std::string(1 << 16, 'x'));
    writer->Write(upload);
    pb::DownloadRequest download;
    download.set_session_id(leaving->session());
    download.set_handle(ran.reply.outputs(0).handle());
    reader = client.stub().Download(downloading.get(), download);
  }));
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() >= 1 << 16; }));
  leaving.reset();
  EXPECT_TRUE(NoneUnderWay());
  const grpc::Status uploaded = writer->Finish(), downloaded = reader->Finish();
  EXPECT_EQ(uploaded.error_code(), grpc::StatusCode::CANCELLED) << Text(uploaded);
  EXPECT_EQ(downloaded.error_code(), grpc::StatusCode::CANCELLED) << Text(downloaded);
  EXPECT_LT(client.Status().tensor_bytes(), 1 << 16) << "the upload's: the run goes on";
  kill(worker, SIGCONT);
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 0; }));
}

// Requests are carried out in the order in which they came.
class FaultInOrder : public Fault {
 protected:
  FaultInOrder() : Fault("--rpc-threads=1") {}
};

TEST_F(FaultInOrder, AClientThatNoLongerWaitsHoldsNoTensor) {
  const std::string program = Id(), x = Put();
  const pid_t worker = static_cast<pid_t>(Worker(0));
  kill(worker, SIGSTOP);
  const Client::Ran ran = client.Run(program, {x}, /*wait=*/false);
  ASSERT_EQ(Text(ran.status), "OK");
  const int64_t before = client.Status().tensor_bytes();
  std::unique_ptr<grpc::ClientContext> context;
  std::future<grpc::StatusCode> waiting;
  // Until the Wait has the tensor before it is freed: a request is under way a moment before it looks at anything.
  for (int attempt = 0; attempt < 20 && context == nullptr; ++attempt) {
    const std::string other =
        client.Upload(Header(pb::DTYPE_BOOL, {1 << 16}), std::string(1 << 16, 'x')).tensor.handle();
    pb::WaitRequest request;
    request.set_session_id(client.session());
    request.add_handles(other);
    request.add_handles(ran.reply.outputs(0).handle());
    context = client.Context();
    EXPECT_TRUE(Begun(1, [&] {
      waiting = std::async(std::launch::async, [&, request] {
        pb::WaitReply reply;
        return client.stub().Wait(context.get(), request, &reply).error_code();
      });
    }));
    EXPECT_EQ(Text(client.Free({other})), "OK");
    if (client.Status().tensor_bytes() == before + (1 << 16)) break;
    EXPECT_EQ(waiting.get(), grpc::StatusCode::FAILED_PRECONDITION) << "it came too late";
    context = nullptr;
  }
  ASSERT_NE(context, nullptr) << "no Wait has what is freed";
  context->TryCancel();
  EXPECT_EQ(waiting.get(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(NoneUnderWay());
  EXPECT_EQ(client.Status().tensor_bytes(), before) << "though the run goes on";
  kill(worker, SIGCONT);
  ExpectRunsRight(program, x);
}

TEST_F(Fault, AClientThatLeavesInARun) {
  const std::string program = Id();
  const pid_t worker = static_cast<pid_t>(Worker(0));
  kill(worker, SIGSTOP);
  {
    Client leaving(daemon);
    const Client::Put put = leaving.Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4}));
    ASSERT_EQ(Text(leaving.Run(program, {put.tensor.handle()}, /*wait=*/false).status), "OK");
  }
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.sessions() == 1; }));
  kill(worker, SIGCONT);
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 0; }));
  ExpectRunsRight(program, Put());
}

// Nobody is left who could wake them.
TEST_P(FaultInARun, WorkersEndWithTheDaemon) {
  const std::string program = Id(), x = Put();
  RunBefore(program, x);
  const pid_t stopped = static_cast<pid_t>(Worker(1)), waiting = static_cast<pid_t>(Worker(0));
  kill(stopped, SIGSTOP);
  ASSERT_EQ(Text(client.Run(program, {x}, /*wait=*/false).status), "OK");
  daemon.Signal(SIGKILL);
  EXPECT_EQ(daemon.Wait(), 128 + SIGKILL);
  const auto start = steady_clock::now();
  const auto gone = [&] { return kill(stopped, 0) != 0 && kill(waiting, 0) != 0; };
  while (!gone() && steady_clock::now() - start < seconds(5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone());
}

TEST_F(Fault, NothingLeaks) {
  const std::string program = Id();
  int64_t fds = 0, kib = 0;
  for (int round = 0; round < 300; ++round) {
    Client other(daemon);
    const Client::Put put = other.Upload(Header(pb::DTYPE_FLOAT32, {2, 512}, {2}, {0}), std::string(4096, 'a'));
    const Client::Ran ran = other.Run(program, {put.tensor.handle()});
    ASSERT_EQ(Text(ran.status), "OK");
    if (round % 3 == 0) {
      ASSERT_EQ(Text(other.Free({put.tensor.handle()})), "OK");
    }
    (void)other.Upload(Header(pb::DTYPE_FLOAT32, {2, 512}), "short");
    if (round != 99) continue;  // Pools and caches have their sizes now.
    fds = daemon.NumFds();
    kib = daemon.PrivateKiB();
  }
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& s) { return s.tensor_bytes() == 0 && s.sessions() == 1; }));
  EXPECT_LE(daemon.NumFds(), fds + 4);
  EXPECT_LE(daemon.PrivateKiB(), kib + 4096);
}

TEST_F(Fault, NothingLeaksWhenMeshesDie) {
  const std::string program = Id(), x = Put();
  int64_t fds = 0;
  for (int64_t round = 1; round <= 4; ++round) {
    kill(static_cast<pid_t>(Worker(0)), SIGKILL);
    ExpectHeals(round);
    ExpectRunsRight(program, x);
    if (round == 1) fds = daemon.NumFds();
  }
  // Each run left an output: one shard a device.
  EXPECT_LE(daemon.NumFds(), fds + 3 * 2);
}

}  // namespace
}  // namespace hir::service
