// Goal: tensors in memory of the devices: runs and downloads see the right values, a full device refuses a run and
// serves the next, and what lived on a mesh that died is lost, says so, and is gone for good, while the mesh heals.
// Method: CPU workers that keep shards in memory of their own, with a limit, as GPUs do.
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

constexpr const char* kNegate = R"(mesh @m = [0, 1]
fusion @negate(%x: f32[i0] {mesh=@m, shard(0, mesh_x)}) {
  %y = neg(%x)
  return %y
}
)";

class DeviceMemory : public testing::Test {
 protected:
  Daemon daemon{{"--devices=cpu:2", "--own-memory", "--device-bytes-max=100000", "--staging-bytes-max=300000"}};
  Client client{daemon};

  std::string Id(const char* program) {
    const Client::Compiled compiled = client.Compile(program);
    EXPECT_EQ(Text(compiled.status), "OK");
    return compiled.reply.program_id();
  }
  // `count` floats, half of them on each device.
  Client::Put Put(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return client.Upload(Header(pb::DTYPE_FLOAT32, {count}, {2}, {0}), Bytes(values));
  }
  std::vector<float> Values(const std::string& handle, std::optional<int64_t> device = std::nullopt) {
    const Client::Got got = client.Download(handle, device);
    EXPECT_EQ(Text(got.status), "OK");
    return Floats(got.bytes);
  }
  void ExpectHeals(int64_t generation) {
    EXPECT_TRUE(client.WaitUntil(
        [&](const pb::StatusReply& status) { return status.serving() && status.generation() > generation; }));
  }
};

TEST_F(DeviceMemory, RunsAndDownloads) {
  const std::string sums = Id(kColumnSums), negate = Id(kNegate);
  const std::string x = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 2}, {2}, {0}), Bytes({1, 2, 3, 4})).tensor.handle();
  EXPECT_EQ(Values(x), (std::vector<float>{1, 2, 3, 4})) << "before any device has it";
  const Client::Ran ran = client.Run(sums, {x});
  ASSERT_EQ(Text(ran.status), "OK");
  EXPECT_EQ(Values(ran.reply.outputs(0).handle()), (std::vector<float>{4, 6}));
  EXPECT_EQ(Values(ran.reply.outputs(0).handle(), 1), (std::vector<float>{4, 6}));
  EXPECT_EQ(Values(x), (std::vector<float>{1, 2, 3, 4})) << "now only the devices have it";
  EXPECT_EQ(Values(x, 1), (std::vector<float>{3, 4}));
  // What a run left on the devices goes into the next, pending or not.
  const Client::Ran first = client.Run(negate, {ran.reply.outputs(0).handle()}, /*wait=*/false);
  EXPECT_EQ(first.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "it is replicated";
  const std::string y = Put(4).tensor.handle();
  const Client::Ran once = client.Run(negate, {y}, /*wait=*/false);
  const Client::Ran twice = client.Run(negate, {once.reply.outputs(0).handle()}, /*wait=*/false);
  EXPECT_EQ(Values(twice.reply.outputs(0).handle()), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(Values(once.reply.outputs(0).handle()), (std::vector<float>{0, -1, -2, -3}));
  const Client::Put empty = client.Upload(Header(pb::DTYPE_FLOAT32, {0}, {2}, {0}), "");
  const Client::Ran nothing = client.Run(negate, {empty.tensor.handle()});
  EXPECT_EQ(Text(nothing.status), "OK");
  EXPECT_TRUE(Values(nothing.reply.outputs(0).handle()).empty());
}

TEST_F(DeviceMemory, AFullDeviceRefusesARunAndServesTheNext) {
  const std::string negate = Id(kNegate);
  const std::string small = Put(8).tensor.handle();
  const std::string large = Put(30000).tensor.handle();  // 60000 bytes on each device; two do not fit.
  const Client::Ran refused = client.Run(negate, {large});
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.status.error_message().find(
                "limit device_bytes_max: 100000 bytes, 60000 in use, 60000 asked for; run smaller "
                "sizes, or raise it (hostird --device-bytes-max)"),
            std::string::npos)
      << Text(refused.status);
  // Nothing is left of it: what fits, fits now, again and again.
  for (int round = 0; round < 3; ++round) {
    const std::string half = Put(20000).tensor.handle();
    const Client::Ran ran = client.Run(negate, {half});
    ASSERT_EQ(Text(ran.status), "OK");
    ASSERT_EQ(Text(client.Free({half, ran.reply.outputs(0).handle()})), "OK");
  }
  EXPECT_EQ(Text(client.Run(negate, {small}).status), "OK");
  EXPECT_EQ(client.Status().generation(), 1) << "no mesh died of it";
  EXPECT_EQ(Values(large)[29999], 29999) << "the tensor is where it was";
}

TEST_F(DeviceMemory, WhatLivedOnAMeshThatDiedIsLost) {
  const std::string negate = Id(kNegate);
  const std::string used = Put(4).tensor.handle(), unused = Put(4).tensor.handle();
  const Client::Ran ran = client.Run(negate, {used});
  ASSERT_EQ(Text(ran.status), "OK");
  const std::string result = ran.reply.outputs(0).handle();
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  ExpectHeals(1);
  const std::string lost =
      "its memory was on the devices: rank 1 died (killed by signal 9) during idle; the mesh is "
      "being restarted; put it again, or run again what made it";
  EXPECT_EQ(Text(client.Download(result).status), "DATA_LOSS: " + lost);
  EXPECT_EQ(Text(client.Download(used).status), "DATA_LOSS: " + lost);
  EXPECT_EQ(Text(client.Run(negate, {used}).status), "DATA_LOSS: input 0 (x) is lost: " + lost);
  pb::WaitRequest request;
  request.set_session_id(client.session());
  request.add_handles(used);
  request.set_poll(true);
  pb::WaitReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Wait(context.get(), request, &reply)), "OK");
  EXPECT_EQ(reply.tensors(0).state(), pb::TENSOR_STATE_LOST);
  // What no device had is there still, and what is put again runs.
  const Client::Ran again = client.Run(negate, {unused});
  ASSERT_EQ(Text(again.status), "OK");
  EXPECT_EQ(Values(again.reply.outputs(0).handle()), (std::vector<float>{0, -1, -2, -3}));
  EXPECT_EQ(Text(client.Free({used, result})), "OK");
}

TEST_F(DeviceMemory, StagingIsLimited) {
  const std::string negate = Id(kNegate);
  EXPECT_EQ(Text(Put(75002).status),
            "RESOURCE_EXHAUSTED: staging_bytes_max = 300000: 262144 bytes of tensors on their way to "
            "and from devices are in use, 37864 more were asked for; free some, or start the daemon "
            "with a higher limit");
  // Once on the devices it counts no more.
  for (int round = 0; round < 8; ++round) {
    const Client::Put put = Put(20000);
    ASSERT_EQ(Text(put.status), "OK");
    const Client::Ran ran = client.Run(negate, {put.tensor.handle()});
    ASSERT_EQ(Text(ran.status), "OK");
    EXPECT_EQ(Values(ran.reply.outputs(0).handle())[19999], -19999);
    ASSERT_EQ(Text(client.Free({put.tensor.handle(), ran.reply.outputs(0).handle()})), "OK");
  }
  EXPECT_EQ(Text(Put(75000).status), "OK");
}

TEST(Devices, WithoutAnyTheDaemonServesAndSaysWhy) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // Whatever this machine has.
  Daemon daemon({"--devices=cuda:all"});
  unsetenv("CUDA_VISIBLE_DEVICES");
  Client client(daemon);
  const pb::StatusReply status = client.Status();
  EXPECT_EQ(status.devices_size(), 0);
  EXPECT_NE(status.last_failure(), "");
  const grpc::Status refused = client.Compile(kNegate).status;
  EXPECT_TRUE(refused.error_message().starts_with("this daemon has no device: ")) << Text(refused);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2}));
  EXPECT_EQ(put.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << Text(put.status);
}

}  // namespace
}  // namespace hir::service
