#include "service/os/process_usage.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

// proc(5): the fields of /proc/PID/stat from the third on; empty for a process that is not there.
std::string StatOf(pid_t pid) {
  std::ifstream file(base::Cat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // Of its name, which may hold anything.
  return name_end == std::string::npos ? "" : line.substr(name_end + 1);
}

}  // namespace

std::string HoldOf(pid_t pid) {
  const std::string stat = StatOf(pid);
  if (stat.size() < 2) return "";
  switch (stat[1]) {
    case 'T': return "stopped";
    case 't': return "traced";
    case 'D': return "frozen, or in the kernel";
    default: return "";
  }
}

ProcessUsage UsageOf(pid_t pid) {
  const std::string stat = StatOf(pid);
  if (stat.empty()) return {};
  // User and system time are 14 and 15, resident pages 24.
  std::istringstream fields(stat);
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  int64_t user_ticks = 0, system_ticks = 0, pages = 0;
  fields >> user_ticks >> system_ticks;
  for (int field = 16; field < 24; ++field) fields >> skipped;
  fields >> pages;
  return {.resident_bytes = pages * sysconf(_SC_PAGE_SIZE),
          .cpu_ms = (user_ticks + system_ticks) * 1000 / sysconf(_SC_CLK_TCK)};
}

}  // namespace hir::service
