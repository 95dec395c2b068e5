// Goal: a program has as many plans as its sizes need, and no more: a size that a plan serves makes none, the one not
// used for longest goes, and a size that no plan serves is refused by the guard.
// Method: a planner of this test's own (this binary, started as a worker would be), whose plans of size i0 serve the
// powers of two around it, up to 1024; it counts nothing, the cache does. It is stopped where a plan is to take long.
#include "service/engine/program_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hostir/v1/worker.pb.h"
#include "service/os/channel.h"
#include "service/os/process.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

void AddGuard(const std::string& left, const std::string& right, bool replans, pb::Plan& plan) {
  pb::PlanGuard& guard = *plan.add_guards();
  guard.set_left(left);
  guard.set_right(right);
  guard.set_condition(left + " <= " + right);
  guard.set_kind(pb::PlanGuard::KIND_AT_MOST);
  guard.set_replans(replans);
  guard.set_reason(replans ? "the bucket" : "the program");
}

// Without sizes the plan of a program whose text has "gpu" is provisional, of others it serves up to 8.
pb::Plan PlanOf(const pb::MakePlan& asked) {
  pb::Plan plan;
  plan.set_name("p");
  pb::PlanParam& x = *plan.add_inputs();
  x.set_name("x");
  x.set_dtype(pb::DTYPE_FLOAT32);
  x.add_shape("i0");
  AddGuard("i0", "4096", /*replans=*/false, plan);
  const auto size = asked.sizes().find("i0");
  if (size == asked.sizes().end()) {
    plan.set_provisional(asked.program().text().find("gpu") != std::string::npos);
    AddGuard("i0", "8", /*replans=*/true, plan);
    return plan;
  }
  const uint64_t above = std::bit_ceil(static_cast<uint64_t>(size->second));
  AddGuard("i0", std::to_string(std::min<uint64_t>(above, 1024)), /*replans=*/true, plan);
  AddGuard(std::to_string(above / 2 + 1), "i0", /*replans=*/true, plan);
  return plan;
}

// Each look at it finds it later, so that all plans take as long.
class TickingClock : public base::Clock {
 public:
  base::Nanos Now() const override { return tick * ++ticks_; }

  base::Nanos tick = std::chrono::milliseconds(1);

 private:
  mutable std::atomic<int64_t> ticks_ = 0;
};

// It hangs over a program that has "hang".
[[noreturn]] void ServePlans() {
  Channel channel{base::Fd(kInheritedFd)};
  for (;;) {
    auto received = channel.Receive(/*block=*/true);
    pb::ToWorker message;
    if (!received.ok() || !message.ParseFromString((*received)->bytes)) _exit(0);
    pb::FromWorker answer;
    answer.set_seq(message.seq());
    for (int compiled = 0; compiled <= 2; ++compiled) {
      pb::PlanProgress& progress = *answer.mutable_plan_progress();
      progress.set_stage(pb::PlanProgress::STAGE_COMPILING);
      progress.set_kernels_compiled(compiled);
      progress.set_kernels(2);
      if (!channel.Send(answer.SerializeAsString(), {}, std::chrono::seconds(10)).ok()) _exit(1);
    }
    if (message.make_plan().program().text().find("hang") != std::string::npos) pause();
    *answer.mutable_plan_made()->mutable_plan() = PlanOf(message.make_plan());
    if (!channel.Send(answer.SerializeAsString(), {}, std::chrono::seconds(10)).ok()) _exit(1);
  }
}

class Plans : public testing::Test {
 protected:
  explicit Plans(int64_t program_plans_max = 16) : Plans(MakeLimits(program_plans_max)) {}
  explicit Plans(const Limits& limits)
      : cache(
            {.worker_path = "/proc/self/exe"}, limits, std::make_shared<Metrics>(), [this] { return several.load(); },
            clock) {}
  static Limits MakeLimits(int64_t program_plans_max) {
    Limits limits;
    limits.planners = 1;
    limits.program_plans_max = program_plans_max;
    return limits;
  }
  // The process of the `index`th planner, once there is one.
  pid_t Planner(size_t index = 0) const {
    for (;;) {
      const std::vector<int64_t> pids = cache.planner_pids();
      if (index < pids.size() && pids[index] != 0) return static_cast<pid_t>(pids[index]);
      std::this_thread::yield();
    }
  }
  using Made = Result<std::shared_ptr<const Program>>;
  static pb::ProgramSource SourceOf(const std::string& text) {
    pb::ProgramSource source;
    source.set_text(text);
    return source;
  }
  // The program of `text`, spelled as `sent`.
  Made Get(const std::string& text, const std::string& sent) {
    std::promise<Made> made;
    cache.Get(text, SourceOf(sent), [&](Made program) { made.set_value(std::move(program)); });
    return made.get_future().get();
  }
  Made Get(const std::string& text) { return Get(text, text); }
  std::shared_ptr<const Program> FindSent(const std::string& sent) {
    return cache.FindSent(SourceOf(sent).SerializeAsString());
  }
  Made For(const std::shared_ptr<const Program>& program, int64_t size) {
    std::promise<Made> made;
    cache.GetFor(program, {{"i0", size}}, [&](Made sized) { made.set_value(std::move(sized)); });
    return made.get_future().get();
  }
  std::string ErrorFor(const std::shared_ptr<const Program>& program, int64_t size) {
    const Made made = For(program, size);
    return made.ok() ? "OK" : made.status().ToString();
  }

  TickingClock clock;
  std::atomic<bool> several = false;  // Principals.
  ProgramCache cache;
};

TEST_F(Plans, ANewSizePlansAgainOnlyInAnotherBucket) {
  const std::shared_ptr<const Program> program = *Get("p");
  EXPECT_FALSE(program->ServesAll());
  for (int64_t size = 1; size <= 8; ++size) EXPECT_EQ(*For(program, size), program);
  EXPECT_EQ(cache.num_planned(), 1);
  for (int round = 0; round < 2; ++round) {
    for (int64_t size = 1; size <= 1024; ++size) ASSERT_TRUE(For(program, size).ok()) << size;
  }
  EXPECT_EQ(cache.num_planned(), 1 + 7) << "9..16, 17..32, ..., 513..1024";
  EXPECT_EQ((*For(program, 100))->id(), program->id()) << "clients see one program";
  EXPECT_NE((*For(program, 100))->number(), program->number()) << "workers see two";
}

TEST_F(Plans, AProvisionalPlanRunsNothing) {
  const std::shared_ptr<const Program> program = *Get("gpu");
  EXPECT_FALSE(program->Serves({{"i0", 4}}).ok());
  EXPECT_NE(*For(program, 4), program);
  EXPECT_EQ(cache.num_planned(), 2);
  EXPECT_EQ(*For(program, 3), *For(program, 4));
  EXPECT_EQ(cache.num_planned(), 2);
}

TEST_F(Plans, ASizeThatNoPlanServesIsRefusedByTheGuard) {
  const std::shared_ptr<const Program> program = *Get("p");
  EXPECT_EQ(ErrorFor(program, 2000), "INVALID_ARGUMENT: i0 <= 1024 does not hold with i0 = 2000: the bucket");
  EXPECT_TRUE(program->CheckSizes({{"i0", 2000}}).ok());
  EXPECT_EQ(program->CheckSizes({{"i0", 5000}}).ToString(),
            "INVALID_ARGUMENT: i0 <= 4096 does not hold with i0 = 5000: the program");
}

TEST_F(Plans, WhatWasSentBeforeIsFoundUnparsed) {
  EXPECT_EQ(FindSent("p"), nullptr);
  const std::shared_ptr<const Program> program = *Get("p", "p");
  EXPECT_EQ(FindSent("p"), program);
  EXPECT_EQ(FindSent("p "), nullptr) << "another spelling, until somebody has parsed it";
  EXPECT_EQ(*Get("p", "p "), program) << "the two meet at the canonical text";
  EXPECT_EQ(FindSent("p "), program);
  EXPECT_EQ(FindSent("p"), program);
  EXPECT_EQ(cache.num_planned(), 1);
  EXPECT_NE(*Get("gpu", "q"), program);
  EXPECT_EQ(FindSent("p"), program);
}

// As a client sends them that changes a comment each time: as many as fit are kept.
TEST_F(Plans, AnotherSpellingOnEveryThread) {
  const std::shared_ptr<const Program> program = *Get("p");
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 200; ++i) {
        const std::string sent = "p " + std::to_string((client * 50 + i) % 300);
        EXPECT_EQ(*Get("p", sent), program);
        EXPECT_EQ(FindSent(sent), program);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(cache.num_planned(), 1);
}

class TwoPrograms : public Plans {
 protected:
  static Limits MakeLimits() {
    Limits limits = Plans::MakeLimits(16);
    limits.programs_max = 2;
    return limits;
  }
  TwoPrograms() : Plans(MakeLimits()) {}
};

TEST_F(TwoPrograms, AnEvictedProgramLeavesNoText) {
  ASSERT_TRUE(Get("p0", "p0").ok());
  ASSERT_TRUE(Get("p0", " p0").ok());
  ASSERT_TRUE(Get("p1").ok());
  EXPECT_NE(FindSent("p0"), nullptr) << "which uses it: p1 is not used for longest";
  const int64_t bytes = cache.text_bytes();
  ASSERT_TRUE(Get("p2").ok());
  EXPECT_EQ(FindSent("p1"), nullptr);
  EXPECT_EQ(cache.text_bytes(), bytes) << "p1 went, p2 came";
  ASSERT_TRUE(Get("p3").ok());
  ASSERT_TRUE(Get("p4").ok());
  EXPECT_EQ(FindSent("p0"), nullptr);
  EXPECT_EQ(FindSent(" p0"), nullptr);
  EXPECT_LT(cache.text_bytes(), bytes) << "p0 had two texts";
}

TEST_F(TwoPrograms, TheLatestAreTold) {
  const std::shared_ptr<const Program> first = *Get("p0");
  const std::shared_ptr<const Program> second = *Get("p1");
  ASSERT_TRUE(cache.Find(first->id()).ok());
  ASSERT_NE(FindSent("p0"), nullptr);
  const std::shared_ptr<const Program> sized = *For(first, 10);
  const std::vector<ProgramCache::Cached> latest = cache.Latest();
  ASSERT_EQ(latest.size(), 2U);
  EXPECT_EQ(latest[0].number, first->number());
  EXPECT_EQ(latest[0].requests, 2);
  EXPECT_EQ(latest[0].program, sized) << "the plan that was used last";
  EXPECT_EQ(latest[1].number, second->number());
  EXPECT_EQ(latest[1].requests, 0) << "but the one it was made for";
  EXPECT_EQ(latest[1].program, second);
}

// Room for the texts of two programs of two letters each, as messages of four bytes.
class TwoTexts : public Plans {
 protected:
  static Limits MakeLimits() {
    Limits limits = Plans::MakeLimits(16);
    limits.program_texts_bytes_max = 2 * (4 + ProgramTexts::kEntryBytes);
    return limits;
  }
  TwoTexts() : Plans(MakeLimits()) {}
};

TEST_F(TwoTexts, TheOneNotUsedForLongestGoes) {
  const std::shared_ptr<const Program> first = *Get("p0");
  ASSERT_TRUE(Get("p1").ok());
  EXPECT_EQ(FindSent("p0"), first) << "at the limit";
  ASSERT_TRUE(Get("p2").ok());
  EXPECT_EQ(FindSent("p1"), nullptr);
  EXPECT_EQ(FindSent("p0"), first);
  EXPECT_NE(FindSent("p2"), nullptr);
  const std::string longer(2 * (4 + ProgramTexts::kEntryBytes), ' ');
  EXPECT_EQ(*Get("p0", longer), first);
  EXPECT_EQ(FindSent(longer), nullptr) << "it alone does not fit";
  EXPECT_EQ(FindSent("p0"), first) << "and costs the others nothing";
  EXPECT_EQ(cache.num_planned(), 3);
}

// What one who waits is told, as "queued behind 1", "compiling 1/2", "done"; then what it got.
// As Order below: kept by those who tell.
struct Heard {
  struct Kept {
    std::mutex mutex;
    std::vector<std::string> told;
    std::promise<void> over;

    void Add(std::string what) {
      const std::scoped_lock lock(mutex);
      told.push_back(std::move(what));
    }
  };
  std::shared_ptr<Kept> kept = std::make_shared<Kept>();

  ProgramCache::Progress Listener() const {
    return [kept = kept](const pb::PlanProgress& progress) {
      if (progress.stage() == pb::PlanProgress::STAGE_QUEUED)
        kept->Add("queued behind " + std::to_string(progress.plans_before()));
      if (progress.stage() == pb::PlanProgress::STAGE_COMPILING)
        kept->Add("compiling " + std::to_string(progress.kernels_compiled()) + "/" +
                  std::to_string(progress.kernels()));
      if (progress.stage() == pb::PlanProgress::STAGE_DONE) kept->Add("done");
    };
  }
  ProgramCache::Done Done() const {
    return [kept = kept](const Result<std::shared_ptr<const Program>>& made) {
      kept->Add(made.ok() ? "got it" : made.status().ToString());
      kept->over.set_value();
    };
  }
  std::vector<std::string> Told() const {
    const std::scoped_lock lock(kept->mutex);
    return kept->told;
  }
  void Wait() const { kept->over.get_future().get(); }
};

TEST_F(Plans, WhoWaitsHearsHowFarItsPlanIs) {
  Heard first, second;
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);  // Until both have asked.
  pb::ProgramSource source;
  source.set_text("p");
  cache.Get("p", source, first.Done(), {.progress = first.Listener()});
  source.set_text("q");
  cache.Get("q", source, second.Done(), {.progress = second.Listener()});
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  first.Wait();
  second.Wait();
  const std::vector<std::string> made = {"compiling 0/2", "compiling 1/2", "compiling 2/2", "done", "got it"};
  std::vector<std::string> wanted = {"queued behind 0"};
  wanted.insert(wanted.end(), made.begin(), made.end());
  EXPECT_EQ(first.Told(), wanted);
  wanted[0] = "queued behind 1";
  EXPECT_EQ(second.Told(), wanted);
  Heard third;  // It is there.
  cache.Get("q", source, third.Done(), {.progress = third.Listener()});
  EXPECT_EQ(third.Told(), std::vector<std::string>{"got it"});
}

// The clients that heard, and when: kept by those who tell, who may be at it when the test has heard enough.
struct Order {
  explicit Order(size_t most) : wanted(most) {}
  std::mutex mutex;
  const size_t wanted;
  std::vector<std::string> heard;
  std::promise<void> all;

  void Add(std::string what) {
    const std::scoped_lock lock(mutex);
    heard.push_back(std::move(what));
    if (heard.size() == wanted) all.set_value();
  }
};

// Asks for the plan of `text` in `session`; `order` hears of it, or of what came in its place.
void Ask(ProgramCache& cache, const Owner& owner, const std::string& text, std::shared_ptr<Order> order) {
  pb::ProgramSource source;
  source.set_text(text);
  cache.Get(text, source,
            [order = std::move(order), text](const Result<std::shared_ptr<const Program>>& made) {
              order->Add(made.ok() ? text : text + " " + made.status().ToString());
            },
            {.owner = owner});
}
void Ask(ProgramCache& cache, const std::string& session, const std::string& text, std::shared_ptr<Order> order) {
  Ask(cache, Owner{.session = session}, text, std::move(order));
}

// What a session that has ended asked for alone is not planned, but for what has begun.
TEST_F(Plans, WhoHasGoneWaitsNoMore) {
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);
  const auto order = std::make_shared<Order>(9);
  for (const char* text : {"a1", "a2", "a3", "a4"}) Ask(cache, "a", text, order);
  for (const char* text : {"b1", "b2", "b3"}) Ask(cache, "b", text, order);
  Ask(cache, "c", "a4", order);  // Waits with the other.
  Ask(cache, "c", "c1", order);
  cache.Cancel({.session = "b"}, Status(Code::kCancelled, "gone"));
  cache.Cancel({.session = "a"}, Status(Code::kCancelled, "gone"));
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  order->all.get_future().get();
  const std::scoped_lock lock(order->mutex);
  EXPECT_EQ(order->heard, (std::vector<std::string>{"b1 CANCELLED: gone", "b2 CANCELLED: gone", "b3 CANCELLED: gone",
                                                    "a2 CANCELLED: gone", "a3 CANCELLED: gone", "a4 CANCELLED: gone",
                                                    "a1", "c1", "a4"}));
}

TEST_F(Plans, SessionsTakeTurns) {
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);
  const auto order = std::make_shared<Order>(7);
  for (const std::string text : {"a1", "a2", "a3", "a4", "b1", "b2", "c1"}) Ask(cache, text.substr(0, 1), text, order);
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  order->all.get_future().get();
  const std::scoped_lock lock(order->mutex);
  EXPECT_EQ(order->heard, (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}));
}

TEST_F(Plans, PrincipalsTakeTurnsBeforeTheirSessions) {
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);
  const auto order = std::make_shared<Order>(9);
  for (const std::string text : {"a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"})
    Ask(cache, Owner{text[0] == 'c' ? "carol" : "ann", text.substr(0, 1)}, text, order);
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  order->all.get_future().get();
  const std::scoped_lock lock(order->mutex);
  EXPECT_EQ(order->heard, (std::vector<std::string>{"a1", "c1", "b1", "c2", "a2", "c3", "b2", "a3", "b3"}));
}

TEST_F(Plans, ASmallProgramDoesNotWaitForLargeOnes) {
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);
  const auto order = std::make_shared<Order>(5);
  for (const char* session : {"a", "b", "c"}) Ask(cache, session, session + std::string(1000, 'x'), order);
  for (const char* session : {"d", "e"}) Ask(cache, session, session, order);
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  order->all.get_future().get();
  const std::scoped_lock lock(order->mutex);
  std::string sessions;
  for (const std::string& text : order->heard) sessions += text[0];
  EXPECT_EQ(sessions, "adebc") << "the first had begun";
}

TEST_F(Plans, EveryoneWhoWaitsGetsOnePlan) {
  const std::shared_ptr<const Program> program = *Get("p");
  std::vector<std::promise<Made>> made(4);
  for (auto& promise : made) {
    cache.GetFor(program, {{"i0", 300}}, [&promise](Made sized) { promise.set_value(std::move(sized)); });
  }
  const Made first = made[0].get_future().get();
  for (size_t i = 1; i < made.size(); ++i) EXPECT_EQ(*made[i].get_future().get(), *first);
  EXPECT_EQ(cache.num_planned(), 2);
}

class TwoPlanners : public Plans {
 protected:
  static Limits MakeLimits() {
    Limits limits = Plans::MakeLimits(16);
    limits.planners = 2;
    return limits;
  }
  TwoPlanners() : Plans(MakeLimits()) {}
  // What came of it, in the end.
  static std::vector<std::string> All(Order& order) {
    order.all.get_future().get();
    const std::scoped_lock lock(order.mutex);
    return order.heard;
  }
};

TEST_F(TwoPlanners, WhoHasOnePlannedLeavesTheLastToOthers) {
  ASSERT_EQ(kill(Planner(), SIGSTOP), 0);
  const auto order = std::make_shared<Order>(2), small = std::make_shared<Order>(2);
  for (const char* text : {"a1", "a2"}) Ask(cache, "a", text, order);
  EXPECT_EQ(cache.planner_pids().size(), 1U) << "the second starts when it is needed";
  Ask(cache, "b", "b1", small);
  Ask(cache, "c", "c1", small);
  EXPECT_EQ(All(*small), (std::vector<std::string>{"b1", "c1"})) << "while a1 is planned";
  EXPECT_EQ(cache.planner_pids().size(), 2U);
  EXPECT_EQ(cache.num_queued(), 2);
  ASSERT_EQ(kill(Planner(), SIGCONT), 0);
  EXPECT_EQ(All(*order), (std::vector<std::string>{"a1", "a2"}));
}

TEST_F(TwoPlanners, APrincipalsSessionsAreOneWhereThereAreOthers) {
  several = true;
  ASSERT_EQ(kill(Planner(), SIGSTOP), 0);
  const auto order = std::make_shared<Order>(2), other = std::make_shared<Order>(1);
  Ask(cache, Owner{"ann", "a"}, "a1", order);
  Ask(cache, Owner{"ann", "b"}, "b1", order);
  Ask(cache, Owner{"carol", "c"}, "c1", other);
  EXPECT_EQ(All(*other), std::vector<std::string>{"c1"});
  EXPECT_EQ(cache.num_queued(), 2) << "b1 waits for a1: the other planner is for carol";
  ASSERT_EQ(kill(Planner(), SIGCONT), 0);
  EXPECT_EQ(All(*order), (std::vector<std::string>{"a1", "b1"}));
}

TEST_F(TwoPlanners, OneProgramIsPlannedOnce) {
  ASSERT_EQ(kill(Planner(), SIGSTOP), 0);
  const auto order = std::make_shared<Order>(2);
  for (const char* session : {"a", "b"}) Ask(cache, session, "p", order);
  EXPECT_EQ(cache.num_queued(), 1);
  ASSERT_EQ(kill(Planner(), SIGCONT), 0);
  EXPECT_EQ(All(*order), (std::vector<std::string>{"p", "p"}));
  EXPECT_EQ(cache.num_planned(), 1);
}

TEST_F(TwoPlanners, OneProgramIsPlannedOnceOnEveryThread) {
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 100; ++i) {
        const auto order = std::make_shared<Order>(1);
        Ask(cache, std::to_string(client), "p" + std::to_string(i), order);
        EXPECT_EQ(All(*order), std::vector<std::string>{"p" + std::to_string(i)});
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(cache.num_planned(), 100);
}

TEST_F(TwoPlanners, APlannerThatDiesCostsItsOwnProgram) {
  const auto dead = std::make_shared<Order>(1), order = std::make_shared<Order>(1);
  std::promise<void> begun;
  std::once_flag once;
  pb::ProgramSource source = SourceOf("hang");
  cache.Get("hang", source,
            [dead](const Made& made) { dead->Add(made.ok() ? "OK" : std::string(CodeName(made.status().code()))); },
            {.owner = {.session = "a"}, .progress = [&](const pb::PlanProgress& progress) {
               if (progress.stage() == pb::PlanProgress::STAGE_COMPILING)
                 std::call_once(once, [&] { begun.set_value(); });
             }});
  begun.get_future().get();
  Ask(cache, "b", "b1", order);
  EXPECT_EQ(All(*order), std::vector<std::string>{"b1"});
  const pid_t first = Planner(0), second = Planner(1);
  ASSERT_EQ(kill(first, SIGSEGV), 0);
  EXPECT_EQ(All(*dead), std::vector<std::string>{"UNAVAILABLE"});
  EXPECT_TRUE(Get("p").ok());
  EXPECT_EQ(Planner(1), second);
  EXPECT_NE(Planner(0), first);
}

class PlanSecondsOfAPrincipal : public Plans {
 protected:
  static Limits MakeLimits() {
    Limits limits = Plans::MakeLimits(16);
    limits.principal_plan_seconds_max = 1;
    return limits;
  }
  PlanSecondsOfAPrincipal() : Plans(MakeLimits()) {}
};

TEST_F(PlanSecondsOfAPrincipal, WhoHasUsedThemUpIsRefused) {
  clock.tick = std::chrono::milliseconds(700);  // Of each plan.
  const pid_t planner = Planner();
  ASSERT_EQ(kill(planner, SIGSTOP), 0);
  const auto order = std::make_shared<Order>(5), later = std::make_shared<Order>(1);
  for (const char* text : {"a1", "a2", "a3", "a4"}) Ask(cache, Owner{"ann", "a"}, text, order);
  Ask(cache, Owner{"carol", "c"}, "a4", order);  // Waits with the other.
  ASSERT_EQ(kill(planner, SIGCONT), 0);
  order->all.get_future().get();
  Ask(cache, Owner{"ann", "a"}, "a5", later);
  later->all.get_future().get();
  const std::scoped_lock lock(order->mutex, later->mutex);
  std::vector<std::string> began;
  order->heard.push_back(later->heard[0]);
  for (const std::string& heard : order->heard) began.push_back(heard.substr(0, heard.find(" = 1:")));
  const std::string refused = " RESOURCE_EXHAUSTED: principal_plan_seconds_max";
  EXPECT_EQ(began, (std::vector<std::string>{"a1", "a2", "a3" + refused, "a4" + refused, "a4", "a5" + refused}));
}

class ProgramsOfAPrincipal : public Plans {
 protected:
  static Limits MakeLimits() {
    Limits limits = Plans::MakeLimits(16);
    limits.programs_max = 4;
    limits.principal_programs_max = 3;
    return limits;
  }
  ProgramsOfAPrincipal() : Plans(MakeLimits()) {}
  void Plan(const std::string& principal, const std::string& text) {
    std::promise<bool> made;
    cache.Get(text, SourceOf(text), [&](const Made& program) { made.set_value(program.ok()); },
              {.owner = {principal, principal}});
    EXPECT_TRUE(made.get_future().get());
  }
  std::string Kept() {
    std::string kept;
    for (const char* text : {"a1", "a2", "a3", "a4", "b1", "b2", "b3"}) {
      if (FindSent(text) != nullptr) kept += std::string(kept.empty() ? "" : " ") + text;
    }
    return kept;
  }
};

TEST_F(ProgramsOfAPrincipal, ItsOwnGoFirst) {
  Plan("bob", "b1");
  for (const char* text : {"a1", "a2", "a3"}) Plan("ann", text);
  EXPECT_EQ(Kept(), "a1 a2 a3 b1");
  ASSERT_NE(FindSent("a1"), nullptr);
  Plan("ann", "a4");
  EXPECT_EQ(Kept(), "a1 a3 a4 b1") << "a2, not b1: that was bob's";
}

TEST_F(ProgramsOfAPrincipal, BeyondAllWhoHasMostLosesOne) {
  for (const char* text : {"b1", "a1", "a2", "a3"}) Plan(text[0] == 'a' ? "ann" : "bob", text);
  Plan("bob", "b2");
  EXPECT_EQ(Kept(), "a2 a3 b1 b2") << "though b1 was used before a1";
  Plan("bob", "b3");
  EXPECT_EQ(Kept(), "a2 a3 b2 b3") << "both have two and bob comes with a third";
  EXPECT_EQ(cache.size(), 4);
}

class TwoPlans : public Plans {
 protected:
  TwoPlans() : Plans(2) {}
};

TEST_F(TwoPlans, TheOneNotUsedForLongestGoes) {
  const std::shared_ptr<const Program> program = *Get("p");
  const int64_t first = (*For(program, 10))->number();
  const int64_t second = (*For(program, 20))->number();
  EXPECT_TRUE(cache.TakeGone().empty()) << "at the limit";
  EXPECT_EQ((*For(program, 10))->number(), first);
  ASSERT_TRUE(For(program, 40).ok());
  EXPECT_EQ(cache.TakeGone(), std::vector<int64_t>{second});
  EXPECT_EQ((*For(program, 10))->number(), first);
  EXPECT_EQ(cache.num_planned(), 4);
  ASSERT_TRUE(For(program, 20).ok());
  EXPECT_EQ(cache.num_planned(), 5) << "it is planned again";
}

// A run that waits for its turn has the workers load its program, also when the cache gave it up meanwhile. So the
// workers are to drop it when the last such run is over, not before, when nothing would tell them again.
TEST_F(TwoPlans, AnEvictedPlanIsGoneWhenItsLastRunIs) {
  const std::shared_ptr<const Program> program = *Get("p");
  std::shared_ptr<const Program> run = *For(program, 10);
  std::shared_ptr<const Program> next_run = run;
  const int64_t number = run->number();
  ASSERT_TRUE(For(program, 20).ok());
  ASSERT_TRUE(For(program, 40).ok());  // The third: that of 10 goes.
  EXPECT_EQ(cache.FindFor(program, {{"i0", 10}}), nullptr);
  EXPECT_TRUE(cache.TakeGone().empty()) << "two runs hold it";
  run = nullptr;
  EXPECT_TRUE(cache.TakeGone().empty()) << "one run holds it";
  next_run = nullptr;
  EXPECT_EQ(cache.TakeGone(), std::vector<int64_t>{number});
  EXPECT_TRUE(cache.TakeGone().empty()) << "told once";
}

}  // namespace
}  // namespace hir::service

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--role=planner") hir::service::ServePlans();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
