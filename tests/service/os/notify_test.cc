// Goal: a manager of services that restarts what hangs hears of a process that works, and of no other. Method: its
// socket and its variables, of this test.
#include "service/os/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class Manager : public testing::Test {
 protected:
  Manager() : path_(testing::TempDir() + base::Cat("notify.", getpid())) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  ~Manager() override {
    unlink(path_.c_str());
    for (const char* const name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }

  // Empty: nothing has come.
  std::string Heard() {
    char bytes[64];
    const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return got <= 0 ? std::string() : std::string(bytes, static_cast<size_t>(got));
  }

 private:
  const std::string path_;
  const base::Fd socket_ = base::Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
};

TEST_F(Manager, SaysHowLongItWaits) {
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(WatchdogTimeout(), microseconds(30000000));
  setenv("WATCHDOG_PID", base::Cat(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), microseconds(30000000));
  setenv("WATCHDOG_PID", base::Cat(getppid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), std::nullopt) << "who started this process is meant";
  unsetenv("WATCHDOG_PID");
  for (const char* const wrong : {"", "0", "-1", "soon", "9223372036854775807"}) {
    setenv("WATCHDOG_USEC", wrong, 1);
    EXPECT_EQ(WatchdogTimeout(), std::nullopt) << wrong;
  }
}

TEST_F(Manager, HearsAtOnceAndThenTwiceInThatTime) {
  int probes = 0;
  Watchdog watchdog(milliseconds(40), [&] { ++probes; });
  EXPECT_EQ(watchdog.MsToWait(), 0);
  const auto begun = std::chrono::steady_clock::now();
  int heard = 0;
  while (heard < 5) {
    watchdog.Look();
    if (Heard() == "WATCHDOG=1") ++heard;
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(80)) << "not before it is due";
  EXPECT_EQ(probes, heard);
}

TEST_F(Manager, HearsNothingOfAProbeThatHasNotReturned) {
  Watchdog watchdog(hours(2), [&] { EXPECT_EQ(Heard(), ""); });
  watchdog.Look();
  EXPECT_EQ(Heard(), "WATCHDOG=1");
  EXPECT_GT(watchdog.MsToWait(), 3500000);
  watchdog.Look();
  EXPECT_EQ(Heard(), "");
}

TEST_F(Manager, WithoutAWatchdogNothingIsSaid) {
  Watchdog watchdog({}, [] { FAIL() << "nobody asks"; });
  EXPECT_EQ(watchdog.MsToWait(), -1);
  watchdog.Look();
  EXPECT_EQ(Heard(), "");
}

}  // namespace
}  // namespace hir::service
