// Goal: over TLS a daemon serves who shows a certificate that its authority signed, by the certificate's name, refuses
// everybody else, and goes on.
// Method: a daemon on loopback, and clients whose certificates authorities of this process have signed.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "hostir/v1/service.grpc.pb.h"
#include "service/tls/authority.h"
#include "tests/service/support/daemon.h"

namespace hir::service {
namespace {

using base::Cat;
using std::chrono::seconds;
using testing::HasSubstr;

class TlsDaemon : public testing::Test {
 protected:
  TlsDaemon() {
    std::string folder = (std::filesystem::temp_directory_path() / "hostir-test-XXXXXX").string();
    HIR_CHECK(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
    ca_ = MakeAuthority();
    other_ca_ = MakeAuthority();
    const Issued server = Issue(*ca_, {"localhost", "127.0.0.1"}, TlsSide::kServer);
    Write("ca.pem", ca_->own().cert);
    Write("server.pem", server.cert);
    Write("server.key", server.key);
    const std::string in = folder_ + "/";
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--devices=cpu:1", "--listen=tcp:127.0.0.1:0", Cat("--tls-cert=", in, "server.pem"),
                                 Cat("--tls-key=", in, "server.key"), Cat("--tls-client-ca=", in, "ca.pem")});
  }
  ~TlsDaemon() override {
    daemon_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  static std::unique_ptr<Authority> MakeAuthority() {
    auto made = Authority::Make("test authority", 10);
    HIR_CHECK(made.ok());
    return *std::move(made);
  }
  static Issued Issue(const Authority& authority, const std::vector<std::string>& names, TlsSide side,
                      int64_t days = 10) {
    const Result<Issued> issued = authority.Issue(names, side, days);
    HIR_CHECK(issued.ok());
    return *issued;
  }
  Issued Client(const std::string& name) const { return Issue(*ca_, {name}, TlsSide::kClient); }
  // Whole at once: a file that is read meanwhile is the old one or the new one.
  void Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path + ".new") << text;
    chmod((path + ".new").c_str(), 0600);
    std::filesystem::rename(path + ".new", path);
  }

  // A connection of its own.
  std::unique_ptr<pb::Runtime::Stub> Connect(const Issued& client) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const grpc::SslCredentialsOptions options = {ca_->own().cert, client.key, client.cert};
    return pb::Runtime::NewStub(
        grpc::CreateCustomChannel(daemon_->address(), grpc::SslCredentials(options), arguments));
  }
  static grpc::Status Ask(pb::Runtime::Stub& stub) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    pb::StatusReply reply;
    return stub.Status(&context, {}, &reply);
  }
  grpc::Status AskAs(const Issued& client) const { return Ask(*Connect(client)); }
  // Opens a session, so that the log names its principal: the line.
  std::string SessionOf(const Issued& client) const {
    const auto stub = Connect(client);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    const auto events = stub->Connect(&context, {});
    pb::SessionEvent event;
    EXPECT_TRUE(events->Read(&event));
    context.TryCancel();
    events->Finish();
    return Cat("session=", event.session_id().substr(0, 8), " opened ");
  }

  // The log, which is written behind what it tells of, once it has `text`; as it is after 20 s without.
  std::string LogWith(const std::string& text) const {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    std::string log = daemon_->Log();
    for (; log.find(text) == std::string::npos && std::chrono::steady_clock::now() < end; log = daemon_->Log()) {
      std::this_thread::yield();
    }
    return log;
  }

  std::string folder_;
  std::unique_ptr<Authority> ca_, other_ca_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(TlsDaemon, ACertificateIsAPrincipal) {
  const std::string alice = SessionOf(Client("alice"));
  const std::string bob = SessionOf(Client("bob"));
  const std::string job = SessionOf(Client("spiffe://here/job"));
  EXPECT_THAT(LogWith(alice), HasSubstr(Cat(alice, "principal=\"cert:alice\"")));
  EXPECT_THAT(LogWith(bob), HasSubstr(Cat(bob, "principal=\"cert:bob\"")));
  EXPECT_THAT(LogWith(job), HasSubstr(Cat(job, "principal=\"cert:spiffe://here/job\"")));
}

TEST_F(TlsDaemon, ANameIsOneWordOfTheLog) {
  const auto stub = Connect(Client("alice"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  pb::ConnectRequest request;
  request.set_client("bob\" pid=1\nsession=0 opened principal=\"cert:root\"");
  const auto events = stub->Connect(&context, request);
  pb::SessionEvent event;
  ASSERT_TRUE(events->Read(&event));
  context.TryCancel();
  events->Finish();
  EXPECT_THAT(LogWith(" opened "),
              HasSubstr("client=\"bob\\\" pid=1\\nsession=0 opened principal=\\\"cert:root\\\"\"\n"));
}

TEST_F(TlsDaemon, WhoHasNoGoodCertificateIsRefused) {
  const Issued alice = Client("alice");
  EXPECT_TRUE(AskAs(alice).ok());
  const std::pair<const char*, Issued> refused[] = {
      {"none", {}},
      {"expired", Issue(*ca_, {"alice"}, TlsSide::kClient, -1)},
      {"another authority's", Issue(*other_ca_, {"alice"}, TlsSide::kClient)},
      {"a server's", Issue(*ca_, {"alice"}, TlsSide::kServer)},
      {"its own authority", other_ca_->own()},
  };
  for (const auto& [what, client] : refused) {
    EXPECT_EQ(AskAs(client).error_code(), grpc::StatusCode::UNAVAILABLE) << what;
    EXPECT_TRUE(AskAs(alice).ok()) << "after " << what;
  }
  EXPECT_THAT(daemon_->Log(), testing::Not(HasSubstr("opened principal=")));
}

TEST_F(TlsDaemon, WithoutTlsNobodyIsServed) {
  const auto stub = pb::Runtime::NewStub(grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  EXPECT_EQ(Ask(*stub).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(AskAs(Client("alice")).ok());
}

TEST_F(TlsDaemon, FilesThatAreReplacedAreReadAgain) {
  const auto old = Connect(Client("alice"));
  ASSERT_TRUE(Ask(*old).ok());
  const Issued other = Issue(*other_ca_, {"bob"}, TlsSide::kClient);
  ASSERT_FALSE(AskAs(other).ok());
  Write("ca.pem", other_ca_->own().cert);
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (!AskAs(other).ok()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  EXPECT_FALSE(AskAs(Client("carol")).ok()) << "its authority is no longer one";
  EXPECT_TRUE(Ask(*old).ok()) << "a connection that there is stays";
}

}  // namespace
}  // namespace hir::service
