// The thread that follows communications, alone: on a host device, with an NCCL that is slow to answer.
#include "multidevice/comm/nccl/watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "csrc/device/host/host_device.h"
#include "tests/csrc/device/pending_operation.h"

namespace hir::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Told final : device::Completion::Target {
  void Complete(Status status) override { outcome = std::move(status); }
  Status outcome = Internal("not told");
};

bool Until(const std::function<bool()>& holds) {
  const base::Nanos end = base::Clock::Steady().Now() + seconds(20);
  while (!holds() && base::Clock::Steady().Now() < end) std::this_thread::sleep_for(milliseconds(1));
  return holds();
}

// It sleeps when nothing is in flight. A look that took long, because NCCL or the machine were slow, is no reason to:
// nobody would wake it, so progress would stand still, and deadlines pass.
TEST(Watch, ALongLookDoesNotPutItToSleep) {
  const auto device = *device::CreateHostDevice({.name = "host"});
  const auto stream = *device->CreateStream();
  Told told;
  std::atomic<int> looks = 0;
  {
    Watch watch({.rank = 0,
                 .op_timeout = seconds(60),
                 .device = device.get(),
                 .async_error =
                     [&looks] {
                       std::this_thread::sleep_for(milliseconds(120));
                       ++looks;
                       return Status();
                     },
                 .abort = [] {}});
    device::PendingOperation op;
    InFlight what = *watch.Take();
    what.entered_seq = what.last_seq = 5;
    what.over = device::Completion(told);
    stream->Record(*what.entered);
    stream->Enqueue(op);
    stream->Record(*what.left);
    watch.Follow(*stream, std::move(what));
    EXPECT_TRUE(Until([&] { return looks >= 1 && watch.progress().entered == 5; }));
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(watch.progress().left, -1);
    op.WaitStarted();
    op.Done();
    EXPECT_TRUE(Until([&] { return watch.progress().left == 5; }));
    EXPECT_TRUE(stream->Synchronize(seconds(20)).ok());
  }
  EXPECT_TRUE(told.outcome.ok()) << told.outcome.ToString();
}

// The end of one is the begin of the next where work follows at once.
TEST(Watch, WhatFollowsIsEnteredWhenItsPredecessorIsLeft) {
  const auto device = *device::CreateHostDevice({.name = "host"});
  const auto stream = *device->CreateStream();
  Told told[3];
  device::PendingOperation ops[3];
  Watch watch(
      {.op_timeout = seconds(60), .device = device.get(), .async_error = [] { return Status(); }, .abort = [] {}});
  for (int64_t i = 0; i < 3; ++i) {
    const auto at = static_cast<size_t>(i);
    InFlight what = *watch.Take();
    what.entered_seq = what.last_seq = i;
    what.follows = i > 0;
    what.over = device::Completion(told[at]);
    if (i == 0) stream->Record(*what.entered);
    stream->Enqueue(ops[at]);
    stream->Record(*what.left);
    watch.Follow(*stream, std::move(what));
  }
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(Until([&] { return watch.progress().entered == i; })) << i;
    EXPECT_EQ(watch.progress().left, i - 1);
    ops[i].WaitStarted();
    ops[i].Done();
  }
  EXPECT_TRUE(Until([&] { return watch.progress().left == 2; }));
  EXPECT_TRUE(stream->Synchronize(seconds(20)).ok());
}

// One look may find the ends of posts of several streams: progress is that of the latest post, whatever stream is
// looked at last.
TEST(Watch, ProgressDoesNotGoBackToAnEarlierPostOfAnotherStream) {
  const auto device = *device::CreateHostDevice({.name = "host"});
  const auto a = *device->CreateStream(), b = *device->CreateStream();
  struct ToldLast final : device::Completion::Target {
    void Complete(Status) override { told = true; }
    std::atomic<bool> told = false;
  } last;
  Told told[2];
  std::atomic<bool> looks = false, may_look = false;
  Watch watch({.op_timeout = seconds(60),
               .device = device.get(),
               .async_error =
                   [&] {
                     looks = true;
                     EXPECT_TRUE(Until([&] { return may_look.load(); }));
                     return Status();
                   },
               .abort = [] {}});
  device::PendingOperation ops[3];
  const auto follow = [&](device::Stream& stream, int64_t seq, device::Completion::Target& target) {
    InFlight what = *watch.Take();
    what.entered_seq = what.last_seq = seq;
    what.over = device::Completion(target);
    stream.Record(*what.entered);
    stream.Enqueue(ops[seq]);
    stream.Record(*what.left);
    watch.Follow(stream, std::move(what));
  };
  follow(*a, 0, told[0]);
  EXPECT_TRUE(Until([&] { return looks.load(); }));  // Now it does not look.
  follow(*b, 1, last);
  follow(*a, 2, told[1]);
  for (device::PendingOperation& op : ops) {
    op.WaitStarted();
    op.Done();
  }
  EXPECT_TRUE(a->Synchronize(seconds(20)).ok());
  EXPECT_TRUE(b->Synchronize(seconds(20)).ok());
  may_look = true;
  EXPECT_TRUE(Until([&] { return last.told.load(); }));  // The look is at b, after a.
  EXPECT_EQ(watch.progress().entered, 2);
  EXPECT_EQ(watch.progress().left, 2);
}

}  // namespace
}  // namespace hir::comm
