// Processes end, are killed and reaped; one that does not end holds nobody up.
#include "service/os/process.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/service/os/held.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Process Spawned(const std::string& path, const std::vector<std::string>& args) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const base::Fd read(ends[0]), write(ends[1]);
  Result<Process> process = Process::Spawn(path, args, read);
  EXPECT_TRUE(process.ok()) << process.status().ToString();
  return *std::move(process);
}

TEST(Process, SaysHowItEnded) {
  Process ends = Spawned("/bin/sh", {"-c", "exit 3"});
  EXPECT_EQ(ends.Ended(seconds(20)), "exited with 3");
  Process killed = Spawned("/bin/sleep", {"1000"});
  EXPECT_EQ(killed.Ended(milliseconds(0)), std::nullopt);
  killed.Kill();
  EXPECT_EQ(killed.Ended(seconds(20)), "killed by signal 9");
  EXPECT_EQ(killed.signal(), SIGKILL);
}

TEST(Process, OneThatIsHeldIsNotWaitedFor) {
  Process held = Spawned("/bin/sleep", {"1000"});
  Tracer tracer(held.pid());
  if (tracer.error() != 0) GTEST_SKIP() << "no process may be traced here: " << std::strerror(tracer.error());
  held.Kill();
  EXPECT_EQ(held.Ended(milliseconds(200)), std::nullopt);
  tracer.LetGo();
  EXPECT_EQ(held.Ended(seconds(20)), "killed by signal 9");
}

TEST(Process, ItsDestructionIsBounded) {
  Process held = Spawned("/bin/sleep", {"1000"});
  const pid_t pid = held.pid();
  Tracer tracer(pid);
  if (tracer.error() != 0) GTEST_SKIP() << "no process may be traced here: " << std::strerror(tracer.error());
  const base::Nanos began = base::Clock::Steady().Now();
  { const Process gone = std::move(held); }
  const base::Nanos took = base::Clock::Steady().Now() - began;
  EXPECT_GE(took, kKillTimeout);
  EXPECT_LT(took, kKillTimeout + seconds(20));
  tracer.LetGo();
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);  // It was abandoned, not reaped.
}

}  // namespace
}  // namespace hir::service
