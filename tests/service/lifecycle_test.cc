// Goal: the daemon starts or says why not, drains on SIGTERM, and its workers end with it, however it
// ends. Method: the program itself.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

std::vector<pid_t> ProcessesOf(const pb::StatusReply& status) {
  std::vector<pid_t> pids = {static_cast<pid_t>(status.planner_pid())};
  for (const pb::Device& device : status.devices()) pids.push_back(static_cast<pid_t>(device.pid()));
  return pids;
}

// They are no children of ours: they are gone when there is no such process.
void ExpectGone(const std::vector<pid_t>& pids) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(5);
  for (const pid_t pid : pids) {
    while (kill(pid, 0) == 0 && steady_clock::now() < deadline) {
    }
    EXPECT_NE(kill(pid, 0), 0) << pid;
  }
}

// What grpc.health.v1.Health says of the whole server: "\x08\x01" is SERVING, "\x08\x02" NOT_SERVING.
std::string HealthOf(const Daemon& daemon) {
  grpc::GenericStub stub(grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &reply,
                 [&](grpc::Status status) { ended.set_value(std::move(status)); });
  const grpc::Status status = ended.get_future().get();
  grpc::Slice said;
  if (!status.ok() || !reply.DumpToSingleSlice(&said).ok()) return Text(status);
  return {reinterpret_cast<const char*>(said.begin()), said.size()};
}

TEST(Lifecycle, SigtermDrainsAndExitsWithZero) {
  Daemon daemon;
  std::vector<pid_t> pids;
  {
    Client client(daemon);
    pids = ProcessesOf(client.Status());
    const Client::Compiled compiled = client.Compile(kColumnSums);
    ASSERT_EQ(Text(compiled.status), "OK");
    const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4}));
    kill(pids[2], SIGSTOP);  // The run is under way when the signal comes.
    auto running = std::async(std::launch::async,
                              [&] { return client.Run(compiled.reply.program_id(), {put.tensor.handle()}).status; });
    Client other(daemon);
    EXPECT_TRUE(other.WaitUntil([](const pb::StatusReply& status) { return status.runs() == 1; }));
    EXPECT_TRUE(other.Status().serving());
    EXPECT_FALSE(other.Status().draining());
    EXPECT_EQ(HealthOf(daemon), "\x08\x01");
    daemon.Signal(SIGTERM);
    while (Text(other.Compile(kColumnSums).status) == "OK") {
    }
    EXPECT_FALSE(other.Status().serving()) << "what is asked for now is refused";
    EXPECT_TRUE(other.Status().draining());
    EXPECT_EQ(HealthOf(daemon), "\x08\x02");
    kill(pids[2], SIGCONT);
    EXPECT_EQ(Text(running.get()), "OK") << "what was accepted is finished";
  }
  EXPECT_EQ(daemon.Wait(), 0);
  ExpectGone(pids);
}

// The daemon has everybody's tensors.
TEST(Lifecycle, MemoryThatRunsOutCostsThePlannerAndWorkersFirst) {
  const auto score_of = [](int64_t pid) {
    int score = -2000;
    std::ifstream("/proc/" + std::to_string(pid) + "/oom_score_adj") >> score;
    return score;
  };
  const Daemon daemon;
  Client client(daemon);
  const pb::StatusReply status = client.Status();
  const int daemons = score_of(daemon.pid()), most = 1000;
  EXPECT_EQ(score_of(status.planner_pid()), std::min(most, daemons + 600));
  for (const pb::Device& device : status.devices())
    EXPECT_EQ(score_of(device.pid()), std::min(most, daemons + 500)) << "rank " << device.rank();
}

TEST(Lifecycle, APrivateDaemonEndsWithItsClient) {
  Daemon daemon;
  std::vector<pid_t> pids;
  {
    Client client(daemon);
    pids = ProcessesOf(client.Status());
  }
  daemon.LetGo();
  EXPECT_EQ(daemon.Wait(), 0);
  ExpectGone(pids);
}

TEST(Lifecycle, ChildrenEndWhenTheDaemonIsKilled) {
  Daemon daemon;
  std::vector<pid_t> pids;
  {
    Client client(daemon);
    pids = ProcessesOf(client.Status());
  }
  daemon.Signal(SIGKILL);
  EXPECT_EQ(daemon.Wait(), 128 + SIGKILL);
  ExpectGone(pids);
}

// As Status says it, so that who asks health alone sends nothing to a daemon that cannot run it.
TEST(Lifecycle, HealthSaysWhenTheMeshCannotStart) {
  std::string directory = (fs::temp_directory_path() / "hostir-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string worker = directory + "/worker";
  fs::create_symlink(Daemon::WorkerPath(), worker);
  const Daemon daemon({"--devices=cpu:2", "--worker=" + worker});
  Client client(daemon);
  EXPECT_EQ(HealthOf(daemon), "\x08\x01");
  fs::remove(worker);
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  const auto health_is = [&](const std::string& wanted) {
    return [&daemon, wanted](const pb::StatusReply&) { return HealthOf(daemon) == wanted; };
  };
  EXPECT_TRUE(client.WaitUntil(
      [](const pb::StatusReply& status) { return status.last_failure().find("cannot start") != std::string::npos; }));
  EXPECT_EQ(HealthOf(daemon), "\x08\x02");
  EXPECT_FALSE(client.Status().serving());
  fs::create_symlink(Daemon::WorkerPath(), worker);
  EXPECT_TRUE(client.WaitUntil(health_is("\x08\x01")));
  EXPECT_TRUE(client.Status().serving());
  fs::remove_all(directory);
}

// Not from when the new workers are there, but when they are connected.
TEST(Lifecycle, HealthSaysWhileTheMeshHeals) {
  std::string directory = (fs::temp_directory_path() / "hostir-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string worker = directory + "/worker", held = directory + "/held";
  std::ofstream(worker) << "#!/bin/sh\nwhile [ -e " << held << " ]; do sleep 0.01; done\nexec " << Daemon::WorkerPath()
                        << " \"$@\"\n";
  fs::permissions(worker, fs::perms::owner_all);
  const Daemon daemon({"--devices=cpu:2", "--worker=" + worker});
  Client client(daemon);
  EXPECT_EQ(HealthOf(daemon), "\x08\x01");
  std::ofstream(held) << "held";
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  EXPECT_TRUE(client.WaitUntil(
      [](const pb::StatusReply& status) { return status.generation() == 2 && status.devices(1).pid() != 0; }));
  EXPECT_EQ(HealthOf(daemon), "\x08\x02");
  EXPECT_FALSE(client.Status().serving());
  fs::remove(held);
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.serving(); }));
  EXPECT_EQ(HealthOf(daemon), "\x08\x01");
  fs::remove_all(directory);
}

// A worker that is killed while UCX makes a segment of shared memory leaves it where it was told to put those.
TEST(Lifecycle, WhatAWorkerLeavesInSharedMemoryGoes) {
  std::string directory = (fs::temp_directory_path() / "hostir-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string worker = directory + "/worker", told = directory + "/told";
  std::ofstream(worker) << "#!/bin/sh\nfor word in \"$@\"; do\n  case \"$word\" in --segments=*)\n"
                        << "    echo \"${word#*=}\" > " << told << "\n"
                        << "    echo left > \"${word#*=}/segment\";;\n  esac\ndone\nkill -9 $$\n";
  fs::permissions(worker, fs::perms::owner_all);
  const std::string failure = Daemon::FailureOf({"--devices=cpu:1", "--worker=" + worker});
  EXPECT_NE(failure.find("killed by signal 9"), std::string::npos) << failure;
  std::string segments;
  EXPECT_TRUE(std::getline(std::ifstream(told), segments)) << "no worker was told of a folder";
  EXPECT_FALSE(fs::exists(segments)) << segments;
  fs::remove_all(directory);
}

TEST(Lifecycle, SaysWhyItDoesNotStart) {
  const auto expect = [](const std::vector<std::string>& flags, const std::string& words) {
    const std::string failure = Daemon::FailureOf(flags);
    EXPECT_NE(failure.find(words), std::string::npos) << failure;
    EXPECT_NE(failure.substr(0, 2), "0 ") << failure;
  };
  expect({"--devices=cpu:0"}, "--devices=cpu:0: want cpu:N with N from 1 to 64");
  expect({"--devices=cpu:65"}, "--devices=cpu:65: want cpu:N with N from 1 to 64");
  expect({"--devices=gpu"}, "--devices=gpu: want cpu:N");
  expect({"--worker=/nowhere/hostir-worker"}, "cannot start /nowhere/hostir-worker: No such file or directory");
  expect({"--listen=tcp:127.0.0.1:0"}, "--insecure-tcp allows it on loopback");
  expect({"--listen=tcp:0.0.0.0:0", "--insecure-tcp"}, "without encryption only loopback is served");
  expect({"--listen=unix:/tmp/socket"}, "/tmp must be this user's alone (chmod 700)");
  expect({"--listen=unix:relative"}, "the path must be absolute");
  expect({"--listen=unix:/" + std::string(200, 'x')}, "a socket's path has at most 107 bytes");
  expect({"--no-such-flag"}, "--no-such-flag");
  Daemon first;
  expect({"--listen=" + first.address()}, "another daemon listens on " + first.address());
  Client client(first);  // It still serves.
  EXPECT_FALSE(client.session().empty());
}

TEST(Lifecycle, TcpOnLoopback) {
  Daemon daemon({"--listen=tcp:127.0.0.1:0", "--insecure-tcp"});
  EXPECT_EQ(daemon.address().substr(0, 10), "127.0.0.1:");
  Client client(daemon);
  EXPECT_EQ(client.Status().devices_size(), 1);
}

}  // namespace
}  // namespace hir::service
