#include "multidevice/comm/ucx/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "csrc/base/text.h"
#include "tests/multidevice/comm/ucx/shared/left_behind.h"

namespace hir::comm {
namespace {

constexpr int64_t kBytes = 10'000;

TEST(SharedMemory, IsTheSameForWhoeverOpensIt) {
  Result<SharedMemory> made = SharedMemory::Create(kBytes);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->bytes(), kBytes);
  for (int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(made->data()[i], std::byte{0});
  Result<SharedMemory> opened = SharedMemory::Open(made->Ticket());
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_NE(opened->data(), made->data());
  opened->data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(made->data()[kBytes - 1], std::byte{7});
}

TEST(SharedMemory, ItsFileIsTheOwnersAloneAndCannotShrink) {
  const SharedMemory made = *SharedMemory::Create(kBytes);
  std::istringstream ticket(made.Ticket());
  int process = 0;
  int file = 0;
  ticket >> process >> file;
  struct stat seen = {};
  ASSERT_EQ(fstat(file, &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0600u);
  EXPECT_EQ(seen.st_nlink, 0u);  // It has no name.
  EXPECT_NE(ftruncate(file, 0), 0);
  EXPECT_EQ(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(SharedMemory, NothingIsLeft) {
  const int64_t files = OpenFiles();
  const int64_t mappings = SharedMappings();
  {
    SharedMemory made = *SharedMemory::Create(kBytes);
    const SharedMemory opened = *SharedMemory::Open(made.Ticket());
    EXPECT_EQ(OpenFiles(), files + 1);  // The maker's, for those that have yet to open it.
    EXPECT_EQ(SharedMappings(), mappings + 2);
    made.CloseFile();
    EXPECT_EQ(OpenFiles(), files);
  }
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedMappings(), mappings);
}

TEST(SharedMemory, AnotherFileIsNotTaken) {
  SharedMemory made = *SharedMemory::Create(kBytes);
  std::string ticket = made.Ticket();
  ticket.back() = ticket.back() == '1' ? '2' : '1';
  EXPECT_EQ(SharedMemory::Open(ticket).status().code(), Code::kUnavailable);
  EXPECT_EQ(SharedMemory::Open("nonsense").status().code(), Code::kInternal);
  ticket = made.Ticket();
  made.CloseFile();
  EXPECT_EQ(SharedMemory::Open(ticket).status().code(), Code::kUnavailable);
}

TEST(SharedMemory, NoMoreFilesIsAnError) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    _exit(SharedMemory::Create(kBytes).status().code() == Code::kResourceExhausted ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// An error, where touching memory that is not there would have been a signal. The process's own limit stands for the
// machine's: the kernel fills a memory file until nothing is left, and ends other processes for it.
TEST(SharedMemory, NoMoreMemoryIsAnError) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit small = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &small);
    signal(SIGXFSZ, SIG_IGN);
    _exit(SharedMemory::Create(1 << 20).status().code() == Code::kResourceExhausted ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hir::comm
