#include "multidevice/comm/ucx/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::comm {
namespace {

Status Failed(Code code, std::string_view what) {
  return {code, base::Cat("shared memory: ", what, ": ", std::strerror(errno))};
}

}  // namespace

Result<SharedMemory> SharedMemory::Create(int64_t bytes) {
  SharedMemory memory;
  memory.fd_ = memfd_create("hostir", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.fd_ < 0) return Failed(Code::kResourceExhausted, "create");
  if (fchmod(memory.fd_, 0600) != 0 || fallocate(memory.fd_, 0, 0, kPreamble + bytes) != 0)
    return Failed(Code::kResourceExhausted, base::Cat(bytes, " bytes"));
  // Else a process could cut off what others have mapped.
  if (fcntl(memory.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Failed(Code::kResourceExhausted, "seal");
  if (getrandom(&memory.mark_, sizeof memory.mark_, 0) != sizeof memory.mark_)
    return Failed(Code::kResourceExhausted, "random number");
  HIR_TRY(memory.Map(bytes));
  std::memcpy(memory.mapped_, &memory.mark_, sizeof memory.mark_);
  return memory;
}

Result<SharedMemory> SharedMemory::Open(std::string_view ticket) {
  std::istringstream fields{std::string(ticket)};
  int64_t process = 0;
  int64_t file = 0;
  int64_t bytes = 0;
  SharedMemory memory;
  if (!(fields >> process >> file >> bytes >> memory.mark_))
    return Internal(base::Cat("shared memory: \"", ticket, "\" is no ticket"));
  const std::string path = base::Cat("/proc/", process, "/fd/", file);
  // Were it another file by now, opening it should do nothing.
  memory.fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (memory.fd_ < 0) return Failed(Code::kUnavailable, path);
  struct stat seen = {};
  uint64_t mark = 0;
  const bool same = fstat(memory.fd_, &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_size == kPreamble + bytes &&
                    pread(memory.fd_, &mark, sizeof mark, 0) == sizeof mark && mark == memory.mark_;
  if (!same) return Unavailable(base::Cat("shared memory: ", path, " is another file by now"));
  HIR_TRY(memory.Map(bytes));
  memory.CloseFile();
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  fd_ = std::exchange(other.fd_, -1);
  mapped_ = std::exchange(other.mapped_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mark_ = other.mark_;
  return *this;
}

std::string SharedMemory::Ticket() const {
  HIR_CHECK(fd_ >= 0);
  return base::Cat(getpid(), " ", fd_, " ", bytes_, " ", mark_);
}

void SharedMemory::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// Its pages are there already; this saves a fault for each.
Status SharedMemory::Map(int64_t bytes) {
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(kPreamble + bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
  if (mapped == MAP_FAILED) return Failed(Code::kResourceExhausted, "map");
  mapped_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  return {};
}

void SharedMemory::Reset() {
  CloseFile();
  if (mapped_ != nullptr) munmap(std::exchange(mapped_, nullptr), static_cast<size_t>(kPreamble + bytes_));
}

}  // namespace hir::comm
