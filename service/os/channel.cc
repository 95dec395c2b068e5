#include "service/os/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "csrc/base/check.h"
#include "csrc/base/fd_message.h"
#include "csrc/base/text.h"
#include "service/os/error.h"
#include "service/os/shared_memory.h"

namespace hir::service {
namespace {

// A packet is one byte and the message; or, for a message that is too long, the byte alone and the message in the
// first descriptor. (A packet must fit the socket's send buffer, 208 KiB by default.)
constexpr char kInline = 'i';
constexpr char kInMemory = 'm';
constexpr size_t kPacketBytesMax = size_t{64} << 10;

Result<std::string> ReadMemory(base::Fd fd) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus("fstat");
  if (info.st_size > kChannelBytesMax)
    return Status(Code::kDataLoss, base::Cat("a message of ", info.st_size, " bytes; at most ", kChannelBytesMax));
  Result<SharedMemory> memory = SharedMemory::Map(std::move(fd), info.st_size);
  if (!memory.ok()) return Status(Code::kDataLoss, base::Cat("a message: ", memory.status().message()));
  return std::string(reinterpret_cast<const char*>(memory->data()), static_cast<size_t>(memory->bytes()));
}

}  // namespace

Result<std::pair<base::Fd, base::Fd>> Channel::Pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoStatus("socketpair");
  return std::pair<base::Fd, base::Fd>(base::Fd(ends[0]), base::Fd(ends[1]));
}

Status Channel::Send(std::string_view bytes, std::span<const int> fds, base::Nanos timeout) {
  HIR_CHECK(fds.size() <= kChannelFdsMax);
  if (std::ssize(bytes) > kChannelBytesMax) {
    return ResourceExhausted(base::Cat("a message to another process of ", bytes.size(), " bytes; at most ",
                                       kChannelBytesMax, ": the program is too large, split it"));
  }
  SharedMemory memory;
  std::vector<int> all_fds(fds.begin(), fds.end());
  char kind = kInline;
  iovec parts[2] = {{&kind, 1}, {const_cast<char*>(bytes.data()), bytes.size()}};
  if (bytes.size() + 1 > kPacketBytesMax) {
    HIR_ASSIGN(memory, SharedMemory::Create(static_cast<int64_t>(bytes.size())));
    std::memcpy(memory.data(), bytes.data(), bytes.size());
    all_fds.insert(all_fds.begin(), memory.fd());
    kind = kInMemory;
    parts[1].iov_len = 0;
  }
  base::FdRoom<kChannelFdsMax + 1> room;
  msghdr header = {};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  base::AttachFds(header, room.bytes, all_fds);

  const std::scoped_lock lock(sending_);
  for (;;) {
    if (sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return Unavailable("the other process is gone");
    if (errno != EAGAIN) return ErrnoStatus("send");
    pollfd writable = {socket_.get(), POLLOUT, 0};
    const int ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
    if (poll(&writable, 1, ms) == 0) {
      return {Code::kDeadlineExceeded, base::Cat("the other process did not read for ", ms, " ms")};
    }
  }
}

Result<std::optional<Channel::Message>> Channel::Receive(bool block) {
  buffer_.resize(kPacketBytesMax);
  base::FdRoom<kChannelFdsMax + 1> room;
  iovec part = {buffer_.data(), buffer_.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = room.bytes;
  header.msg_controllen = sizeof(room.bytes);
  ssize_t got = -1;
  do {
    got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | (block ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return std::optional<Message>();
  if (got <= 0) return Unavailable("the other process is gone");

  Message message;
  message.fds = base::DetachFds(header);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Status(Code::kDataLoss, "truncated message");
  if (buffer_[0] == kInline) {
    message.bytes.assign(buffer_, 1, static_cast<size_t>(got) - 1);
  } else {
    if (message.fds.empty()) return Status(Code::kDataLoss, "message without its memory");
    HIR_ASSIGN(message.bytes, ReadMemory(std::move(message.fds.front())));
    message.fds.erase(message.fds.begin());
  }
  return std::optional<Message>(std::move(message));
}

}  // namespace hir::service
