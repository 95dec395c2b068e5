#include "csrc/codegen/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "csrc/base/text.h"

namespace hir::codegen {

namespace fs = std::filesystem;
using base::Cat;

namespace {

constexpr std::string_view kMagic = "hostir-kernels-2\n";
constexpr std::string_view kSuffix = ".kernels";

// 128 bits: enough to notice damage and to keep names apart. Not against forgery: who can write here can do more.
std::string Digest(std::string_view bytes) {
  uint64_t a = 0x9e3779b97f4a7c15u ^ bytes.size(), b = 0xc2b2ae3d27d4eb4fu;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b = (b + static_cast<unsigned char>(c)) * 0x9fb21c651e98df25u;
    b ^= b >> 29;
  }
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a ^ (a >> 31)),
                static_cast<unsigned long long>(b));
  return text;
}

// Longer than anybody writes one file.
constexpr auto kWritingTime = std::chrono::hours(1);

// "DIGEST.kernels.PID.NUMBER".
bool IsUnfinished(const fs::path& path) {
  return path.filename().string().find(Cat(kSuffix, ".")) != std::string::npos;
}

}  // namespace

std::string DiskCache::PathOf(std::string_view key) const {
  return Cat(directory_, "/", Digest(key), kSuffix);
}

std::optional<std::string> DiskCache::Read(std::string_view key) const {
  std::ifstream file(PathOf(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::stringstream whole;
  whole << file.rdbuf();
  const std::string bytes = std::move(whole).str();
  // Magic, the digest of the rest, the key's length, key, value.
  std::string_view rest = bytes;
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
  std::error_code
      error;  // What is used stays longest. Of another user's cache that cannot be said.
  fs::last_write_time(PathOf(key), fs::file_time_type::clock::now(), error);
  return std::string(rest.substr(static_cast<size_t>(*length)));
}

void DiskCache::Write(std::string_view key, std::string_view value) const {
  static std::atomic<int> number = 0;  // Of files being written, in this process.
  std::error_code error;
  fs::create_directories(directory_, error);
  const std::string path = PathOf(key);
  const std::string beside = Cat(path, ".", getpid(), ".", number++);
  const std::string rest = Cat(key.size(), "\n", key, value);
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
  for (fs::directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
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
  if (cache != nullptr && *cache != '\0') return Cat(cache, "/hostir/kernels");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? Cat(home, "/.cache/hostir/kernels") : std::string();
}

}  // namespace hir::codegen
