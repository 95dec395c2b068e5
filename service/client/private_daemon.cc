#include "service/client/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <vector>

#include "csrc/base/text.h"
#include "service/os/error.h"

extern char** environ;

namespace hir::service {
namespace {

namespace fs = std::filesystem;
using base::Cat;

constexpr size_t kLogLines = 20;
constexpr std::chrono::seconds kDrainTimeout = std::chrono::seconds(15);  // hostird's is 10 s.
constexpr int kReadyFd = 3;                                               // In the daemon.
constexpr int kAliveFd = 4;
constexpr int kFarFd = 100;  // Numbers that no descriptor of ours has, on the way there.

struct Pipe {
  base::Fd read, write;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus("pipe");
  return Pipe{base::Fd(ends[0]), base::Fd(ends[1])};
}

int Milliseconds(base::Nanos time) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

}  // namespace

std::string PrivateDaemon::FindProgram() {
  const char* named = std::getenv("HOSTIR_DAEMON");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  return (fs::read_symlink("/proc/self/exe", error).parent_path() / "hostird").string();
}

Status PrivateDaemon::Spawn(const std::string& program, const std::string& devices) {
  std::string directory = (fs::temp_directory_path() / "hostir-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return ErrnoStatus(directory);  // Mode 0700.
  directory_ = directory;
  address_ = Cat("unix:", directory_, "/socket");
  HIR_ASSIGN(Pipe alive, MakePipe());
  HIR_ASSIGN(Pipe ready, MakePipe());
  std::vector<std::string> args = {program,
                                   Cat("--devices=", devices),
                                   Cat("--listen=", address_),
                                   Cat("--ready-fd=", kReadyFd),
                                   Cat("--alive-fd=", kAliveFd),
                                   Cat("--scratch=", directory_)};
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const std::string log = directory_ + "/log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, ready.write.get(), kFarFd + kReadyFd);
  posix_spawn_file_actions_adddup2(&actions, alive.read.get(), kFarFd + kAliveFd);
  posix_spawn_file_actions_adddup2(&actions, kFarFd + kReadyFd, kReadyFd);
  posix_spawn_file_actions_adddup2(&actions, kFarFd + kAliveFd, kAliveFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kAliveFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A session of its own: an interrupt at the terminal is for this process, whose end the daemon sees.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  errno = posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), environ);
  const Status status = errno == 0 ? Status() : ErrnoStatus(Cat("cannot start ", program));
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (!status.ok()) {
    pid_ = 0;
    return status;
  }
  pidfd_ = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  alive_ = std::move(alive.write);
  ready_ = std::move(ready.read);
  return {};
}

std::string PrivateDaemon::Ended(base::Nanos timeout, int* exit_code) {
  pollfd ended = {pidfd_.get(), POLLIN, 0};
  if (pid_ == 0 || poll(&ended, 1, Milliseconds(timeout)) <= 0) return {};
  siginfo_t info = {};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) return {};
  pid_ = 0;
  if (info.si_code != CLD_EXITED) return Cat("was killed by signal ", info.si_status);
  *exit_code = info.si_status;
  return Cat("exited with ", info.si_status);
}

std::string PrivateDaemon::LogTail() const {
  std::ifstream log(directory_ + "/log");
  std::deque<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    lines.push_back("  " + line);
    if (lines.size() > kLogLines) lines.pop_front();
  }
  return lines.empty() ? "(the log is empty)" : base::Join(lines, "\n");
}

Result<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(const std::string& program, const std::string& devices,
                                                            base::Nanos timeout, int* exit_code) {
  *exit_code = -1;
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon());
  HIR_TRY(daemon->Spawn(program, devices));
  pollfd readable = {daemon->ready_.get(), POLLIN, 0};
  char byte = 0;
  if (poll(&readable, 1, Milliseconds(timeout)) > 0 && read(daemon->ready_.get(), &byte, 1) == 1) {
    return daemon;
  }
  // Its end of the pipe closes before it is gone.
  std::string how = daemon->Ended(std::chrono::milliseconds(500), exit_code);
  if (how.empty()) how = Cat("was not ready within ", Milliseconds(timeout), " ms");
  return Unavailable(Cat(program, " --devices=", devices, " ", how, "; its log ends:\n", daemon->LogTail()));
}

PrivateDaemon::~PrivateDaemon() {
  int ignored_code = 0;
  if (pid_ != 0) {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGTERM, nullptr, 0);
    if (Ended(kDrainTimeout, &ignored_code).empty()) {
      syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
      Ended(kDrainTimeout, &ignored_code);
    }
  }
  std::error_code ignored;
  if (!directory_.empty()) fs::remove_all(directory_, ignored);
}

}  // namespace hir::service
