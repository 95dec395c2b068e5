// Goal: the listener serves who speaks HTTP/2, names them, keeps to its limits, survives a lack of descriptors and
// leaves none open.
// Method: a listener in this process that serves into a list, and sockets of the test as its clients; then one that
// serves into gRPC.
#include "service/rpc/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "hostir/v1/service.grpc.pb.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr seconds kPatience = seconds(20);

int64_t NumFds() {
  const auto fds = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(fds), end(fds));
}

// Waits for `done`, which nothing tells of.
template <typename Done>
bool Until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// What gRPC does with a connection: it holds the descriptor for a while.
class Server {
 public:
  void Take(int fd) {
    const std::scoped_lock lock(mutex_);
    fds_.emplace_back(fd);
    more_.notify_all();
  }
  // The number of the descriptor of the `count`th connection; -1: it has not come in time.
  int WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    if (!more_.wait_for(lock, kPatience, [&] { return fds_.size() >= count; })) return -1;
    return fds_[count - 1].get();
  }
  size_t count() {
    const std::scoped_lock lock(mutex_);
    return fds_.size();
  }
  void CloseAll() {
    const std::scoped_lock lock(mutex_);
    fds_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<base::Fd> fds_;
};

// A connected socket.
class Peer {
 public:
  // "unix:/path" or "127.0.0.1:port".
  explicit Peer(const std::string& address) {
    const bool is_unix = address.starts_with("unix:");
    fd_ = base::Fd(socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    HIR_CHECK(fd_.valid());
    if (is_unix) {
      sockaddr_un name = {};
      name.sun_family = AF_UNIX;
      address.copy(name.sun_path, sizeof(name.sun_path) - 1, 5);
      connected_ = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
    } else {
      sockaddr_in name = {};
      name.sin_family = AF_INET;
      name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      name.sin_port = htons(static_cast<in_port_t>(std::stoi(address.substr(address.rfind(':') + 1))));
      connected_ = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
    }
  }
  bool connected() const { return connected_; }
  void Send(const std::string& bytes) const {
    // It may be closed already.
    (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Whether the other end has closed it; waits for that.
  bool Ended() const {
    pollfd waited = {fd_.get(), POLLRDHUP, 0};
    return poll(&waited, 1, static_cast<int>(milliseconds(kPatience).count())) == 1;
  }
  bool EndedAlready() const {
    pollfd waited = {fd_.get(), POLLRDHUP, 0};
    return poll(&waited, 1, 0) == 1;
  }

 private:
  base::Fd fd_;
  bool connected_ = false;
};

// No descriptor is free until it ends, but those that it frees.
class NoDescriptors {
 public:
  NoDescriptors() {
    HIR_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(HighestFd() + 1 + kFillersMin);
    HIR_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    // The limit is on the numbers: holes in their row are filled, too.
    for (base::Fd filler = Filler(); filler.valid(); filler = Filler()) fillers_.push_back(std::move(filler));
    HIR_CHECK(errno == EMFILE && fillers_.size() >= kFillersMin);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  void FreeOne() {
    HIR_CHECK(!fillers_.empty());
    fillers_.pop_back();
  }

 private:
  static constexpr size_t kFillersMin = 2;
  static base::Fd Filler() { return base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }
  static size_t HighestFd() {
    size_t highest = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      highest = std::max<size_t>(highest, std::stoul(each.path().filename().string()));
    return highest;
  }
  rlimit before_ = {};
  std::vector<base::Fd> fillers_;
};

class ListenerTest : public testing::Test {
 protected:
  ListenerTest() {
    std::string directory = (std::filesystem::temp_directory_path() / "hostir-test-XXXXXX").string();
    HIR_CHECK(mkdtemp(directory.data()) != nullptr);
    directory_ = directory;
  }
  ~ListenerTest() override {
    listener_ = nullptr;
    std::filesystem::remove_all(directory_);
  }
  std::string path() const { return directory_ + "/socket"; }
  void Open(const ListenerOptions& options = {}, const Address& address = {}) {
    auto listener = Listener::Open(address.target.empty() ? Address{true, path()} : address, options);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
    listener_->Start({.serve = [this](int fd) { server_.Take(fd); }});
  }
  std::unique_ptr<Peer> Connect() { return std::make_unique<Peer>(listener_->address()); }
  std::unique_ptr<Peer> Speak() {
    auto peer = Connect();
    peer->Send(kPreface);
    return peer;
  }

  Server server_;
  std::unique_ptr<Listener> listener_;
  std::string directory_;
};

// A client that wants descriptors is told from one that speaks HTTP/2, however its words arrive, with its token.
TEST_F(ListenerTest, GivesDescriptors) {
  auto listener = Listener::Open({true, path()}, {.preface_timeout = milliseconds(300)});
  ASSERT_TRUE(listener.ok());
  listener_ = *std::move(listener);
  std::mutex mutex;
  std::condition_variable more;
  std::vector<std::string> tokens;
  listener_->Start(
      {.serve = [this](int fd) { server_.Take(fd); },
       .exchange =
           [&](const base::Fd&, std::string_view token, const std::vector<base::Fd>&, const Listener::Peer& peer) {
             const std::scoped_lock lock(mutex);
             tokens.push_back(std::string(token) + (peer.uid == getuid() ? "" : " of another"));
             more.notify_all();
           }});
  const std::string preface(Listener::kMemoryPreface);
  const std::string token(Listener::kTokenBytes, 'a');
  const auto whole = Connect();
  whole->Send(preface + token);
  const auto split = Connect();
  split->Send(preface.substr(0, 7));
  split->Send(preface.substr(7) + token.substr(1));
  const auto half = Connect();
  half->Send(preface + token.substr(1));
  const auto wrong = Connect();
  wrong->Send("HOSTIR-SHARED-MEMORY/2");
  EXPECT_TRUE(wrong->Ended());
  EXPECT_TRUE(half->Ended()) << "in time";
  split->Send("b");
  EXPECT_TRUE(whole->Ended());
  EXPECT_TRUE(split->Ended());
  Speak();
  EXPECT_NE(server_.WaitFor(1), -1);
  const std::scoped_lock lock(mutex);
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(tokens[0], token);
  EXPECT_EQ(server_.count(), 1U) << "gRPC has none of them";
}

TEST_F(ListenerTest, GivesNoDescriptorsOverTcp) {
  auto listener = Listener::Open({false, "127.0.0.1:0"}, {});
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  listener_ = *std::move(listener);
  listener_->Start({.serve = [this](int fd) { server_.Take(fd); },
                    .exchange = [](const base::Fd&, std::string_view, const std::vector<base::Fd>&,
                                   const Listener::Peer&) { FAIL(); },
                    .frames = [](const base::Fd&, const Listener::Peer&) { FAIL(); }});
  for (const std::string_view preface : {Listener::kMemoryPreface, Listener::kFramesPreface}) {
    const auto peer = Connect();
    peer->Send(std::string(preface) + std::string(Listener::kTokenBytes, 'a'));
    EXPECT_TRUE(peer->Ended()) << preface;
  }
}

// Its words may come one by one; what comes behind the preface is left for who takes the connection.
TEST_F(ListenerTest, GivesConnectionsOfFrames) {
  auto listener = Listener::Open({true, path()}, {});
  ASSERT_TRUE(listener.ok());
  listener_ = *std::move(listener);
  std::promise<std::pair<base::Fd, Listener::Peer>> taken;
  listener_->Start({.serve = [this](int fd) { server_.Take(fd); },
                    .frames =
                        [&](base::Fd fd, const Listener::Peer& peer) {
                          taken.set_value({std::move(fd), peer});
                        }});
  const std::string preface(Listener::kFramesPreface);
  const auto peer = Connect();
  peer->Send(preface.substr(0, 9));
  peer->Send(preface.substr(9) + "rest");
  auto [fd, who] = taken.get_future().get();
  EXPECT_EQ(who.uid, getuid());
  EXPECT_EQ(listener_->connections(), 1);
  std::string rest(64, ' ');
  EXPECT_EQ(recv(fd.get(), rest.data(), rest.size(), 0), 4);
  EXPECT_EQ(rest.substr(0, 4), "rest");
  fd.Close();
  EXPECT_TRUE(peer->Ended());
  EXPECT_EQ(listener_->connections(), 0);
}

TEST_F(ListenerTest, NamesWhoConnects) {
  Open();
  EXPECT_EQ(listener_->address(), "unix:" + path());
  struct stat info = {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const auto peer = Speak();
  const int fd = server_.WaitFor(1);
  const auto who = listener_->PeerOf("fd:" + std::to_string(fd));
  ASSERT_TRUE(who.has_value());
  EXPECT_EQ(who->uid, getuid());
  EXPECT_EQ(who->pid, getpid());
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  std::string read(kPreface.size(), ' ');
  EXPECT_EQ(recv(fd, read.data(), read.size(), 0), static_cast<ssize_t>(read.size()));
  EXPECT_EQ(read, kPreface) << "nothing has been read from it";
  for (const char* other : {"unix:", "fd:", "fd:1", "fd:x", ""}) EXPECT_FALSE(listener_->PeerOf(other)) << other;
  server_.CloseAll();
  EXPECT_FALSE(listener_->PeerOf("fd:" + std::to_string(fd))) << "closed";
}

TEST_F(ListenerTest, OverTcpNobodyIsNamed) {
  Open({}, {false, "127.0.0.1:0"});
  EXPECT_THAT(listener_->address(), testing::MatchesRegex("127.0.0.1:[1-9][0-9]*"));
  const auto peer = Speak();
  const int fd = server_.WaitFor(1);
  ASSERT_GE(fd, 0);
  EXPECT_FALSE(listener_->PeerOf("fd:" + std::to_string(fd)));
  const auto taken = Listener::Open({false, listener_->address()}, {});
  EXPECT_EQ(taken.status().ToString(),
            "UNAVAILABLE: cannot listen on tcp:" + listener_->address() + ": Address already in use");
}

TEST_F(ListenerTest, AnAddressThatIsNone) {
  EXPECT_EQ(Listener::Open({true, directory_ + "/none/socket"}, {}).status().ToString(),
            "UNAVAILABLE: cannot listen on unix:" + directory_ + "/none/socket: No such file or directory");
}

TEST_F(ListenerTest, AtTheLimitANewcomerIsClosed) {
  Open({.connections_max = 2});
  const auto first = Speak();
  ASSERT_GE(server_.WaitFor(1), 0);
  const auto silent = Connect();  // Counts, too.
  EXPECT_TRUE(Until([this] { return listener_->connections() == 2; }));
  EXPECT_TRUE(Speak()->Ended());
  EXPECT_EQ(listener_->refused(), 1);
  EXPECT_FALSE(first->EndedAlready());
  EXPECT_FALSE(silent->EndedAlready());
  silent->Send(kPreface);
  ASSERT_GE(server_.WaitFor(2), 0);
  EXPECT_EQ(listener_->connections(), 2);
  server_.CloseAll();
  EXPECT_EQ(listener_->connections(), 0);
  const auto next = Speak();
  EXPECT_GE(server_.WaitFor(1), 0);
  EXPECT_EQ(listener_->refused(), 1);
}

TEST_F(ListenerTest, WhoDoesNotSpeakHttp2IsClosed) {
  Open({.preface_timeout = milliseconds(100)});
  const auto silent = Connect(), half = Connect(), other = Connect();
  half->Send(kPreface.substr(0, 10));
  other->Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(other->Ended());
  EXPECT_TRUE(silent->Ended());
  EXPECT_TRUE(half->Ended());
  EXPECT_EQ(server_.count(), 0U);
  EXPECT_TRUE(Until([this] { return listener_->connections() == 0; }));
}

TEST_F(ListenerTest, WithTlsAHandshakeBegins) {
  Open({.preface_timeout = milliseconds(100), .tls = true}, {false, "127.0.0.1:0"});
  const std::string hello("\x16\x03\x01\x02\x00\x01", 6);
  const auto silent = Connect(), half = Connect(), plain = Speak(), alert = Connect();
  half->Send(hello.substr(0, 5));
  alert->Send(std::string("\x15\x03\x01\x00\x02\x02", 6));
  EXPECT_TRUE(plain->Ended());
  EXPECT_TRUE(alert->Ended());
  EXPECT_TRUE(silent->Ended());
  EXPECT_TRUE(half->Ended());
  EXPECT_EQ(server_.count(), 0U);
  const auto spoken = Connect();
  for (const char byte : hello) spoken->Send(std::string(1, byte));
  EXPECT_GE(server_.WaitFor(1), 0);
}

TEST_F(ListenerTest, APrefaceMayComeInPieces) {
  Open();
  const auto peer = Connect();
  EXPECT_TRUE(Until([this] { return listener_->connections() == 1; }));
  for (const char byte : kPreface) {
    EXPECT_EQ(server_.count(), 0U);
    peer->Send(std::string(1, byte));
  }
  EXPECT_GE(server_.WaitFor(1), 0);
  // One that leaves before it has said all of it costs nothing.
  Connect()->Send(kPreface.substr(0, 3));
  EXPECT_TRUE(Until([this] { return listener_->connections() == 1; }));
}

TEST_F(ListenerTest, WithoutADescriptorANewcomerWaitsForOne) {
  Open({.full_timeout = kPatience});
  const auto waiting = Connect();
  waiting->Send("P");
  EXPECT_TRUE(Until([this] { return listener_->connections() == 1; }));
  NoDescriptors none;
  none.FreeOne();  // The newcomer's own.
  const auto newcomer = Speak();
  ASSERT_TRUE(newcomer->connected());
  waiting->Send(kPreface.substr(1));  // Who is connected is served on.
  EXPECT_GE(server_.WaitFor(1), 0);
  EXPECT_EQ(server_.count(), 1U);
  none.FreeOne();
  EXPECT_GE(server_.WaitFor(2), 0);
  EXPECT_EQ(listener_->refused(), 0);
}

TEST_F(ListenerTest, WithoutADescriptorForLongANewcomerIsClosed) {
  Open({.full_timeout = milliseconds(100)});
  {
    NoDescriptors none;
    none.FreeOne();  // The newcomer's own.
    const auto newcomer = Connect();
    EXPECT_TRUE(newcomer->connected());
    EXPECT_TRUE(newcomer->Ended());
    EXPECT_EQ(listener_->refused(), 1);
  }
  const auto peer = Speak();
  EXPECT_GE(server_.WaitFor(1), 0) << "there are descriptors again";
}

TEST_F(ListenerTest, StoppingLeavesNothing) {
  const int64_t before = NumFds();
  Open();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(i % 2 == 0 ? Connect() : Speak());
  EXPECT_GE(server_.WaitFor(50), 0);
  EXPECT_TRUE(Until([this] { return listener_->connections() == 100; }));
  listener_->Stop();
  EXPECT_EQ(listener_->connections(), 50) << "those that are served";
  EXPECT_TRUE(peers[0]->Ended());
  EXPECT_FALSE(peers[1]->EndedAlready());
  EXPECT_FALSE(Connect()->connected());
  listener_->Stop();
  peers.clear();
  server_.CloseAll();
  listener_ = nullptr;
  EXPECT_EQ(NumFds(), before);
}

// The last: gRPC's own threads and descriptors come and go in the tests above otherwise.
// Answers a Status with who asked for it.
class WhoAsks final : public ::hostir::v1::Runtime::CallbackService {
 public:
  explicit WhoAsks(const std::unique_ptr<Listener>& listener) : listener_(listener) {}

 private:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const ::hostir::v1::StatusRequest*,
                                   ::hostir::v1::StatusReply* reply) override {
    const auto who = listener_->PeerOf(context->peer());
    if (who.has_value()) reply->set_version(std::to_string(who->uid) + " " + std::to_string(who->pid));
    reply->set_connections(listener_->connections());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  const std::unique_ptr<Listener>& listener_;
};

TEST_F(ListenerTest, GrpcServesItsConnections) {
  for (const Address& address : {Address{true, path()}, Address{false, "127.0.0.1:0"}}) {
    WhoAsks service(listener_);
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    ASSERT_NE(server, nullptr);
    auto listener = Listener::Open(address, {});
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
    listener_->Start({.serve = [&server](int fd) { grpc::AddInsecureChannelFromFd(server.get(), fd); }});
    {
      const auto stub =
          ::hostir::v1::Runtime::NewStub(grpc::CreateChannel(listener_->address(), grpc::InsecureChannelCredentials()));
      for (int i = 0; i < 2; ++i) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + kPatience);
        ::hostir::v1::StatusReply reply;
        const grpc::Status status = stub->Status(&context, {}, &reply);
        EXPECT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(reply.version(),
                  address.is_unix ? std::to_string(getuid()) + " " + std::to_string(getpid()) : std::string());
        EXPECT_EQ(reply.connections(), 1);
      }
    }
    EXPECT_TRUE(Until([this] { return listener_->connections() == 0; })) << "gRPC hears of the client's leaving";
    const auto peer = Speak();
    EXPECT_TRUE(Until([this] { return listener_->connections() == 1; }));
    listener_->Stop();
    server->Shutdown(std::chrono::system_clock::now());
    EXPECT_TRUE(peer->Ended());
    listener_ = nullptr;
    std::filesystem::remove(path());
  }
}

}  // namespace
}  // namespace hir::service
