// Goal: a header without end and cancellations without number are seen, in whatever pieces they come; what honest
// clients send is not, and neither is a descriptor that is another's by now.
// Method: frames made by hand, cut into pieces by a seeded generator; a pair of sockets for recvmsg.
#include "service/rpc/frame_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <string>

#include "csrc/base/fd.h"

namespace hir::service {
namespace {

using std::chrono::seconds;

constexpr int kData = 0, kHeaders = 1, kRstStream = 3, kContinuation = 9, kEndHeaders = 4;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(int type, int flags, size_t size) {
  std::string frame(9, '\0');
  for (size_t i = 0; i < 3; ++i) frame[i] = static_cast<char>(size >> (8 * (2 - i)));
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  frame[8] = 1;
  return frame + std::string(size, 'a');
}

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// The verdict of `watch` on `bytes`, in pieces of 1 to `most` bytes.
std::string Say(FrameWatch& watch, const std::string& bytes, size_t most, base::Nanos now = seconds(1)) {
  std::mt19937_64 random(most);
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min(bytes.size() - at, 1 + random() % most);
    const char* wrong = watch.See(std::as_bytes(std::span(bytes).subspan(at, size)), now);
    if (wrong != nullptr) return wrong;
    at += size;
  }
  return "";
}

class Pieces : public testing::TestWithParam<size_t> {};

TEST_P(Pieces, AHeaderWithoutEnd) {
  FrameWatch watch;
  EXPECT_EQ(Say(watch, kPreface + Frame(kHeaders, 0, 16000) + Times(3, Frame(kContinuation, 0, 16000)), GetParam()),
            "");
  EXPECT_EQ(Say(watch, Frame(kContinuation, 0, 16000), GetParam()), "a header of more than 64 KiB");
}

TEST_P(Pieces, HeadersThatEnd) {
  FrameWatch watch;
  const std::string call = Frame(kHeaders, 0, 16000) + Frame(kContinuation, kEndHeaders, 16000);
  EXPECT_EQ(Say(watch, kPreface + Times(10, call + Frame(kData, 0, 100) + Frame(kData, 0, 0)), GetParam()), "");
}

TEST_P(Pieces, CancellationsWithoutNumber) {
  FrameWatch watch({.resets_at_once = 10, .resets_per_second = 2});
  const std::string reset = Frame(kRstStream, 0, 4);
  EXPECT_EQ(Say(watch, kPreface + Times(10, reset), GetParam()), "");
  EXPECT_EQ(Say(watch, Times(4, reset), GetParam(), seconds(3)), "") << "in two seconds there are four more";
  EXPECT_NE(Say(watch, reset, GetParam(), seconds(3)), "");
}

INSTANTIATE_TEST_SUITE_P(Of, Pieces, testing::Values(1, 7, 100, 1 << 20));

// Both ends of a connection.
struct Pair {
  Pair() {
    int fds[2] = {-1, -1};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
    server = base::Fd(fds[0]);
    client = base::Fd(fds[1]);
  }
  void Send(const std::string& bytes) const {
    ASSERT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // As gRPC reads: into several places. -1 with errno.
  ssize_t Receive() const {
    std::string first(1000, ' '), rest(1 << 17, ' ');
    iovec places[2] = {{first.data(), first.size()}, {rest.data(), rest.size()}};
    msghdr message = {};
    message.msg_iov = places;
    message.msg_iovlen = 2;
    return recvmsg(server.get(), &message, 0);
  }
  base::Fd server, client;
};

TEST(WatchFrames, EndsAConnection) {
  const Pair pair;
  WatchFrames(pair.server.get());
  pair.Send(kPreface + Frame(kHeaders, 0, 16000));
  EXPECT_GT(pair.Receive(), 0);
  pair.Send(Times(4, Frame(kContinuation, 0, 16000)));
  EXPECT_EQ(pair.Receive(), -1);
  EXPECT_EQ(errno, ECONNRESET);
  char byte = 0;
  EXPECT_EQ(recv(pair.client.get(), &byte, 1, 0), 0) << "the other end is told";
}

TEST(WatchFrames, LeavesOthersAlone) {
  const std::string endless = kPreface + Times(5, Frame(kContinuation, 0, 16000));
  const Pair unwatched;
  unwatched.Send(endless);
  EXPECT_GT(unwatched.Receive(), 0);
  Pair closed;
  WatchFrames(closed.server.get());
  const int number = closed.server.get();
  Pair other;
  ASSERT_EQ(dup2(other.server.get(), number), number);  // The number is another socket's now.
  other.server = base::Fd(closed.server.Release());
  other.Send(endless);
  EXPECT_GT(other.Receive(), 0);
}

}  // namespace
}  // namespace hir::service
