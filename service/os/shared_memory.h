// SharedMemory: memory that two processes map. A memfd whose size is sealed, so that no holder can make another's
// access fault. Movable; thread-safe, but for the bytes, which the users order.
#pragma once

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
  // Errors: kInvalidArgument when it is smaller than `bytes`.
  static Result<SharedMemory> Map(base::Fd fd, int64_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace hir::service
