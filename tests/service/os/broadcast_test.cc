// Goal: every receiver gets every message once, nobody sleeps through a message or a ring, and the sender hears of the
// last answer alone; between processes, and with a receiver that dies.
#include "service/os/broadcast.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

BroadcastSender Sender(int64_t num_receivers) {
  Result<BroadcastSender> made = BroadcastSender::Create(num_receivers);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

BroadcastReceiver Receiver(const BroadcastSender& sender, int64_t index = 0) {
  Result<BroadcastReceiver> made =
      BroadcastReceiver::Map(base::Fd(dup(sender.memory_fd())), base::Fd(dup(sender.answered_fd())), index);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

void Post(BroadcastSender& sender, std::string_view text) {
  std::memcpy(sender.message().data(), text.data(), text.size());
  sender.Post(text.size());
}

bool IsReadable(int fd, milliseconds timeout) {
  pollfd readable = {fd, POLLIN, 0};
  return poll(&readable, 1, static_cast<int>(timeout.count())) == 1;
}

// The next message; also when it is there already.
std::string Next(BroadcastReceiver& receiver) {
  for (;;) {
    const uint32_t bell = receiver.bell();
    if (const auto message = receiver.Take()) return std::string(*message);
    receiver.Sleep(bell, seconds(10));
  }
}

TEST(Broadcast, AMessageIsTakenOnceByEach) {
  BroadcastSender sender = Sender(2);
  BroadcastReceiver first = Receiver(sender), second = Receiver(sender);
  EXPECT_TRUE(sender.answered());
  EXPECT_FALSE(first.Take());
  Post(sender, "one");
  EXPECT_EQ(first.Take(), "one");
  EXPECT_FALSE(first.Take());
  EXPECT_EQ(second.Take(), "one");
  first.Answer(false);
  second.Answer(false);
  Post(sender, "");
  EXPECT_EQ(first.Take(), "");
}

TEST(Broadcast, WhoHasNotHeardTheLatestRing) {
  BroadcastSender sender = Sender(2);
  BroadcastReceiver first = Receiver(sender, 0), second = Receiver(sender, 1);
  EXPECT_EQ(sender.Deaf(), std::vector<int64_t>{});
  sender.Ring();
  EXPECT_EQ(sender.Deaf(), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(first.TakeRing());
  EXPECT_EQ(sender.Deaf(), std::vector<int64_t>{1});
  EXPECT_TRUE(second.TakeRing());
  EXPECT_EQ(sender.Deaf(), std::vector<int64_t>{});
  sender.Ring();
  sender.Ring();  // Two of them are heard as one.
  EXPECT_TRUE(second.TakeRing());
  EXPECT_FALSE(second.TakeRing());
  EXPECT_EQ(sender.Deaf(), std::vector<int64_t>{0});
  EXPECT_EQ(BroadcastSender::Create(kReceiversMax + 1).status().code(), Code::kInvalidArgument);
}

TEST(Broadcast, TheLastAnswerIsHeard) {
  BroadcastSender sender = Sender(2);
  BroadcastReceiver first = Receiver(sender), second = Receiver(sender);
  for (const bool fails : {false, true, false}) {
    Post(sender, "run");
    ASSERT_TRUE(first.Take() && second.Take());
    first.Answer(fails);
    EXPECT_FALSE(sender.answered());
    EXPECT_FALSE(IsReadable(sender.answered_fd(), milliseconds(0)));
    second.Answer(false);
    EXPECT_TRUE(sender.answered());
    EXPECT_EQ(sender.failed(), fails);
    EXPECT_TRUE(IsReadable(sender.answered_fd(), milliseconds(0)));
    sender.Clear();
    EXPECT_FALSE(IsReadable(sender.answered_fd(), milliseconds(0)));
  }
}

TEST(Broadcast, WhoLooksForTheLastAnswerIsNotWoken) {
  BroadcastSender sender = Sender(1);
  BroadcastReceiver receiver = Receiver(sender);
  const auto is_readable = [&] { return IsReadable(sender.answered_fd(), milliseconds(0)); };
  Post(sender, "run");
  sender.Look();
  ASSERT_TRUE(receiver.Take());
  receiver.Answer(false);
  EXPECT_TRUE(sender.answered());
  EXPECT_FALSE(is_readable());
  sender.StopLooking();
  EXPECT_TRUE(is_readable()) << "what was answered meanwhile";
  sender.Clear();
  Post(sender, "run");
  sender.Look();
  sender.StopLooking();
  EXPECT_FALSE(is_readable());
  ASSERT_TRUE(receiver.Take());
  receiver.Answer(false);
  EXPECT_TRUE(is_readable()) << "nobody looks any more";
  sender.Clear();
  Post(sender, "run");
  sender.Look();
  ASSERT_TRUE(receiver.Take());
  receiver.Answer(false);
  Post(sender, "run");
  ASSERT_TRUE(receiver.Take());
  receiver.Answer(false);
  EXPECT_TRUE(is_readable()) << "nobody looks for the answers of the next message";
}

// However the two meet, the answer is seen or heard.
TEST(Broadcast, WhoStopsLookingMissesNothing) {
  BroadcastSender sender = Sender(1);
  constexpr int kRounds = 2000;
  std::thread answers([receiver = Receiver(sender)]() mutable {
    for (int i = 0; i < kRounds; ++i) {
      (void)Next(receiver);
      receiver.Answer(false);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    Post(sender, "run");
    sender.Look();
    for (int looked = 0; looked < i % 50 && !sender.answered(); ++looked) std::this_thread::yield();
    sender.StopLooking();
    while (!sender.answered()) {
      ASSERT_TRUE(IsReadable(sender.answered_fd(), seconds(10)));
      if (!sender.answered()) sender.Clear();  // Of the one before.
    }
  }
  answers.join();
}

TEST(Broadcast, MessagesAreAsLongAsTheyMayBe) {
  BroadcastSender sender = Sender(1);
  BroadcastReceiver receiver = Receiver(sender);
  const std::string longest(kBroadcastBytesMax, 'x');
  Post(sender, longest);
  EXPECT_EQ(receiver.Take(), longest);
  receiver.Answer(false);
  EXPECT_DEATH(sender.Post(kBroadcastBytesMax + 1), "");
}

TEST(Broadcast, NoMessageBeforeTheLastIsAnswered) {
  BroadcastSender sender = Sender(1);
  Post(sender, "one");
  EXPECT_DEATH(Post(sender, "two"), "");
}

TEST(Broadcast, ARingWakesWithoutAMessage) {
  BroadcastSender sender = Sender(1);
  BroadcastReceiver receiver = Receiver(sender);
  const uint32_t bell = receiver.bell();
  sender.Ring();
  receiver.Sleep(bell, seconds(100));  // Returns at once: it rang after the look at the bell.
  EXPECT_FALSE(receiver.Take());
  EXPECT_TRUE(receiver.TakeRing());
  EXPECT_FALSE(receiver.TakeRing());
}

TEST(Broadcast, SleepEndsAtItsTimeout) {
  BroadcastSender sender = Sender(1);
  BroadcastReceiver receiver = Receiver(sender);
  const auto start = std::chrono::steady_clock::now();
  for (const uint32_t bell = receiver.bell(); std::chrono::steady_clock::now() - start < milliseconds(20);) {
    receiver.Sleep(bell, milliseconds(20));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

// Sender and receivers run into each other in every order: a wake that is lost hangs.
TEST(Broadcast, ManyMessagesToManyThreads) {
  constexpr int kReceivers = 4, kMessages = 5000;
  BroadcastSender sender = Sender(kReceivers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kReceivers; ++i) {
    threads.emplace_back([receiver = Receiver(sender)]() mutable {
      for (int n = 0; n < kMessages; ++n) {
        EXPECT_EQ(Next(receiver), std::to_string(n));
        receiver.Answer(n % 7 == 0);
      }
    });
  }
  for (int n = 0; n < kMessages; ++n) {
    Post(sender, std::to_string(n));
    if (n % 3 == 0) sender.Ring();
    while (!sender.answered()) ASSERT_TRUE(IsReadable(sender.answered_fd(), seconds(10)));
    EXPECT_EQ(sender.failed(), n % 7 == 0);
    sender.Clear();
  }
  for (std::thread& thread : threads) thread.join();
}

// What a receiver that dies leaves behind is a message without its answer, and no harm to the sender.
TEST(Broadcast, AReceiverThatDiesDoesNotAnswer) {
  BroadcastSender sender = Sender(2);
  const auto child = [&](bool answers) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    BroadcastReceiver receiver = Receiver(sender);
    for (;;) {
      if (Next(receiver) == "end") _exit(0);
      if (answers) receiver.Answer(false);
    }
  };
  const pid_t good = child(true), bad = child(false);
  Post(sender, "run");
  kill(bad, SIGKILL);
  EXPECT_EQ(waitpid(bad, nullptr, 0), bad);
  EXPECT_FALSE(IsReadable(sender.answered_fd(), milliseconds(50)));
  EXPECT_FALSE(sender.answered());
  kill(good, SIGKILL);
  EXPECT_EQ(waitpid(good, nullptr, 0), good);
}

TEST(Broadcast, MemoryOfAnotherSize) {
  Result<SharedMemory> small = SharedMemory::Create(64);
  ASSERT_TRUE(small.ok());
  const auto mapped = BroadcastReceiver::Map(base::Fd(dup(small->fd())), base::Fd(), 0);
  EXPECT_EQ(mapped.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hir::service
