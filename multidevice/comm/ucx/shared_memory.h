// Memory that processes of one node have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/status.h"

namespace hir::comm {

// A mapping of pages that have no name in any file system: they are gone when the last process that maps them is,
// however it ends. Only processes of the same user, in the same namespace of processes, can open them.
class SharedMemory {
 public:
  // Zeroed, and all of it there: what ran out later would be a signal.
  //
  // Errors:  kResourceExhausted  no memory, or no file descriptor.
  static Result<SharedMemory> Create(int64_t bytes);
  // What another process has created, by its ticket, while it keeps the file open.
  //
  // Errors:  kUnavailable  it cannot be opened from here, or is another file by now.
  static Result<SharedMemory> Open(std::string_view ticket);

  SharedMemory() = default;
  ~SharedMemory() { Reset(); }
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::string Ticket() const;  // For Open. REQUIRES: the file is open.
  void CloseFile();            // Everybody has it, or will do without. The mapping stays.

  std::byte* data() const { return mapped_ == nullptr ? nullptr : mapped_ + kPreamble; }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kPreamble = 128;  // Where a random number tells this file from others.

  Status Map(int64_t bytes);
  void Reset();

  int fd_ = -1;
  std::byte* mapped_ = nullptr;
  int64_t bytes_ = 0;  // Behind the preamble.
  uint64_t mark_ = 0;
};

}  // namespace hir::comm
