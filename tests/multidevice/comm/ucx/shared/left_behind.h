// What of shared memory a process holds, and what lies where others could find it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace hir::comm {

inline int64_t OpenFiles() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

// Mappings of memory made by SharedMemory.
inline int64_t SharedMappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.ends_with("/memfd:hostir (deleted)");
  return count;
}

// Mappings of this process's of files in shared memory that have a name, which would stay when it is killed.
inline int64_t NamedSegments() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(" /dev/shm/") != std::string::npos && !line.ends_with(" (deleted)");
  return count;
}

}  // namespace hir::comm
