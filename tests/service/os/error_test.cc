// Goal: what a process may not have is refused with its limit and what to do about it, and the next is served.
// Method: this process's own limits, lowered.
#include "service/os/error.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "service/os/shared_memory.h"

namespace hir::service {
namespace {

// The soft limit, until destruction.
class Lowered {
 public:
  Lowered(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    getrlimit(resource, &before_);
    const rlimit limit = {value, before_.rlim_max};
    setrlimit(resource, &limit);
  }
  ~Lowered() { setrlimit(resource_, &before_); }

 private:
  const __rlimit_resource resource_;
  rlimit before_ = {};
};

TEST(ErrnoStatus, BeyondTheSizeOfFiles) {
  signal(SIGXFSZ, SIG_IGN);
  const Lowered limit(RLIMIT_FSIZE, 4096);
  EXPECT_TRUE(SharedMemory::Create(4096).ok());
  EXPECT_EQ(SharedMemory::Create(4097).status().ToString(),
            "RESOURCE_EXHAUSTED: memfd of 4097 bytes: File too large; a file may have 4096 bytes "
            "here, and shared memory is one: start the daemon with a higher limit (ulimit -f)");
}

TEST(ErrnoStatus, BeyondTheNumberOfDescriptors) {
  const int next = dup(0);
  close(next);
  const Lowered limit(RLIMIT_NOFILE, static_cast<rlim_t>(next));
  EXPECT_EQ(SharedMemory::Create(1).status().ToString(),
            "RESOURCE_EXHAUSTED: memfd_create: Too many open files; a process may have " + std::to_string(next) +
                " descriptors here, and every shard is one: free tensors, or start the daemon with "
                "a higher limit (ulimit -n)");
}

}  // namespace
}  // namespace hir::service
