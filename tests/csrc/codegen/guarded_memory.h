// Bytes between pages that nobody may touch: a kernel that reads beyond its input ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "csrc/base/check.h"

namespace hir::codegen {

class GuardedMemory {
 public:
  // Right behind the page before, or, `at_end`, right before the page behind.
  GuardedMemory(std::span<const std::byte> contents, bool at_end) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (contents.size() + page - 1) / page * page;
    size_ = inside + 2 * page;
    void* const mapped = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HIR_CHECK(mapped != MAP_FAILED);
    memory_ = static_cast<std::byte*>(mapped);
    HIR_CHECK(inside == 0 || mprotect(memory_ + page, inside, PROT_READ | PROT_WRITE) == 0);
    data_ = memory_ + page + (at_end ? inside - contents.size() : 0);
    if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), data_(other.data_) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  ~GuardedMemory() {
    if (memory_ != nullptr) munmap(memory_, size_);
  }

  std::byte* data() { return data_; }

 private:
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace hir::codegen
