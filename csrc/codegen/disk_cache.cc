#include "csrc/codegen/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "csrc/base/digest.h"
#include "csrc/base/text.h"

namespace hir::codegen {

namespace fs = std::filesystem;
using base::Cat;

namespace {

constexpr std::string_view kMagic = "hostir-kernels-2\n";
constexpr std::string_view kSuffix = ".kernels";

// Not against forgery: a process that can write here can do more.
using base::Digest;

// Longer than anybody writes one file.
constexpr auto kWritingTime = std::chrono::hours(1);

// Of a full cache's bytes, what is written between two looks at all its files: at 256 MiB, some hundred kernels.
constexpr int64_t kParts = 64;

// "DIGEST.kernels.PID.NUMBER".
bool IsUnfinished(const fs::path& path) {
  return path.filename().string().find(Cat(kSuffix, ".")) != std::string::npos;
}

// The `size` bytes of `fd`; nothing when they are fewer.
std::optional<std::string> ReadExactly(int fd, size_t size) {
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t got = read(fd, bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// A file of at most `bytes_max`. Anybody may put a pipe, a device or a file without end here: none of them is waited
// for, and none is read.
std::optional<std::string> ReadFile(const std::string& path, int64_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat seen = {};
  std::optional<std::string> bytes;
  if (fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_size <= bytes_max)
    bytes = ReadExactly(fd, static_cast<size_t>(seen.st_size));
  close(fd);
  return bytes;
}

bool IsAbsolute(const char* path) { return path != nullptr && *path == '/'; }

}  // namespace

std::string DiskCache::PathOf(std::string_view key) const { return Cat(directory_, "/", Digest(key), kSuffix); }

std::optional<std::string> DiskCache::Read(std::string_view key) const {
  if (directory_.empty()) return std::nullopt;
  const std::optional<std::string> bytes = ReadFile(PathOf(key), bytes_max_);
  if (!bytes) return std::nullopt;
  // Magic, the digest of the rest, the key's length, key, value.
  std::string_view rest = *bytes;
  if (!rest.starts_with(kMagic)) return std::nullopt;
  rest.remove_prefix(kMagic.size());
  const size_t line = rest.find('\n');
  if (line == std::string_view::npos) return std::nullopt;
  const std::string_view digest = rest.substr(0, line);
  rest.remove_prefix(line + 1);
  if (Digest(rest) != digest) return std::nullopt;
  const size_t length_end = rest.find('\n');
  if (length_end == std::string_view::npos) return std::nullopt;
  const auto length = base::ParseInt(rest.substr(0, length_end));
  rest.remove_prefix(length_end + 1);
  if (!length || *length < 0 || static_cast<size_t>(*length) > rest.size()) return std::nullopt;
  if (rest.substr(0, static_cast<size_t>(*length)) != key) return std::nullopt;
  std::error_code error;  // What is used stays longest. Of another user's cache that cannot be said.
  fs::last_write_time(PathOf(key), fs::file_time_type::clock::now(), error);
  return std::string(rest.substr(static_cast<size_t>(*length)));
}

void DiskCache::Write(std::string_view key, std::string_view value) const {
  if (directory_.empty()) return;
  static std::atomic<int> number = 0;  // Of files being written, in this process.
  std::error_code error;
  fs::create_directories(directory_, error);
  const std::string path = PathOf(key);
  const std::string beside = Cat(path, ".", getpid(), ".", number++);
  const std::string rest = Cat(key.size(), "\n", key, value);
  // Left by a process of this number that was killed, or put there: it need not be a file.
  fs::remove(beside, error);
  {
    std::ofstream file(beside, std::ios::binary);
    file << kMagic << Digest(rest) << "\n" << rest;
    if (!file.flush()) {
      fs::remove(beside, error);
      return;
    }
  }
  fs::rename(beside, path, error);
  if (error) fs::remove(beside, error);
  if ((bytes_written_ += static_cast<int64_t>(rest.size())) < bytes_max_ / kParts) return;
  bytes_written_ = 0;
  Trim();
}

void DiskCache::Trim() const {
  struct Entry {
    fs::file_time_type time;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const auto bytes = static_cast<int64_t>(at->file_size(gone));
    const fs::file_time_type time = at->last_write_time(gone);
    if (gone) continue;
    if (at->path().extension() != kSuffix) {
      // Being written, or left by a process that was killed while it wrote.
      if (IsUnfinished(at->path()) && time < fs::file_time_type::clock::now() - kWritingTime)
        fs::remove(at->path(), gone);
      continue;
    }
    if (bytes > bytes_max_) {  // No entry: nobody reads it.
      fs::remove(at->path(), gone);
      continue;
    }
    entries.push_back({time, bytes, at->path()});
    total += bytes;
  }
  if (total <= bytes_max_) return;
  std::ranges::sort(entries, {}, &Entry::time);
  for (const Entry& entry : entries) {
    if (total <= bytes_max_) break;
    fs::remove(entry.path, error);
    total -= entry.bytes;
  }
}

std::string DefaultCacheDirectory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (IsAbsolute(cache)) return Cat(cache, "/hostir/kernels");
  const char* home = std::getenv("HOME");
  return IsAbsolute(home) ? Cat(home, "/.cache/hostir/kernels") : std::string();
}

}  // namespace hir::codegen
