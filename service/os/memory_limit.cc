#include "service/os/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <new>
#include <string>

#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

constexpr int64_t kNoMachineBytes = int64_t{1} << 40;

// proc(5): private memory that can be written, as the limit counts it. 0: it is not told.
int64_t DataBytes() {
  std::ifstream lines("/proc/self/status");
  std::string word;
  while (lines >> word && word != "VmData:") {
  }
  int64_t kib = 0;
  lines >> kib;
  return lines ? kib * 1024 : 0;
}

}  // namespace

void EndOutOfMemory() { _exit(kExitOutOfMemory); }

Status LimitMemory(int64_t bytes) {
  const int64_t has = DataBytes();
  if (has >= kNoMachineBytes) {
    return {Code::kFailedPrecondition,
            base::Cat("this process has mapped ", has, " bytes, as under a sanitizer: its memory is not limited")};
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return ErrnoStatus("getrlimit(RLIMIT_DATA)");
  const rlim_t wanted = static_cast<rlim_t>(has) + static_cast<rlim_t>(bytes);
  if (limit.rlim_cur <= wanted) return {};  // Somebody gave less.
  limit.rlim_cur = wanted;
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return ErrnoStatus("setrlimit(RLIMIT_DATA)");
  std::set_new_handler(&EndOutOfMemory);
  return {};
}

}  // namespace hir::service
