// Wakeup: wakes a thread that polls. Thread-safe.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>

#include "csrc/base/check.h"
#include "csrc/base/fd.h"

namespace hir::service {

class Wakeup {
 public:
  Wakeup() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { HIR_CHECK(fd_.valid()); }

  // fd() is readable until Clear.
  void Signal() { (void)eventfd_write(fd_.get(), 1); }
  void Clear() {
    eventfd_t count = 0;
    (void)eventfd_read(fd_.get(), &count);
  }
  int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
};

}  // namespace hir::service
