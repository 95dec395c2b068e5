// Goal: a request in a frame is carried out once and answered, however its bytes come and go; who leaves is noticed;
// what a client claims, or leaves unfinished, costs little and ends. Method: socket pairs, of which FramedCalls has one
// end; requests are handed to the test, which answers them. Frames of random bytes.
#include "service/rpc/framed_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "hostir/v1/service.pb.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using testing::HasSubstr;

// As a client has it; ended() says that the other end is closed.
class Peer {
 public:
  explicit Peer(base::Fd fd) : fd_(std::move(fd)) {
    const timeval patience = {20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  // Whether all of it went.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  struct Answer {
    uint32_t code = 0;
    std::string bytes;
  };
  std::optional<Answer> Read() {
    std::string head;
    if (!Read(8, head)) return std::nullopt;
    Answer answer;
    uint32_t size = 0;
    std::memcpy(&size, head.data(), 4);
    std::memcpy(&answer.code, head.data() + 4, 4);
    if (!Read(size, answer.bytes)) return std::nullopt;
    return answer;
  }
  bool Ended() {
    char byte = 0;
    return recv(fd_.get(), &byte, 1, 0) == 0 || errno == ECONNRESET;
  }
  void Leave() { fd_.Close(); }

 private:
  bool Read(size_t bytes, std::string& out) {
    while (out.size() < bytes) {
      std::string part(std::min<size_t>(bytes - out.size(), 1 << 16), '\0');
      const ssize_t got = recv(fd_.get(), part.data(), part.size(), 0);
      if (got <= 0) return false;
      out.append(part, 0, static_cast<size_t>(got));
    }
    return true;
  }
  base::Fd fd_;
};

std::string Frame(std::string_view message, std::string_view method = "Run", std::string_view trace = "") {
  const auto size = static_cast<uint32_t>(message.size());
  std::string frame(6, '\0');
  std::memcpy(frame.data(), &size, 4);
  frame[4] = static_cast<char>(method.size());
  frame[5] = static_cast<char>(trace.size());
  return frame.append(method).append(trace).append(message);
}

class Framed : public testing::Test {
 protected:
  struct Taken {
    std::string method, trace, bytes;
    std::shared_ptr<FramedCall> call;
    pb::StatusReply* reply = nullptr;
  };

  void Start(const FramedCalls::Options& options = {}) {
    calls = std::make_unique<FramedCalls>(options, [this](const FramedCalls::Request& request) { Take(request); });
  }
  Peer Connect() {
    int fds[2] = {};
    HIR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    calls->Add(base::Fd(fds[0]), {});
    Peer peer{base::Fd(fds[1])};
    EXPECT_TRUE(peer.Read().has_value()) << "it is taken";
    return peer;
  }
  // The next request that has come.
  Taken Next() {
    std::unique_lock lock(mutex);
    HIR_CHECK(more.wait_for(lock, std::chrono::seconds(20), [this] { return !taken.empty(); }));
    Taken next = std::move(taken.front());
    taken.pop_front();
    return next;
  }
  static void AnswerWith(const Taken& request, const std::string& text) {
    request.reply->set_last_failure(text);
    request.call->ClaimAndEnd({});
  }
  static std::string TextOf(const std::optional<Peer::Answer>& answer) {
    pb::StatusReply reply;
    if (!answer.has_value() || answer->code != 0 || !reply.ParseFromString(answer->bytes)) return "none";
    return reply.last_failure();
  }
  bool AllOver() { return in_flight.Drain(std::chrono::seconds(20)); }

  Metrics metrics;
  CallLog log{metrics, nullptr};
  InFlight in_flight{1000};
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Taken> taken;
  bool refuses = false;  // What has no method.
  std::unique_ptr<FramedCalls> calls;

 private:
  void Take(const FramedCalls::Request& request) {
    if (refuses) return FramedCalls::Refuse(request, Status(Code::kUnimplemented, "no such method"));
    grpc::Slice whole;
    (void)request.bytes.DumpToSingleSlice(&whole);
    auto reply = std::make_unique<pb::StatusReply>();
    Taken one = {std::string(request.method), std::string(request.trace),
                 std::string(reinterpret_cast<const char*>(whole.begin()), whole.size()), nullptr, reply.get()};
    one.call = FramedCall::Make({.method = "Run"}, in_flight, log, std::move(reply), request.socket);
    const std::scoped_lock lock(mutex);
    taken.push_back(std::move(one));
    more.notify_all();
  }
};

TEST_F(Framed, RequestsAreAnsweredOneAfterTheOther) {
  Start();
  Peer peer = Connect();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(peer.Send(Frame("message " + std::to_string(i), "Wait", "a trace")));
    const Taken request = Next();
    EXPECT_EQ(request.method, "Wait");
    EXPECT_EQ(request.trace, "a trace");
    EXPECT_EQ(request.bytes, "message " + std::to_string(i));
    AnswerWith(request, "answer " + std::to_string(i));
    EXPECT_EQ(TextOf(peer.Read()), "answer " + std::to_string(i));
  }
  EXPECT_TRUE(AllOver());
}

TEST_F(Framed, BytesMayComeOneByOne) {
  Start();
  Peer peer = Connect();
  for (const char byte : Frame("message")) ASSERT_TRUE(peer.Send({&byte, 1}));
  const Taken request = Next();
  EXPECT_EQ(request.bytes, "message");
  AnswerWith(request, "answer");
  EXPECT_EQ(TextOf(peer.Read()), "answer");
}

TEST_F(Framed, ErrorsHaveTheirCodeAndText) {
  Start();
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame("")));
  Next().call->ClaimAndEnd(InvalidArgument("input 3 is wrong"));
  auto answer = peer.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, 3U);
  EXPECT_EQ(answer->bytes, "input 3 is wrong");
  refuses = true;
  ASSERT_TRUE(peer.Send(Frame("")));
  answer = peer.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, 12U);
  refuses = false;
  ASSERT_TRUE(peer.Send(Frame("")));
  AnswerWith(Next(), "goes on");
  EXPECT_EQ(TextOf(peer.Read()), "goes on");
}

// Beyond what a socket holds: the answer waits for its reader, and no thread for it.
TEST_F(Framed, LargeOnesGoInParts) {
  Start({.threads = 1});
  Peer slow = Connect();
  const std::string large(5'000'000, 'x');
  ASSERT_TRUE(slow.Send(Frame(large)));
  const Taken request = Next();
  EXPECT_EQ(request.bytes, large);
  AnswerWith(request, large);
  Peer other = Connect();
  ASSERT_TRUE(other.Send(Frame("")));
  AnswerWith(Next(), "meanwhile");
  EXPECT_EQ(TextOf(other.Read()), "meanwhile");
  EXPECT_EQ(TextOf(slow.Read()), large);
  ASSERT_TRUE(slow.Send(Frame("")));
  AnswerWith(Next(), "goes on");
  EXPECT_EQ(TextOf(slow.Read()), "goes on");
}

TEST_F(Framed, TooLargeIsRefusedAsItIsClaimed) {
  Start({.message_bytes_max = 1000});
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame(std::string(1001, 'x')).substr(0, 100)));
  const auto answer = peer.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, 8U);
  EXPECT_THAT(answer->bytes, HasSubstr("message_bytes_max = 1000: the request has 1001 bytes"));
  EXPECT_TRUE(peer.Ended());
  EXPECT_TRUE(taken.empty());
}

// What is claimed costs nothing; what has come of it does, and goes back.
TEST_F(Framed, BytesOnTheirWayAreBounded) {
  Start({.transport_bytes_max = 1'000'000});
  std::vector<Peer> claiming;
  for (int i = 0; i < 20; ++i) {
    claiming.push_back(Connect());
    ASSERT_TRUE(claiming.back().Send(Frame(std::string(900'000, 'x')).substr(0, 1000)));
  }
  Peer one = Connect();
  ASSERT_TRUE(one.Send(Frame(std::string(900'000, 'x'))));
  EXPECT_EQ(Next().bytes.size(), 900'000U);
  Peer two = Connect();
  (void)two.Send(Frame(std::string(3'000'000, 'x')));
  const auto answer = two.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, 8U);
  EXPECT_THAT(answer->bytes, HasSubstr("transport_bytes_max = 1000000"));
  Peer three = Connect();
  ASSERT_TRUE(three.Send(Frame(std::string(900'000, 'x'))));
  EXPECT_EQ(Next().bytes.size(), 900'000U);
}

TEST_F(Framed, WhoDoesNotWaitForTheAnswerIsRefused) {
  Start();
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame("one") + Frame("two")));
  const auto answer = peer.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, 3U);
  EXPECT_TRUE(peer.Ended());
}

TEST_F(Framed, WhoLeavesEndsItsCall) {
  Start();
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame("")));
  const Taken request = Next();
  peer.Leave();
  EXPECT_TRUE(AllOver());
  EXPECT_FALSE(request.call->Claim()) << "it has ended as cancelled";
}

// Whichever comes first, the answer or the end: what nobody heard of is undone once.
TEST_F(Framed, AnAnswerToOneWhoLeftIsUndone) {
  Start();
  for (int i = 0; i < 200; ++i) {
    Peer peer = Connect();
    ASSERT_TRUE(peer.Send(Frame("")));
    const Taken request = Next();
    ASSERT_TRUE(request.call->Claim());
    int undone = 0;
    request.call->IfUnheard([&undone] { ++undone; });
    std::thread leaving([&peer] { peer.Leave(); });
    if (i % 2 == 0) leaving.join();
    request.call->End({});
    if (i % 2 != 0) leaving.join();
    ASSERT_TRUE(AllOver());
    if (i % 2 == 0) {
      EXPECT_EQ(undone, 1);
    } else {
      EXPECT_LE(undone, 1);
    }
  }
}

TEST_F(Framed, AnAnswerThatIsHeardStands) {
  Start();
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame("")));
  const Taken request = Next();
  ASSERT_TRUE(request.call->Claim());
  bool undone = false;
  request.call->IfUnheard([&undone] { undone = true; });
  request.call->End({});
  EXPECT_EQ(TextOf(peer.Read()), "");
  EXPECT_TRUE(AllOver());
  peer.Leave();
  calls->Stop();
  EXPECT_FALSE(undone);
}

// Half a request, and an answer that nobody reads.
TEST_F(Framed, WhatStandsStillEnds) {
  Start({.idle = std::chrono::milliseconds(50)});
  Peer half = Connect();
  ASSERT_TRUE(half.Send(Frame("message").substr(0, 8)));
  EXPECT_TRUE(half.Ended());
  Peer deaf = Connect();
  ASSERT_TRUE(deaf.Send(Frame("")));
  const Taken request = Next();
  ASSERT_TRUE(request.call->Claim());
  std::promise<void> undone;
  request.call->IfUnheard([&undone] { undone.set_value(); });
  request.reply->set_last_failure(std::string(5'000'000, 'x'));
  request.call->End({});
  EXPECT_EQ(undone.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(AllOver());
}

TEST_F(Framed, CallsMayEndAfterTheStop) {
  Start();
  Peer waiting = Connect(), claimed = Connect();
  ASSERT_TRUE(waiting.Send(Frame("")));
  const Taken first = Next();
  ASSERT_TRUE(claimed.Send(Frame("")));
  const Taken second = Next();
  ASSERT_TRUE(second.call->Claim());
  calls->Stop();
  EXPECT_TRUE(waiting.Ended());
  EXPECT_TRUE(claimed.Ended());
  EXPECT_EQ(in_flight.under_way(), 1);
  second.call->End({});
  EXPECT_TRUE(AllOver());
  EXPECT_FALSE(first.call->Claim());
}

TEST_F(Framed, RandomBytesHarmNothing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Start({.message_bytes_max = 4000, .transport_bytes_max = 100'000});
  for (int i = 0; i < 300; ++i) {
    Peer peer = Connect();
    std::string bytes =
        random() % 2 == 0 ? Frame(std::string(random() % 5000, 'x')) : std::string(random() % 9000, 'y');
    for (unsigned changes = random() % 4; changes > 0 && !bytes.empty(); --changes) {
      bytes[random() % std::min<size_t>(bytes.size(), 16)] = static_cast<char>(random());
    }
    (void)peer.Send(bytes);
    const std::scoped_lock lock(mutex);
    for (; !taken.empty(); taken.pop_front()) taken.front().call->ClaimAndEnd({});
  }
  Peer peer = Connect();
  ASSERT_TRUE(peer.Send(Frame("last")));
  for (Taken request = Next();; request = Next()) {
    AnswerWith(request, "answer");
    if (request.bytes == "last") break;
  }
  EXPECT_EQ(TextOf(peer.Read()), "answer");
  EXPECT_TRUE(AllOver());
}

}  // namespace
}  // namespace hir::service
