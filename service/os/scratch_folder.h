// ScratchFolder: a folder for what others put there, that goes with it all when its owner does, however that ends.
#pragma once

#include <string>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

// Its owner holds a lock on it, which the kernel drops when the process ends: the next Make of this user removes what
// a process that was killed left behind. Movable; threads: one at a time.
class ScratchFolder {
 public:
  // A new folder "hostir-scratch-XXXXXX" in `parent`, this user's alone.
  // Errors: kUnavailable, kResourceExhausted: it cannot be made there.
  static Result<ScratchFolder> Make(const std::string& parent);

  ScratchFolder(ScratchFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  ~ScratchFolder();

  const std::string& path() const { return path_; }

 private:
  ScratchFolder(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;  // Empty when moved from.
  base::Fd lock_;
};

}  // namespace hir::service
