#include "service/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

std::atomic<bool> leaves_pages = false;

}  // namespace

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  shared_ = other.shared_.exchange(shared_);
  return *this;
}

void SharedMemory::LeavePages() { leaves_pages = true; }

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (shared_ && !leaves_pages && fd_.valid())
    (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes_);
}

Result<base::Fd> SharedMemory::Share(bool writable) const {
  base::Fd fd(writable ? fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)
                       : open(base::Cat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("a descriptor to share");
  shared_ = true;
  return fd;
}

Result<SharedMemory> SharedMemory::Create(int64_t bytes) {
  if (bytes == 0) return SharedMemory();
  base::Fd fd(memfd_create("hostir", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create");
  if (ftruncate(fd.get(), bytes) != 0) return ErrnoStatus(base::Cat("memfd of ", bytes, " bytes"));
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return ErrnoStatus("memfd mode");  // It would be everybody's.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return ErrnoStatus("memfd seals");
  return Map(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::Map(base::Fd fd, int64_t bytes) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus("fstat");
  if (info.st_size < bytes) {
    return InvalidArgument(base::Cat("shared memory of ", info.st_size, " bytes, expected ", bytes));
  }
  if (const int seals = fcntl(fd.get(), F_GET_SEALS); seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return InvalidArgument("shared memory that can still shrink: seal it (F_SEAL_SHRINK)");
  SharedMemory memory;
  if (bytes > 0) {
    void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) return ErrnoStatus(base::Cat("mmap of ", bytes, " bytes"));
    memory.data_ = static_cast<std::byte*>(data);
    memory.bytes_ = bytes;
  }
  memory.fd_ = std::move(fd);
  return memory;
}

}  // namespace hir::service
