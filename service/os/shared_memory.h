// SharedMemory: memory that two processes map. A memfd whose size is sealed, so that no holder can make another's
// access fault. Movable; thread-safe, but for the bytes, which the users order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

class SharedMemory {
 public:
  // Zeroed; pages are taken when they are touched. 0 bytes have no descriptor and no address.
  // Errors: kResourceExhausted when memory or descriptors have run out.
  static Result<SharedMemory> Create(int64_t bytes);
  // What another process created. The descriptor is not needed once it is mapped.
  // Errors: kInvalidArgument when it is smaller than `bytes`, or its maker can still take it away, which would end who
  //         reads it, by SIGBUS.
  static Result<SharedMemory> Map(base::Fd fd, int64_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        shared_(other.shared_.load()) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // A descriptor for another process than the daemon's own; one that is not `writable` can only be read by, and nobody
  // but this user can open it anew. Pages that it is still mapped to when this ends are given back then: who keeps the
  // descriptor keeps no memory. Errors: of the system, such as kResourceExhausted.
  Result<base::Fd> Share(bool writable) const;

  // From now on pages are left to whoever maps them: this process ends, and cannot be made to hold more by it.
  static void LeavePages();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  mutable std::atomic<bool> shared_ = false;
};

}  // namespace hir::service
