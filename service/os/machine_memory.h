// How much memory the processes of the service may use together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace hir::service {

// The machine's, or what the control groups of this process leave of it.
int64_t MachineMemoryBytes();

// The least limit of the control groups that `membership`, the text of /proc/self/cgroup, names, and of those above
// them; nothing when none has one. `mount`: where they are, /sys/fs/cgroup.
std::optional<int64_t> CgroupMemoryMax(std::string_view membership, const std::filesystem::path& mount);

}  // namespace hir::service
