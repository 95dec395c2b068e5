// Goal: what the process at the other end sends is a message or an error, whatever it is. Method: packets written by
// hand, as a process that has gone mad would.
#include "service/os/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace hir::service {
namespace {

struct Ends {
  Channel ours;
  base::Fd theirs;
};

Ends Pair() {
  auto ends = *Channel::Pair();
  return {Channel(std::move(ends.first)), std::move(ends.second)};
}

// A packet that says that the message is in `memory`.
void SendMemory(const base::Fd& to, int memory) {
  char kind = 'm';
  iovec part = {&kind, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  cmsghdr* const attached = CMSG_FIRSTHDR(&header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &memory, sizeof(int));
  ASSERT_EQ(sendmsg(to.get(), &header, 0), 1);
}

// Memory of `bytes`, of which nothing is there until it is written.
base::Fd Memory(int64_t bytes, int seals) {
  base::Fd fd(memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
  EXPECT_TRUE(seals == 0 || fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

TEST(Channel, MessagesOfAnySize) {
  auto ends = *Channel::Pair();
  Channel ours(std::move(ends.first)), theirs(std::move(ends.second));
  for (const size_t bytes : {0, 1, 65535, 65536, 1 << 20}) {
    const std::string sent(bytes, 'x');
    ASSERT_TRUE(theirs.Send(sent, {}, std::chrono::seconds(10)).ok());
    const auto got = ours.Receive(/*block=*/true);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ((*got)->bytes, sent);
  }
}

// Its maker could take it away while it is read: SIGBUS.
TEST(Channel, RefusesMemoryThatIsNotSealed) {
  Ends ends = Pair();
  SendMemory(ends.theirs, Memory(1 << 17, 0).get());
  const auto got = ends.ours.Receive(/*block=*/true);
  EXPECT_EQ(got.status().ToString(),
            "DATA_LOSS: a message: shared memory that can still shrink: seal it (F_SEAL_SHRINK)");
}

TEST(Channel, RefusesWhatIsNoMemory) {
  Ends ends = Pair();
  SendMemory(ends.theirs, ends.theirs.get());
  EXPECT_EQ(ends.ours.Receive(/*block=*/true).status().code(), Code::kDataLoss);
}

// A terabyte that costs its maker nothing.
TEST(Channel, RefusesMoreThanAMessageHas) {
  Ends ends = Pair();
  SendMemory(ends.theirs, Memory(int64_t{1} << 40, F_SEAL_SHRINK).get());
  const auto got = ends.ours.Receive(/*block=*/true);
  EXPECT_EQ(got.status().ToString(), "DATA_LOSS: a message of 1099511627776 bytes; at most 268435456");
}

}  // namespace
}  // namespace hir::service
