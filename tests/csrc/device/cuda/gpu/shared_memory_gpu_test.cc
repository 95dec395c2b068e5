// A GPU's memory in another process: its descriptor goes through a Unix socket. Skipped, with the reason, where there
// is no GPU.
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

constexpr int64_t kBytes = (int64_t{30} << 20) + 4097;  // No multiple of anything.
constexpr uint32_t kSeed = 20;

std::vector<std::byte> RandomBytes(int64_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(static_cast<size_t>(bytes));
  for (std::byte& byte : made) byte = static_cast<std::byte>(random());
  return made;
}

bool Send(int socket, int fd) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &fd, sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

// -1 when there is none to come.
int Receive(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  int fd = -1;
  if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != nullptr)
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return fd;
}

// The other process: finds what the first wrote, and writes other bytes over it. 0 when all was as it should be.
int Peer(int socket) {
  const int fd = Receive(socket);
  if (fd < 0) return 0;  // The first process found no GPU.
  const auto device = OpenCudaDevice({});
  if (!device.ok()) return 2;
  const auto mapped = MapShared(**device, fd, kBytes);
  close(fd);
  if (!mapped.ok()) {
    std::fprintf(stderr, "%s\n", mapped.status().ToString().c_str());
    return 3;
  }
  const Buffer here = (*mapped)->buffer();
  std::vector<std::byte> found(static_cast<size_t>(kBytes));
  if (!CopyToHost(**device, found, here).ok() || found != RandomBytes(kBytes, kSeed)) return 4;
  if (!CopyFromHost(**device, here, RandomBytes(kBytes, kSeed + 1)).ok()) return 5;
  return 0;
}

TEST(SharedMemoryOfAGpu, IsReadAndWrittenByAnotherProcess) {
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
  const auto shared = AllocateShared(**device, kBytes);
  ASSERT_TRUE(shared.ok()) << shared.status().ToString();
  const Buffer memory = shared->memory->buffer();
  ASSERT_TRUE(CopyFromHost(**device, memory, RandomBytes(kBytes, kSeed)).ok());
  EXPECT_TRUE(Send(sockets[0], shared->fd.get()));
  EXPECT_EQ(peer_ended(), 0);
  std::vector<std::byte> found(static_cast<size_t>(kBytes));
  ASSERT_TRUE(CopyToHost(**device, found, memory).ok());
  EXPECT_TRUE(found == RandomBytes(kBytes, kSeed + 1));
}

}  // namespace
}  // namespace hir::device
