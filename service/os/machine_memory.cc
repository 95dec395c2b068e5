#include "service/os/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

// The least of what the files called `name` say, in `path` below `mount` and in every folder above it. In a container
// the groups may be mounted where `path` is not seen: then its last folders are not there.
void TakeLeast(const std::filesystem::path& mount, std::string_view path, std::string_view name,
               std::optional<int64_t>& least) {
  std::filesystem::path group = std::filesystem::path(path).relative_path();
  for (;; group = group.parent_path()) {
    std::ifstream file(mount / group / name);
    std::string text;
    // "max", and what is not there, is no number.
    if (std::optional<int64_t> limit; file >> text && (limit = base::ParseInt(text)).has_value())
      least = std::min(least.value_or(*limit), *limit);
    if (group.empty()) return;
  }
}

}  // namespace

std::optional<int64_t> CgroupMemoryMax(std::string_view membership, const std::filesystem::path& mount) {
  std::optional<int64_t> least;
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(line.size() + 1, membership.size()));
    // cgroups(7): "0::/path" in version 2, "4:memory:/path" in version 1.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) TakeLeast(mount, path, "memory.max", least);
    if (controllers == "memory") TakeLeast(mount / "memory", path, "memory.limit_in_bytes", least);
  }
  return least;
}

int64_t MachineMemoryBytes() {
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  std::ifstream file("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(file), {}};
  return std::min(bytes, CgroupMemoryMax(membership, "/sys/fs/cgroup").value_or(bytes));
}

}  // namespace hir::service
