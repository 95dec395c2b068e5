#include "service/os/scratch_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "hostir-scratch-";

// The lock on the folder `path` of this user; invalid when another holds it, or there is no such folder.
base::Fd Lock(const std::string& path) {
  base::Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat held = {}, there = {};
  if (!fd.valid() || fstat(fd.get(), &held) != 0 || held.st_uid != geteuid()) return {};
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // Whoever removed it meanwhile held the lock until then.
  const bool same = lstat(path.c_str(), &there) == 0 && there.st_ino == held.st_ino;
  return same ? std::move(fd) : base::Fd();
}

void RemoveAll(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Those whose owner has ended.
void RemoveLeft(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(kPrefix)) continue;
    if (const base::Fd lock = Lock(at->path().string()); lock.valid()) RemoveAll(at->path().string());
  }
}

}  // namespace

Result<ScratchFolder> ScratchFolder::Make(const std::string& parent) {
  RemoveLeft(parent);
  // Another Make may take what is not locked yet for left behind: then there is another.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::string path = base::Cat(parent, "/", kPrefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(path);
    if (base::Fd lock = Lock(path); lock.valid()) return ScratchFolder(std::move(path), std::move(lock));
  }
  return Unavailable(base::Cat(parent, ": every new folder was removed by another process"));
}

ScratchFolder::~ScratchFolder() {
  if (!path_.empty()) RemoveAll(path_);
}

}  // namespace hir::service
