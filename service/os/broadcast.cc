#include "service/os/broadcast.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free);  // Else it is of one process.

// Not private to the process: glibc has no call for those.
void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

Result<BroadcastSender> BroadcastSender::Create(int64_t num_receivers) {
  if (num_receivers < 0 || num_receivers > kReceiversMax)
    return InvalidArgument(base::Cat(num_receivers, " receivers, at most ", kReceiversMax));
  BroadcastSender sender;
  HIR_ASSIGN(sender.memory_, SharedMemory::Create(sizeof(BroadcastPage)));
  new (sender.memory_.data()) BroadcastPage();
  sender.answered_ = base::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!sender.answered_.valid()) return ErrnoStatus("eventfd");
  sender.num_receivers_ = static_cast<uint32_t>(num_receivers);
  return sender;
}

void BroadcastSender::Post(size_t bytes) {
  HIR_CHECK(bytes <= kBroadcastBytesMax && answered());
  BroadcastPage& to = page();
  to.bytes = static_cast<uint32_t>(bytes);
  to.failed.store(0, std::memory_order_relaxed);
  to.looked_for.store(0, std::memory_order_relaxed);
  to.left.store(num_receivers_, std::memory_order_relaxed);
  to.posted.fetch_add(1, std::memory_order_release);
  to.bell.fetch_add(1, std::memory_order_release);
  Futex(to.bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void BroadcastSender::Ring() {
  page().rings.fetch_add(1, std::memory_order_release);
  page().bell.fetch_add(1, std::memory_order_release);
  Futex(page().bell, FUTEX_WAKE, INT_MAX, nullptr);
}

std::vector<int64_t> BroadcastSender::Deaf() const {
  const uint32_t rings = page().rings.load(std::memory_order_relaxed);
  std::vector<int64_t> deaf;
  for (uint32_t index = 0; index < num_receivers_; ++index) {
    if (page().heard[index].load(std::memory_order_acquire) != rings) deaf.push_back(index);
  }
  return deaf;
}

// Either the last to answer sees that nobody looks, or who stops looking sees the answer.
void BroadcastSender::StopLooking() {
  page().looked_for.store(0);
  if (page().left.load() == 0) (void)eventfd_write(answered_.get(), 1);
}

void BroadcastSender::Clear() {
  eventfd_t count = 0;
  (void)eventfd_read(answered_.get(), &count);
}

Result<BroadcastReceiver> BroadcastReceiver::Map(base::Fd memory, base::Fd answered, int64_t index) {
  if (index < 0 || index >= kReceiversMax) return InvalidArgument(base::Cat("receiver ", index));
  BroadcastReceiver receiver;
  HIR_ASSIGN(receiver.memory_, SharedMemory::Map(std::move(memory), sizeof(BroadcastPage)));
  receiver.answered_ = std::move(answered);
  receiver.index_ = static_cast<size_t>(index);
  return receiver;
}

std::optional<std::string_view> BroadcastReceiver::Take() {
  const uint32_t posted = page().posted.load(std::memory_order_acquire);
  if (posted == taken_) return std::nullopt;
  taken_ = posted;
  const size_t bytes = page().bytes;
  HIR_CHECK(bytes <= kBroadcastBytesMax);
  return std::string_view(reinterpret_cast<const char*>(page().message), bytes);
}

bool BroadcastReceiver::TakeRing() {
  const uint32_t rings = page().rings.load(std::memory_order_acquire);
  if (std::exchange(rings_, rings) == rings) return false;
  page().heard[index_].store(rings, std::memory_order_release);
  return true;
}

void BroadcastReceiver::Answer(bool failed) {
  if (failed) page().failed.store(1, std::memory_order_relaxed);
  if (page().left.fetch_sub(1) == 1 && page().looked_for.load() == 0) (void)eventfd_write(answered_.get(), 1);
}

void BroadcastReceiver::Sleep(uint32_t bell, base::Nanos timeout) {
  const timespec time = {.tv_sec = timeout.count() / 1000000000, .tv_nsec = timeout.count() % 1000000000};
  Futex(page().bell, FUTEX_WAIT, bell, &time);
}

}  // namespace hir::service
