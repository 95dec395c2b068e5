// Goal: handles are good in their session, until freed, and die with it. Method: a real daemon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/service/support/daemon.h"

namespace hir::service {
namespace {

class Session : public testing::Test {
 protected:
  Daemon daemon{{"--devices=cpu:1", "--sessions-max=3", "--tensors-max=2"}};
  Client client{daemon};

  std::string PutOne(Client& owner) {
    const Client::Put put = owner.Upload(Header(pb::DTYPE_BOOL, {2}), "ab");
    EXPECT_EQ(Text(put.status), "OK");
    return put.tensor.handle();
  }
};

TEST_F(Session, UnknownAndFreedHandles) {
  const std::string handle = PutOne(client);
  EXPECT_EQ(Text(client.Download("made up").status), "NOT_FOUND: no handle \"made up\" in this session");
  EXPECT_EQ(Text(client.Free({handle, "made up"})), "NOT_FOUND: no handle \"made up\" in this session");
  EXPECT_EQ(client.Download(handle).bytes, "ab") << "a Free that fails frees nothing";
  EXPECT_EQ(Text(client.Free({handle, handle})), "OK");
  EXPECT_EQ(Text(client.Free({handle})), "FAILED_PRECONDITION: handle " + handle + " was freed");
  EXPECT_EQ(Text(client.Download(handle).status), "FAILED_PRECONDITION: handle " + handle + " was freed");
  EXPECT_EQ(client.Status().tensors(), 0);
}

TEST_F(Session, AnotherSessionsHandleIsUnknown) {
  const std::string handle = PutOne(client);
  Client other(daemon);
  EXPECT_EQ(Text(other.Download(handle).status), "NOT_FOUND: no handle \"" + handle + "\" in this session");
  EXPECT_EQ(Text(other.Free({handle})), "NOT_FOUND: no handle \"" + handle + "\" in this session");
  EXPECT_EQ(client.Download(handle).bytes, "ab");
}

TEST_F(Session, EndsWithItsStream) {
  auto other = std::make_unique<Client>(daemon);
  const std::string handle = PutOne(*other);
  EXPECT_EQ(client.Status().tensors(), 1);
  const std::string session = other->session();
  other.reset();
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& s) { return s.sessions() == 1 && s.tensor_bytes() == 0; }));
  pb::FreeRequest request;
  request.set_session_id(session);
  request.add_handles(handle);
  pb::FreeReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Free(context.get(), request, &reply)),
            "FAILED_PRECONDITION: no such session: its Connect stream has ended");
}

TEST_F(Session, LimitsAtTheirBoundaries) {
  Client second(daemon), third(daemon);
  EXPECT_FALSE(third.session().empty());
  EXPECT_TRUE(Client(daemon).session().empty());
  PutOne(second);
  const std::string handle = PutOne(third);
  EXPECT_EQ(Text(client.Upload(Header(pb::DTYPE_BOOL, {1}), "a").status),
            "RESOURCE_EXHAUSTED: tensors_max = 2: all handles are in use; free some");
  EXPECT_EQ(Text(third.Free({handle})), "OK");
  PutOne(client);
}

TEST_F(Session, HasAPrincipal) {
  const std::string said =
      "session=" + client.session().substr(0, 8) + " opened principal=uid:" + std::to_string(getuid());
  EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply&) { return daemon.Log().find(said) != std::string::npos; }))
      << daemon.Log();
}

TEST_F(Session, RequestsWithoutOne) {
  const auto context = client.Context();
  pb::CompileReply reply;
  EXPECT_EQ(Text(client.stub().Compile(context.get(), {}, &reply)),
            "FAILED_PRECONDITION: no session: call Connect first");
}

}  // namespace
}  // namespace hir::service
