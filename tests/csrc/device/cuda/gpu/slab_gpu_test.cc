// A GPU's slab in another process: its descriptors go through a Unix socket, as the service's do. Skipped, with the
// reason, where there is no GPU.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "csrc/device/cuda/cuda_device.h"

namespace hir::device {
namespace {

constexpr int64_t kBytes = (int64_t{300} << 20) + 4097;  // Of two parts of the slab, and no multiple of anything.
constexpr uint32_t kSeed = 20;

std::vector<std::byte> RandomBytes(int64_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(static_cast<size_t>(bytes));
  for (std::byte& byte : made) byte = static_cast<std::byte>(random());
  return made;
}

// A part, with its descriptor; one without bytes ends them and says where the allocation lies.
bool Send(int socket, const SlabPart& part) {
  std::array<int64_t, 2> place = {part.offset, part.bytes};
  iovec data = {place.data(), sizeof(place)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (part.fd >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &part.fd, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(place));
}

bool Receive(int socket, SlabPart& part) {
  std::array<int64_t, 2> place = {};
  iovec data = {place.data(), sizeof(place)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (recvmsg(socket, &message, MSG_WAITALL) != static_cast<ssize_t>(sizeof(place))) return false;
  part = {.offset = place[0], .bytes = place[1]};
  if (const cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr)
    std::memcpy(&part.fd, CMSG_DATA(control), sizeof(int));
  return true;
}

// The other process: finds what the first wrote, and writes other bytes over it. 0 when all was as it should be.
int Peer(int socket) {
  std::vector<SlabPart> parts;
  SlabPart part;
  while (Receive(socket, part) && part.bytes > 0) parts.push_back(part);
  if (parts.empty()) return 0;  // The first process found no GPU.
  const auto device = OpenCudaDevice({});
  if (!device.ok()) return 2;
  const auto imported = ImportSlab(**device, parts);
  for (const SlabPart& each : parts) close(each.fd);
  if (!imported.ok()) {
    std::fprintf(stderr, "%s\n", imported.status().ToString().c_str());
    return 3;
  }
  const Buffer here = (*imported)->buffer().Slice(part.offset, kBytes);
  std::vector<std::byte> found(static_cast<size_t>(kBytes));
  if (!CopyToHost(**device, found, here).ok() || found != RandomBytes(kBytes, kSeed)) return 4;
  if (!CopyFromHost(**device, here, RandomBytes(kBytes, kSeed + 1)).ok()) return 5;
  return 0;
}

TEST(SlabOfAGpu, IsReadAndWrittenByAnotherProcess) {
  std::array<int, 2> sockets = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
  const pid_t peer = fork();  // Before the driver starts: it does not live through a fork.
  ASSERT_GE(peer, 0);
  if (peer == 0) {
    close(sockets[0]);
    _exit(Peer(sockets[1]));
  }
  close(sockets[1]);
  const auto peer_ended = [&] {
    close(sockets[0]);
    int status = 0;
    waitpid(peer, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const auto device = OpenCudaDevice({});
  if (!device.ok()) {
    EXPECT_EQ(peer_ended(), 0);
    GTEST_SKIP() << device.status().ToString();
  }
  const auto before = *(*device)->Allocate(1000);  // So that it does not begin where the slab does.
  const auto memory = *(*device)->Allocate(kBytes);
  ASSERT_TRUE(CopyFromHost(**device, memory->buffer(), RandomBytes(kBytes, kSeed)).ok());
  const auto parts = ExportSlab(**device);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  EXPECT_GE(parts->size(), 2u);
  for (const SlabPart& part : *parts) {
    EXPECT_TRUE(Send(sockets[0], part));
    close(part.fd);
  }
  const int64_t offset = memory->buffer().data - SlabOf(**device).data;
  EXPECT_GT(offset, 0);
  EXPECT_TRUE(Send(sockets[0], {.offset = offset}));
  EXPECT_EQ(peer_ended(), 0);
  std::vector<std::byte> found(static_cast<size_t>(kBytes));
  ASSERT_TRUE(CopyToHost(**device, found, memory->buffer()).ok());
  EXPECT_TRUE(found == RandomBytes(kBytes, kSeed + 1));
}

}  // namespace
}  // namespace hir::device
