// The engine over a transport that does what the test says.
#include "multidevice/comm/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <thread>

namespace hir::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a transport was told, and what it says.
struct Script {
  std::atomic<bool> over = false;  // All that is pending.
  std::atomic<int> refuses = 0;    // So many times Arm says no.
  std::atomic<int> armed = 0;
  std::atomic<int> disarmed = 0;
  std::atomic<int> disposed = 0;
  std::atomic<base::Found> found = base::Found::kNothing;
  const int fd = -1;  // Owned; readable wakes the engine's thread.

  Script() = default;
  explicit Script(int event_fd) : fd(event_fd) {}
  ~Script() {
    if (fd >= 0) close(fd);
  }
};

class ScriptedComm final : public PendingComm {
 public:
  explicit ScriptedComm(Script& script) : script_(script) {}
  void Dispose() override {
    ++script_.disposed;
    delete this;
  }
  void Begin() override {}
  void Advance() override {}
  bool over() const override { return script_.over; }
  void Cancel() override {}
  bool receiving() const override { return false; }
  bool idle() const override { return true; }
  std::string WhatIsMissing(base::Nanos) const override { return "rank 1 sleeps"; }

 private:
  Script& script_;
};

class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(Script& script) : script_(script) {}
  PendingPtr Make(Engine&, const CommOp&) override { return PendingPtr(new ScriptedComm(script_)); }
  base::Found Progress() override { return script_.found; }
  bool Arm() override {
    ++script_.armed;
    if (script_.refuses == 0) return true;
    --script_.refuses;
    return false;
  }
  void Disarm() override { ++script_.disarmed; }
  int fd() const override { return script_.fd; }
  base::Nanos sleep_max() const override { return script_.fd < 0 ? milliseconds(2) : seconds(60); }
  void Close(base::Nanos) override {}

 private:
  Script& script_;
};

class End final : public device::Completion::Target {
 public:
  void Complete(Status status) override {
    status_ = std::move(status);
    come_ = true;
  }
  bool come() const { return come_; }
  const Status& status() const { return status_; }

 private:
  Status status_;
  std::atomic<bool> come_ = false;
};

void Submit(Engine& engine, End& end) {
  EnginePost& post = engine.NewPost();
  post.ops.push_back({.desc = {.seq = 5}});
  engine.Submit(post, device::Completion(end));
}

bool Await(const std::function<bool()>& condition, const std::function<void()>& meanwhile) {
  const base::Nanos deadline = base::Clock::Steady().Now() + seconds(20);
  while (!condition() && base::Clock::Steady().Now() < deadline) meanwhile();
  return condition();
}
void Nothing() { std::this_thread::yield(); }
void Help() { base::HelpBackgroundWork(); }

// Whoever looks in place of the engine's thread does not keep the peers in the belief that it sleeps.
TEST(Engine, ItsThreadIsAwakeThoughOthersLook) {
  Script script(eventfd(0, EFD_NONBLOCK));
  {
    Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
    End end;
    Submit(engine, end);
    ASSERT_TRUE(Await([&] { return script.armed > 0; }, Nothing));
    Help();
    ASSERT_EQ(eventfd_write(script.fd, 1), 0);
    EXPECT_TRUE(Await([&] { return script.disarmed > 0; }, Help));
    EXPECT_EQ(engine.progress().entered, 5);
    EXPECT_EQ(engine.progress().left, -1);
    script.over = true;
    EXPECT_TRUE(Await([&] { return end.come(); }, Help));
    EXPECT_TRUE(end.status().ok());
    EXPECT_EQ(engine.progress().left, 5);
    EXPECT_EQ(script.disposed, 1);
  }
  EXPECT_EQ(script.armed, script.disarmed);
}

// A thread that helps may have begun what somebody else had queued, and goes when its own wait is over: if the engine's
// thread slept on, nobody would look after that communication, nor after its deadline.
TEST(Engine, WhoGoesWakesIt) {
  Script script(eventfd(0, EFD_NONBLOCK));
  Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
  End end;
  Submit(engine, end);
  ASSERT_TRUE(Await([&] { return script.armed > script.disarmed; }, Nothing));
  base::LeaveBackgroundWork();
  EXPECT_TRUE(Await([&] { return script.disarmed > 0; }, Nothing));
  script.over = true;
  EXPECT_TRUE(Await([&] { return end.come(); }, Help));
}

// Messages for a peer that takes none keep a transport from sleeping, and no event tells when the peer has room. On
// cores that ranks share, a thread that only looked would keep the peer from making it.
TEST(Engine, ATransportThatCannotSleepIsLookedAtNowAndThen) {
  Script script(eventfd(0, EFD_NONBLOCK));
  script.refuses = INT_MAX;
  Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
  End end;
  Submit(engine, end);
  ASSERT_TRUE(Await([&] { return script.armed > 0; }, Nothing));
  const base::Nanos before = base::Clock::Steady().Now();
  const int armed = script.armed;
  EXPECT_TRUE(Await([&] { return script.armed >= armed + 202; }, Nothing));
  EXPECT_GE(base::Clock::Steady().Now() - before, milliseconds(10));
  script.over = true;
  EXPECT_TRUE(Await([&] { return end.come(); }, Nothing));
}

// A signal that is left over keeps it awake once. With the first sleep it hears of what comes: no nap is in between.
TEST(Engine, ASignalOfWhatIsDoneCostsNoNap) {
  Script script(eventfd(0, EFD_NONBLOCK));
  script.refuses = 1;
  Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
  End end;
  Submit(engine, end);
  EXPECT_TRUE(Await([&] { return script.armed == 2; }, Nothing));
  EXPECT_EQ(script.disarmed, 0);
  script.over = true;
  EXPECT_TRUE(Await([&] { return end.come(); }, Help));
}

// Somebody else ends what it sleeps for, long after anything happened: who wakes it then wants it to stop.
TEST(Engine, ItStopsThoughItSleptForWhatIsOver) {
  Script script(eventfd(0, EFD_NONBLOCK));
  Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
  End end;
  Submit(engine, end);
  ASSERT_TRUE(Await([&] { return script.armed > script.disarmed; }, Nothing));
  const base::Nanos before = base::Clock::Steady().Now();
  ASSERT_TRUE(Await([&] { return base::Clock::Steady().Now() - before > milliseconds(5); }, Nothing));
  script.over = true;
  EXPECT_TRUE(Await([&] { return end.come(); }, Help));
}

// So that a thread that waits gives its core away at once where another rank needs it.
TEST(Engine, WhoHelpsIsToldWhatTheTransportFound) {
  Script script(eventfd(0, EFD_NONBLOCK));
  Engine engine(std::make_unique<ScriptedTransport>(script), seconds(60));
  End end;
  Submit(engine, end);
  script.found = base::Found::kNeedsCore;
  base::Found found = base::Found::kNothing;  // As long as the engine's thread has the turn.
  EXPECT_TRUE(Await([&] { return found != base::Found::kNothing; }, [&] { found = base::HelpBackgroundWork(); }));
  EXPECT_EQ(found, base::Found::kNeedsCore);
  script.found = base::Found::kNothing;
  EXPECT_EQ(base::HelpBackgroundWork(), base::Found::kNothing);
  script.over = true;
  EXPECT_TRUE(Await([&] { return end.come(); }, Help));
}

TEST(Engine, ADeadlineNeedsNobodyWhoWaits) {
  Script script;
  Engine engine(std::make_unique<ScriptedTransport>(script), milliseconds(50));
  End first, second;
  Submit(engine, first);
  Submit(engine, second);
  EXPECT_TRUE(Await([&] { return first.come() && second.come(); }, Nothing));
  EXPECT_EQ(first.status().ToString(), "DEADLINE_EXCEEDED: rank 1 sleeps");
  EXPECT_EQ(second.status().ToString(), "DEADLINE_EXCEEDED: rank 1 sleeps");
  EXPECT_EQ(engine.failure().code(), Code::kDeadlineExceeded);
  End third;
  Submit(engine, third);
  EXPECT_EQ(third.status().code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace hir::comm
