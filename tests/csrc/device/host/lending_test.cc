// A thread that waits for a stream works meanwhile: on an executor that has no thread of its own, so that who does what
// is certain.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "csrc/base/background_work.h"
#include "csrc/device/host/host_device.h"

namespace hir::device {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations in tests.

constexpr base::Nanos kLong = 30s;

// Runs what is posted where a thread lends itself, and the rest where it sleeps.
class Lending final : public Executor {
 public:
  explicit Lending(int num_threads) : num_threads_(num_threads) {}
  int num_threads() const override { return num_threads_; }
  bool direct() const override { return true; }
  bool Post(int64_t, std::function<void()> work) override {
    queue_.push_back(std::move(work));
    return true;
  }
  bool LendThread() override {
    if (queue_.empty()) return false;
    ++num_lent_;
    RunFirst("lent");
    return true;
  }
  bool Block(std::unique_lock<std::mutex>& lock, std::condition_variable&, const std::function<bool()>& done,
             base::Nanos timeout) override {
    if (timeout <= base::Nanos{}) return done();
    lock.unlock();
    RunAll();
    lock.lock();
    return done();
  }
  void RunAll() {
    while (!queue_.empty()) RunFirst("pool");
  }
  const std::string& who() const { return who_; }  // Runs what is running.
  int num_lent() const { return num_lent_; }

 private:
  void RunFirst(std::string who) {
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    who_ = std::move(who);
    work();
    who_ = "nobody";
  }

  const int num_threads_;
  std::deque<std::function<void()>> queue_;
  std::string who_ = "nobody";
  int num_lent_ = 0;
};

class Lent : public testing::Test {
 protected:
  void Start(int num_threads) {
    executor_ = std::make_unique<Lending>(num_threads);
    device_ = *CreateHostDevice({}, *executor_);
    stream_ = *device_->CreateStream();
  }
  // Helpers that came too late still hold the stream.
  void TearDown() override { executor_->RunAll(); }
  static void Note(const int64_t* args, int64_t begin, int64_t end) {
    auto& test = *reinterpret_cast<Lent*>(args[0]);
    for (int64_t i = begin; i < end; ++i) test.who_.push_back(test.executor_->who());
  }
  // args: the test, and a flag that every item sets at its end.
  static void WaitInTheFirst(const int64_t* args, int64_t begin, int64_t end) {
    Note(args, begin, end);
    auto& test = *reinterpret_cast<Lent*>(args[0]);
    if (begin == 0) test.status_ = test.stream_->Synchronize(kLong);
    *reinterpret_cast<bool*>(args[1]) = true;
  }
  void Launch(int64_t grid = 1) { stream_->Launch(kNote, std::array{reinterpret_cast<int64_t>(this)}, grid); }

  static const HostKernel kNote;
  std::unique_ptr<Lending> executor_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Status status_;
  std::vector<std::string> who_;  // Ran each item of a launch, and each callback.
};
const HostKernel Lent::kNote({.name = "note", .function = Note});

using Names = std::vector<std::string>;

struct Communication final : base::BackgroundWork {
  Communication() { base::AddBackgroundWork(*this); }
  ~Communication() override { base::RemoveBackgroundWork(*this); }
  base::Found Help() override { return base::Found::kNothing; }
  void Leave() override {}
  bool IsUnderWay() const override { return is_under_way || (launches && !launches->empty()); }
  bool is_under_way = false;
  const Names* launches = nullptr;  // Where given: from the first of them on.
};

TEST_F(Lent, WhoWaitsRunsKernelsAndCallbacks) {
  Start(1);
  Launch(2);
  stream_->HostCallback([this] {
    who_.push_back(executor_->who());
    return Status();
  });
  Launch();
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"lent", "lent", "lent", "lent"}));
  EXPECT_EQ(executor_->num_lent(), 1);
}

TEST_F(Lent, WhoWaitsRunsASplitLaunch) {
  Start(4);
  Launch(1000);
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, Names(1000, "lent"));
}

TEST_F(Lent, WhatIsNotWaitedForIsLeftToThePool) {
  Start(1);
  const auto event = *device_->CreateEvent();
  Launch();
  stream_->Record(*event);
  Launch();
  ASSERT_TRUE(event->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"lent"}));
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"lent", "lent"}));
}

TEST_F(Lent, WhoseTimeIsOverRunsNothing) {
  Start(1);
  for (int i = 0; i < 3; ++i) Launch();
  const Status status = stream_->Synchronize(base::Nanos{});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  EXPECT_EQ(who_, Names{});
  ASSERT_TRUE(stream_->Synchronize(base::Nanos::max()).ok());
  EXPECT_EQ(who_, (Names{"lent", "lent", "lent"}));
}

// A thread that waits carries communications, and nobody else may look after them.
TEST_F(Lent, CommunicationsComeFirst) {
  Communication communication;
  communication.is_under_way = true;
  Start(1);
  Launch();
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"pool"}));
  communication.is_under_way = false;
  Launch();
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"pool", "lent"}));
}

// The first item waits for the launch that it is of: so a helper is lent while the owner is at work.
TEST_F(Lent, AHelperThatLeavesALaunchPostsAnother) {
  Communication communication;
  Start(2);
  const HostKernel wait({.name = "wait", .function = WaitInTheFirst});
  const std::array args = {reinterpret_cast<int64_t>(this), reinterpret_cast<int64_t>(&communication.is_under_way)};
  stream_->Launch(wait, args, 8);
  executor_->RunAll();
  EXPECT_EQ(who_, (Names{"pool", "lent", "pool", "pool", "pool", "pool", "pool", "pool"}));
  EXPECT_EQ(executor_->num_lent(), 1);
  EXPECT_EQ(status_.code(), Code::kDeadlineExceeded) << "it waited for itself";
}

// One that begins while a thread is lent is carried before its next launch.
TEST_F(Lent, ACommunicationEndsALoan) {
  Start(1);
  Communication communication;
  communication.launches = &who_;
  Launch();
  Launch();
  ASSERT_TRUE(stream_->Synchronize(kLong).ok());
  EXPECT_EQ(who_, (Names{"lent", "pool"}));
}

}  // namespace
}  // namespace hir::device
