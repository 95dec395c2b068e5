// The rendezvous of forked processes: what one publishes the others get, also when it is gone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "csrc/base/text.h"
#include "multidevice/rendezvous/forked.h"

namespace hir::comm {
namespace {

// body() in a process of its own; whether it returned true.
bool InAProcess(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkedRendezvous, ProcessesGetWhatOthersPublish) {
  ForkedRendezvous rendezvous;
  const std::string value("a\0b", 3);
  EXPECT_TRUE(InAProcess([&] { return rendezvous.Publish("g1/0", value).ok(); }));
  EXPECT_EQ(*rendezvous.Get("g1/0", std::chrono::seconds(20)), value);
  EXPECT_TRUE(InAProcess([&] { return *rendezvous.Get("g1/0", std::chrono::seconds(20)) == value; }));
}

TEST(ForkedRendezvous, ManyProcessesPublishAtOnce) {
  ForkedRendezvous rendezvous;
  constexpr int kProcesses = 4, kValues = 200;
  for (int process = 0; process < kProcesses; ++process) {
    if (fork() != 0) continue;
    bool ok = true;
    for (int i = 0; i < kValues; ++i)
      ok &= rendezvous.Publish(base::Cat(process, "/", i), std::to_string(process * i)).ok();
    _exit(ok ? 0 : 1);
  }
  for (int process = 0; process < kProcesses; ++process) {
    for (int i = 0; i < kValues; ++i) {
      EXPECT_EQ(*rendezvous.Get(base::Cat(process, "/", i), std::chrono::seconds(20)), std::to_string(process * i));
    }
  }
  for (int process = 0; process < kProcesses; ++process) {
    int status = 1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
}

TEST(ForkedRendezvous, RefusesWhatItCannotKeep) {
  ForkedRendezvous rendezvous;
  EXPECT_EQ(rendezvous.Get("k", std::chrono::milliseconds(1)).status().ToString(),
            "DEADLINE_EXCEEDED: rendezvous: k was not published in 0.001 s");
  EXPECT_TRUE(rendezvous.Publish("k", "v").ok());
  EXPECT_TRUE(rendezvous.Publish("k", "v").ok());
  EXPECT_EQ(rendezvous.Publish("k", "w").ToString(), "ALREADY_EXISTS: rendezvous: k holds other bytes already");
  EXPECT_EQ(rendezvous.Publish("big", std::string(kRendezvousBytesMax + 1, 'x')).code(), Code::kResourceExhausted);
  EXPECT_EQ(rendezvous.Publish(std::string(256, 'k'), "v").code(), Code::kResourceExhausted);
  for (int64_t i = 1; i < ForkedRendezvous::kValuesMax; ++i)
    ASSERT_TRUE(rendezvous.Publish(std::to_string(i), "v").ok());
  EXPECT_EQ(rendezvous.Publish("one more", "v").ToString(),
            "RESOURCE_EXHAUSTED: rendezvous: one more: limit values_max: 4096 values are published");
}

}  // namespace
}  // namespace hir::comm
