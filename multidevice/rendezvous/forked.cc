#include "multidevice/rendezvous/forked.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::comm {

using base::Cat;

// Pages are there when they are written. Whoever publishes reserves a place by adding to a counter,
// and holds no lock that it could die with.
struct ForkedRendezvous::Memory {
  static constexpr int64_t kBytes = int64_t{64} << 20;  // Of all values.
  struct Value {
    std::atomic<bool> ready = false;
    int64_t key_bytes = 0;
    int64_t value_bytes = 0;
    int64_t at = 0;  // In bytes.
    std::array<char, kKeyBytesMax> key = {};
  };
  std::atomic<int64_t> num_values = 0;
  std::atomic<int64_t> num_bytes = 0;
  std::array<Value, kValuesMax> values = {};
};

ForkedRendezvous::ForkedRendezvous()
    : memory_([] {
        void* const mapped = mmap(nullptr, sizeof(Memory) + Memory::kBytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        HIR_CHECK(mapped != MAP_FAILED);
        return new (mapped) Memory();
      }()) {}

ForkedRendezvous::~ForkedRendezvous() { munmap(memory_, sizeof(Memory) + Memory::kBytes); }

std::optional<std::string_view> ForkedRendezvous::Find(std::string_view key) const {
  const int64_t count = std::min(memory_->num_values.load(), kValuesMax);
  for (int64_t i = 0; i < count; ++i) {
    const Memory::Value& value = memory_->values[static_cast<size_t>(i)];
    if (!value.ready.load(std::memory_order_acquire)) continue;
    if (std::string_view(value.key.data(), static_cast<size_t>(value.key_bytes)) != key) continue;
    return std::string_view(reinterpret_cast<const char*>(memory_ + 1) + value.at,
                            static_cast<size_t>(value.value_bytes));
  }
  return std::nullopt;
}

Status ForkedRendezvous::Publish(std::string_view key, std::string_view bytes) {
  if (bytes.size() > kRendezvousBytesMax || std::ssize(key) > kKeyBytesMax) {
    return ResourceExhausted(Cat("rendezvous: ", key, " has ", bytes.size(), " bytes, limit rendezvous_bytes_max: ",
                                 kRendezvousBytesMax, "; a key at most ", kKeyBytesMax));
  }
  if (const auto held = Find(key)) {
    if (*held == bytes) return {};
    return {Code::kAlreadyExists, Cat("rendezvous: ", key, " holds other bytes already")};
  }
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t place = memory_->num_values.fetch_add(1);
  const int64_t at = memory_->num_bytes.fetch_add(size);
  if (place >= kValuesMax || at + size > Memory::kBytes) {
    return ResourceExhausted(Cat("rendezvous: ", key, ": limit values_max: ", kValuesMax, " values are published"));
  }
  Memory::Value& value = memory_->values[static_cast<size_t>(place)];
  value.key_bytes = static_cast<int64_t>(key.copy(value.key.data(), value.key.size()));
  value.value_bytes = size;
  value.at = at;
  if (!bytes.empty()) std::memcpy(reinterpret_cast<char*>(memory_ + 1) + at, bytes.data(), bytes.size());
  value.ready.store(true, std::memory_order_release);
  return {};
}

Result<std::string> ForkedRendezvous::Get(std::string_view key, base::Nanos timeout) {
  const base::Nanos deadline = base::Clock::Steady().Now() + timeout;
  for (;;) {
    if (const auto value = Find(key)) return std::string(*value);
    if (base::Clock::Steady().Now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Status(Code::kDeadlineExceeded, Cat("rendezvous: ", key, " was not published in ",
                                             std::chrono::duration<double>(timeout).count(), " s"));
}

}  // namespace hir::comm
