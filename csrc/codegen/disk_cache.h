// Compiled kernels on disk, shared by processes. For codegen/cpu and codegen/gpu.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hir::codegen {

// A file an entry, named by the digest of its key; it holds the key, and a digest of all its bytes that is checked
// when it is read. Written beside and renamed, so readers see whole files only. What cannot be read or written, is no
// file or is more than `bytes_max` is as if it were not there: a cache never fails, and never waits. Thread-safe.
class DiskCache {
 public:
  // In `directory`, which is made when missing; an empty one keeps nothing. Entries are `bytes_max` together, and for
  // some time what each process wrote since it last looked: a 64th of `bytes_max` at most, and an entry.
  DiskCache(std::string directory, int64_t bytes_max) : directory_(std::move(directory)), bytes_max_(bytes_max) {}
  std::optional<std::string> Read(std::string_view key) const;
  // May then remove the oldest entries.
  void Write(std::string_view key, std::string_view value) const;
  std::string PathOf(std::string_view key) const;

 private:
  void Trim() const;
  const std::string directory_;
  const int64_t bytes_max_;
  // Since Trim looked. At the first write it does: processes may be many, and short.
  mutable std::atomic<int64_t> bytes_written_ = bytes_max_;
};

// Where it lies unless told otherwise: under $XDG_CACHE_HOME or $HOME/.cache; empty when neither is set. A relative
// path is as if it were not set: it would be another place in every folder, and the XDG specification says so.
std::string DefaultCacheDirectory();

}  // namespace hir::codegen
