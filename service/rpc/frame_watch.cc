#include "service/rpc/frame_watch.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "csrc/base/quoted.h"

namespace hir::service {
namespace {

using base::Nanos;

// RFC 9113, 6.
constexpr int kHeaders = 1, kRstStream = 3, kContinuation = 9;
constexpr int kEndHeaders = 4;
constexpr std::chrono::seconds kBetweenLines = std::chrono::seconds(1);

// A connection, by the socket that its descriptor was when it was given to gRPC.
struct Watched {
  dev_t device = 0;
  ino_t inode = 0;
  FrameWatch watch;  // Of whoever reads: one thread at a time.
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, std::shared_ptr<Watched>> by_fd;  // Guarded by mutex.
};
Table& AllWatched() {
  static auto& table = *new Table();  // Threads of gRPC's read until the process ends.
  return table;
}
std::atomic<bool> any_watched = false;
std::atomic<int64_t> say_at_ns = 0;

using base::Now;

// Null: nobody asked for it, or it is the number of another by now.
std::shared_ptr<Watched> Find(int fd) {
  if (!any_watched) return nullptr;
  Table& table = AllWatched();
  std::shared_ptr<Watched> found;
  {
    const std::shared_lock lock(table.mutex);
    if (const auto at = table.by_fd.find(fd); at != table.by_fd.end()) found = at->second;
  }
  struct stat info = {};
  if (found == nullptr || fstat(fd, &info) != 0) return nullptr;
  if (info.st_dev == found->device && info.st_ino == found->inode) return found;
  const std::scoped_lock lock(table.mutex);
  if (const auto at = table.by_fd.find(fd); at != table.by_fd.end() && at->second == found) table.by_fd.erase(at);
  return nullptr;
}

void Say(const char* why) {
  const int64_t now = Now().count();
  int64_t at = say_at_ns;
  if (now < at || !say_at_ns.compare_exchange_strong(at, now + Nanos(kBetweenLines).count())) return;
  spdlog::warn("connection ended error={}", base::Quoted(why));
}

// The fault of the connection whose next `size` bytes are in `message`.
const char* See(FrameWatch& watch, const msghdr& message, size_t size) {
  const Nanos now = Now();
  for (size_t i = 0; i < message.msg_iovlen && size > 0; ++i) {
    const size_t here = std::min(size, message.msg_iov[i].iov_len);
    const char* wrong = watch.See({static_cast<const std::byte*>(message.msg_iov[i].iov_base), here}, now);
    if (wrong != nullptr) return wrong;
    size -= here;
  }
  return nullptr;
}

}  // namespace

const char* FrameWatch::See(std::span<const std::byte> bytes, Nanos now) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const size_t skipped = std::min(bytes.size(), static_cast<size_t>(skip_));
      skip_ -= static_cast<int64_t>(skipped);
      bytes = bytes.subspan(skipped);
      continue;
    }
    const size_t taken = std::min(bytes.size(), kHeaderBytes - header_size_);
    std::memcpy(header_ + header_size_, bytes.data(), taken);
    header_size_ += taken;
    bytes = bytes.subspan(taken);
    if (header_size_ < kHeaderBytes) break;
    header_size_ = 0;
    if (const char* wrong = SeeFrame(now); wrong != nullptr) return wrong;
  }
  return nullptr;
}

const char* FrameWatch::SeeFrame(Nanos now) {
  const auto byte = [this](size_t i) { return std::to_integer<int>(header_[i]); };
  skip_ = (byte(0) << 16) | (byte(1) << 8) | byte(2);
  const int type = byte(3);
  if (type == kHeaders || type == kContinuation) {
    block_bytes_ += skip_;
    if (block_bytes_ > limits_.header_block_bytes) return "a header of more than 64 KiB";
    if ((byte(4) & kEndHeaders) != 0) block_bytes_ = 0;
  }
  if (type == kRstStream) {
    const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now - refilled_at_).count();
    if (seconds > 0) {
      const int64_t more =
          seconds > limits_.resets_at_once ? limits_.resets_at_once : seconds * limits_.resets_per_second;
      resets_left_ = std::min(limits_.resets_at_once, resets_left_ + more);
      refilled_at_ = now;
    }
    if (--resets_left_ < 0) return "calls that are cancelled faster than 256 a second";
  }
  return nullptr;
}

void WatchFrames(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return;
  auto watched = std::make_shared<Watched>();
  watched->device = info.st_dev;
  watched->inode = info.st_ino;
  Table& table = AllWatched();
  const std::scoped_lock lock(table.mutex);
  table.by_fd.insert_or_assign(fd, std::move(watched));
  any_watched = true;
}

}  // namespace hir::service

// The system's, and what is read of a watched connection is looked over. A definition in the program comes before the C
// library's for all of the program's libraries.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
  if (got <= 0 || (flags & MSG_PEEK) != 0) return got;
  const std::shared_ptr<hir::service::Watched> watched = hir::service::Find(fd);
  if (watched == nullptr) return got;
  const char* wrong = hir::service::See(watched->watch, *message, static_cast<size_t>(got));
  if (wrong == nullptr) return got;
  hir::service::Say(wrong);
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}
