// Goal: results are right in memory that was used before, on every worker, and the memory goes back.
// Method: a real daemon on two devices, with its workers; what was there before is NaN. What the store keeps for whom
// is tests/service/store/shard_pool_test.cc.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

constexpr const char* kDouble = R"(mesh @m = [0, 1]
fusion @double(%x: f32[i0] {mesh=@m, shard(0, mesh_x)}) {
  %y = add(%x, %x)
  return %y
}
)";

class Recycled : public testing::Test {
 protected:
  explicit Recycled(std::vector<std::string> flags = {"--devices=cpu:2"}) : daemon(flags) {}

  std::string Id(Client& of, const std::string& text) {
    const Client::Compiled compiled = of.Compile(text);
    EXPECT_EQ(Text(compiled.status), "OK") << text;
    return compiled.reply.program_id();
  }
  static std::string Put(Client& of, const std::vector<float>& values) {
    const int64_t count = static_cast<int64_t>(values.size());
    const Client::Put put = of.Upload(Header(pb::DTYPE_FLOAT32, {count}, {2}, {0}), Bytes(values), 1 << 20);
    EXPECT_EQ(Text(put.status), "OK");
    return put.tensor.handle();
  }
  static std::string Run(Client& of, const std::string& program, const std::string& x) {
    const Client::Ran ran = of.Run(program, {x});
    EXPECT_EQ(Text(ran.status), "OK");
    return ran.reply.outputs_size() == 1 ? ran.reply.outputs(0).handle() : "";
  }
  // Leaves NaN in memory for `count` floats.
  void Poison(const std::string& program, size_t count) {
    const std::string nan = Put(client, std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
    EXPECT_EQ(Text(client.Free({Run(client, program, nan), nan})), "OK");
  }
  int64_t Kept() { return client.Status().recycled_bytes(); }
  int64_t ResidentBytes(int rank) { return client.Status().devices(rank).resident_bytes(); }

  Daemon daemon;
  Client client{daemon};
};

TEST_F(Recycled, ResultsAreRightWhereNaNWas) {
  const std::string program = Id(client, kDouble);
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const size_t count = 1 + random() % 7;  // Odd ones leave padding on the second device.
    Poison(program, count);
    const int64_t kept = Kept();
    EXPECT_GT(kept, 0);
    std::vector<float> values, doubled;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(random() % 1000));
      doubled.push_back(2 * values.back());
    }
    const std::string x = Put(client, values);
    const std::string y = Run(client, program, x);
    EXPECT_LT(Kept(), kept) << "it was used";
    const Client::Got got = client.Download(y);
    EXPECT_EQ(Floats(got.bytes), doubled);
    EXPECT_EQ(Floats(client.Download(y, 0).bytes).front(), doubled.front());
    ASSERT_EQ(Text(client.Free(random() % 2 == 0 ? std::vector{x, y} : std::vector{y})), "OK");
  }
}

// Sums over an axis that is split unevenly: what is beyond the last row must not count.
TEST_F(Recycled, PaddingIsNotRead) {
  const std::string program = Id(client, kDouble);
  const std::string sum = Id(client, R"(mesh @m = [0, 1]
fusion @sum(%x: f32[i0] {mesh=@m, shard(0, mesh_x)}) {
  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}
  return %y
}
)");
  for (int round = 0; round < 10; ++round) {
    Poison(program, 4);  // Two floats on each device; the next leaves one of them.
    const std::string x = Put(client, {1, 2, 3});
    const std::string y = Run(client, program, x);
    const std::string z = Run(client, sum, y);
    EXPECT_EQ(Floats(client.Download(z).bytes), std::vector<float>{12});
    ASSERT_EQ(Text(client.Free({z, x, y})), "OK");
  }
}

TEST_F(Recycled, AfterAWorkerDied) {
  const std::string program = Id(client, kDouble);
  Poison(program, 2);
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  EXPECT_TRUE(
      client.WaitUntil([](const pb::StatusReply& status) { return status.serving() && status.generation() == 2; }));
  const int64_t kept = Kept();
  EXPECT_GT(kept, 0) << "it is the daemon's";
  const std::string y = Run(client, program, Put(client, {1, 2}));
  EXPECT_LT(Kept(), kept);
  EXPECT_EQ(Floats(client.Download(y).bytes), (std::vector<float>{2, 4}));
}

TEST_F(Recycled, GoesBackWithItsSession) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const int64_t resident = ResidentBytes(0);
  {
    Client other(daemon);
    const std::string program = Id(other, kDouble);
    const std::string x = Put(other, std::vector<float>(static_cast<size_t>(2 * kBytes / 4), 1.0F));
    const std::string y = Run(other, program, x);
    ASSERT_EQ(Text(other.Free({x})), "OK");
    EXPECT_EQ(Kept(), 0) << "an upload is not kept";
    ASSERT_EQ(Text(other.Free({y})), "OK");
    // The run may hold it a moment longer than its client.
    EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply& status) {
      return status.recycled_bytes() == 2 * kBytes && status.tensor_bytes() == 0;
    }));
    EXPECT_GE(ResidentBytes(0), resident + kBytes) << "the worker has it mapped";
  }
  EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply& status) {
    return status.recycled_bytes() == 0 && status.devices(0).resident_bytes() < resident + kBytes / 2;
  }));
}

class FewBytes : public Recycled {
 protected:
  FewBytes() : Recycled({"--devices=cpu:2", "--tensor-bytes-max=100000"}) {}
};

TEST_F(FewBytes, NoTensorIsRefusedForIt) {
  const std::string program = Id(client, kDouble);
  Poison(program, 6000);  // 24,000 bytes, in pages a little more; a quarter of the limit.
  const std::string x = Put(client, std::vector<float>(12500, 1.0F));
  const std::string y = Run(client, program, x);  // Now the two are all there may be.
  EXPECT_EQ(client.Status().tensor_bytes(), 100000);
  EXPECT_EQ(Kept(), 0);
  EXPECT_EQ(Floats(client.Download(y).bytes), std::vector<float>(12500, 2.0F));
  EXPECT_EQ(client.Run(program, {x}).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace hir::service
