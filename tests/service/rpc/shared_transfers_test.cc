// Goal: descriptors of a transfer's memory go to its principal, once; a transfer ends by being taken, with its session,
// or by time, and leaves nothing charged. Method: a store, uploads and downloads of it, and socket pairs for clients.
#include "service/rpc/shared_transfers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "service/store/store.h"

namespace hir::service {
namespace {

constexpr std::chrono::seconds kLong = std::chrono::seconds(60);

// The descriptors that come through `socket`; none where it ends.
std::vector<base::Fd> Receive(const base::Fd& socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kSharedPartsMax * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC) <= 0) return {};
  std::vector<base::Fd> fds;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  const size_t count = header == nullptr ? 0 : (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::vector<int> numbers(count);
  if (count > 0) std::memcpy(numbers.data(), CMSG_DATA(header), count * sizeof(int));
  for (const int number : numbers) fds.emplace_back(number);
  return fds;
}

class SharedTransfersTest : public testing::Test {
 protected:
  SharedTransfersTest() : session(*store.OpenSession("uid:1")) {}

  static TensorSpec Spec(int64_t bytes) {
    const mesh::DeviceMesh mesh = *mesh::DeviceMesh::Make({2}, {0, 1});
    mesh::Sharding sharding = mesh::Sharding::Replicated(mesh, 1);
    sharding.axes[0] = {mesh::ParallelType::kMeshX};
    return {.dtype = DType::kBool, .shape = {bytes}, .stored_once = {false}, .sharding = sharding};
  }
  std::unique_ptr<Upload> Reserve(int64_t bytes) {
    auto upload = Upload::Begin(store, session, Spec(bytes), {false});
    EXPECT_TRUE(upload.ok()) << upload.status().ToString();
    EXPECT_TRUE((*upload)->Reserve().ok());
    return *std::move(upload);
  }
  std::vector<base::Fd> Ask(SharedTransfers& transfers, const std::string& token, const std::string& principal) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const base::Fd near(ends[0]);
    transfers.Exchange(base::Fd(ends[1]), token, {}, principal);
    return Receive(near);
  }
  // Whether `count` descriptors that a client brings are taken.
  static bool Bring(SharedTransfers& transfers, const std::string& token, size_t count,
                    const std::string& principal = "uid:1") {
    std::array<int, 2> ends = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const base::Fd near(ends[0]);
    std::vector<base::Fd> brought;
    for (size_t i = 0; i < count; ++i) brought.emplace_back(memfd_create("brought", MFD_CLOEXEC));
    transfers.Exchange(base::Fd(ends[1]), token, std::move(brought), principal);
    char byte = 0;
    return read(near.get(), &byte, 1) == 1;
  }

  base::WorkPool pool{{.num_threads = 1, .queue_depth_max = 16}};
  std::shared_ptr<ReleasedShards> released = std::make_shared<ReleasedShards>([] {});
  TensorStore store{{.num_devices = 2, .tensor_bytes_max = 1 << 20}, released};
  const std::string session;
};

TEST_F(SharedTransfersTest, DescriptorsGoToTheirPrincipalOnce) {
  SharedTransfers transfers(kLong, pool);
  const std::string token = *transfers.Add(session, "uid:1", Reserve(8));
  EXPECT_EQ(token.size(), 32U);
  EXPECT_TRUE(Ask(transfers, token, "uid:2").empty());
  EXPECT_TRUE(Ask(transfers, token, "tcp").empty());
  EXPECT_TRUE(Ask(transfers, std::string(32, '0'), "uid:1").empty());
  const std::vector<base::Fd> fds = Ask(transfers, token, "uid:1");
  ASSERT_EQ(fds.size(), 2U) << "others' asking has changed nothing";
  EXPECT_TRUE(Ask(transfers, token, "uid:1").empty());
  EXPECT_EQ(pwrite(fds[0].get(), "\1\1\1\1", 4, 0), 4);
  EXPECT_EQ(pwrite(fds[1].get(), "\1\1\1\1", 4, 0), 4);

  Result<SharedTransfers::Committed> taken = transfers.Take(session, token);
  ASSERT_TRUE(taken.ok());
  const Upload::Stored stored = *std::get<std::unique_ptr<Upload>>(*taken)->End();
  Download download(stored.tensor, std::nullopt, stored.tensor->shards().host());
  EXPECT_EQ(download.Next(100), std::string(8, '\1'));
  EXPECT_EQ(transfers.Take(session, token).status().code(), Code::kNotFound);
}

TEST_F(SharedTransfersTest, WhoReadsCannotWrite) {
  SharedTransfers transfers(kLong, pool);
  const Upload::Stored stored = *Reserve(8)->End();
  const std::string token = *transfers.Add(
      session, "uid:1", std::make_unique<Download>(stored.tensor, std::nullopt, stored.tensor->shards().host()));
  const std::vector<base::Fd> fds = Ask(transfers, token, "uid:1");
  ASSERT_EQ(fds.size(), 2U);
  EXPECT_EQ(fcntl(fds[0].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(transfers.Take(session, token).status().code(), Code::kInvalidArgument);
}

TEST_F(SharedTransfersTest, AClientBringsItsDevicesMemoryOnce) {
  TensorStore on_devices({.num_devices = 2, .tensor_bytes_max = 1 << 20, .on_devices = true}, released);
  const std::string of = *on_devices.OpenSession("uid:1");
  SharedTransfers transfers(kLong, pool);
  const auto token_of = [&] {
    return *transfers.Add(of, "uid:1", *DeviceTransfer::In(on_devices, of, Spec(8), {false}));
  };
  const std::string token = token_of();
  EXPECT_EQ(on_devices.tensor_bytes(), 8);
  EXPECT_FALSE(Bring(transfers, token, 0));
  EXPECT_FALSE(Bring(transfers, token, 1)) << "one for each shard";
  EXPECT_FALSE(Bring(transfers, token, 3));
  EXPECT_FALSE(Bring(transfers, token, 2, "uid:2"));
  EXPECT_TRUE(Bring(transfers, token, 2)) << "others' have changed nothing";
  EXPECT_FALSE(Bring(transfers, token, 2));
  Result<SharedTransfers::Committed> taken = transfers.Take(of, token);
  ASSERT_TRUE(taken.ok());
  auto& transfer = std::get<std::unique_ptr<DeviceTransfer>>(*taken);
  EXPECT_TRUE(transfer->is_offered());
  EXPECT_EQ(transfer->TakeMemory().size(), 2U);
  transfer = nullptr;
  EXPECT_EQ(on_devices.tensor_bytes(), 0);

  const std::string silent = token_of();
  taken = transfers.Take(of, silent);
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(std::get<std::unique_ptr<DeviceTransfer>>(*taken)->is_offered());
}

TEST_F(SharedTransfersTest, WhatGoesByTheHost) {
  EXPECT_EQ(DeviceTransfer::In(store, session, Spec(8), {false}).status().code(), Code::kFailedPrecondition)
      << "its devices work on the host's memory";
  TensorStore on_devices({.num_devices = 2, .tensor_bytes_max = 1 << 20, .on_devices = true}, released);
  const std::string of = *on_devices.OpenSession("uid:1");
  EXPECT_EQ(DeviceTransfer::In(on_devices, of, Spec(8), {true}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(DeviceTransfer::In(on_devices, of, Spec(0), {false}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(DeviceTransfer::In(on_devices, of, Spec(int64_t{1} << 40), {false}).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(on_devices.tensor_bytes(), 0);
}

TEST_F(SharedTransfersTest, EndsWithItsSession) {
  SharedTransfers transfers(kLong, pool);
  const std::string other = *store.OpenSession("uid:1");
  const std::string token = *transfers.Add(session, "uid:1", Reserve(8));
  EXPECT_EQ(transfers.Release(other, token).status().code(), Code::kNotFound);
  EXPECT_EQ(store.tensor_bytes(), 8);
  transfers.EndSession(other);
  EXPECT_EQ(store.tensor_bytes(), 8);
  transfers.EndSession(session);
  EXPECT_EQ(store.tensor_bytes(), 0);
  EXPECT_TRUE(Ask(transfers, token, "uid:1").empty());
}

TEST_F(SharedTransfersTest, EndsByTime) {
  SharedTransfers transfers(std::chrono::milliseconds(1), pool);
  const std::string token = *transfers.Add(session, "uid:1", Reserve(8));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (store.tensor_bytes() > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(store.tensor_bytes(), 0);
  EXPECT_NE(transfers.Release(session, token).status().message().find("transfer_idle_ms = 1"), std::string::npos);
}

// Whoever keeps a descriptor keeps no memory.
TEST_F(SharedTransfersTest, PagesGoWithTheTransfer) {
  SharedTransfers transfers(kLong, pool);
  const std::string token = *transfers.Add(session, "uid:1", Reserve(1 << 16));
  const std::vector<base::Fd> fds = Ask(transfers, token, "uid:1");
  ASSERT_EQ(fds.size(), 2U);
  const std::string bytes(1 << 15, '\1');
  EXPECT_EQ(pwrite(fds[0].get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  struct stat info = {};
  fstat(fds[0].get(), &info);
  EXPECT_GT(info.st_blocks, 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_TRUE(transfers.Release(session, token).ok());
  fstat(fds[0].get(), &info);
  EXPECT_EQ(info.st_blocks, 0);
}

TEST_F(SharedTransfersTest, TooManyParts) {
  std::vector<int64_t> devices;
  for (int64_t device = 0; device < 300; ++device) devices.push_back(device);
  TensorStore wide({.num_devices = 300, .tensor_bytes_max = 1 << 20}, released);
  const std::string of = *wide.OpenSession("uid:1");
  const TensorSpec spec = {.dtype = DType::kBool,
                           .shape = {1},
                           .stored_once = {false},
                           .sharding = mesh::Sharding::Replicated(*mesh::DeviceMesh::Make({300}, devices), 1)};
  auto upload = *Upload::Begin(wide, of, spec, {false});
  ASSERT_TRUE(upload->Reserve().ok());
  SharedTransfers transfers(kLong, pool);
  EXPECT_EQ(transfers.Add(of, "uid:1", std::move(upload)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(wide.tensor_bytes(), 0);
}

}  // namespace
}  // namespace hir::service
