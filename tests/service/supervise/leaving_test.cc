// Killed processes that stay are named, and reaped when they go.
#include "service/supervise/leaving.h"

#include <gtest/gtest.h>

#include <cstring>

#include "csrc/base/text.h"
#include "tests/service/os/held.h"

namespace hir::service {
namespace {

using std::chrono::seconds;

Process Sleeper() {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const base::Fd read(ends[0]), write(ends[1]);
  Result<Process> process = Process::Spawn("/bin/sleep", {"1000"}, read);
  EXPECT_TRUE(process.ok()) << process.status().ToString();
  return *std::move(process);
}

TEST(Leaving, WaitsForAllTogether) {
  Leaving leaving;
  leaving.Add("nobody", Process());
  EXPECT_TRUE(leaving.Wait({}));
  leaving.Add("rank 0", Sleeper());
  leaving.Add("rank 1", Sleeper());
  EXPECT_TRUE(leaving.Wait(seconds(20)));
  EXPECT_TRUE(leaving.empty());
}

TEST(Leaving, NamesThoseThatStay) {
  Leaving leaving;
  Process held = Sleeper();
  const pid_t pid = held.pid();
  Tracer tracer(pid);
  if (tracer.error() != 0) GTEST_SKIP() << "no process may be traced here: " << std::strerror(tracer.error());
  leaving.Add("rank 0", Sleeper());
  leaving.Add("rank 1", std::move(held));
  EXPECT_TRUE(leaving.Lingering().empty()) << "it was killed a moment ago";
  EXPECT_FALSE(leaving.Wait(kKillTimeout));
  EXPECT_EQ(leaving.Lingering(), std::vector<std::string>{base::Cat("rank 1 (process ", pid, ")")});
  tracer.LetGo();
  EXPECT_TRUE(leaving.Wait(seconds(20)));
}

}  // namespace
}  // namespace hir::service
