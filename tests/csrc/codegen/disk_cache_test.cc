// Goal: compiled kernels on disk. What was written is read, damage anywhere is as if nothing was there, and the oldest
// go when there is too much.
#include "csrc/codegen/disk_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "csrc/base/text.h"
#include "tests/csrc/codegen/cache_directory.h"

namespace hir::codegen {
namespace {

namespace fs = std::filesystem;
using base::Cat;

TEST(DiskCache, GivesBackWhatWasWritten) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 1 << 20);
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  cache.Write("key", std::string("a\0b\n", 4));
  cache.Write("other", "");
  EXPECT_EQ(cache.Read("key"), std::string("a\0b\n", 4));
  EXPECT_EQ(cache.Read("other"), "");
  EXPECT_EQ(cache.Read("ke"), std::nullopt);
  cache.Write("key", "new");
  EXPECT_EQ(DiskCache(directory.path(), 1).Read("key"), "new");
}

TEST(DiskCache, NoticesDamageInEveryPlace) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 1 << 20);
  cache.Write("key", "the value");
  std::stringstream text;
  text << std::ifstream(cache.PathOf("key"), std::ios::binary).rdbuf();
  const std::string whole = text.str();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    std::ofstream(cache.PathOf("key"), std::ios::binary) << bytes;
    EXPECT_EQ(cache.Read("key"), std::nullopt) << "byte " << i;
    std::ofstream(cache.PathOf("key"), std::ios::binary) << whole.substr(0, i);
    EXPECT_EQ(cache.Read("key"), std::nullopt) << "the first " << i << " bytes";
  }
}

TEST(DiskCache, ForgetsTheOldest) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 3000);
  for (int i = 0; i < 5; ++i) {
    cache.Write(Cat("key", i), std::string(1000, 'x'));
    fs::last_write_time(cache.PathOf(Cat("key", i)),
                        fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  EXPECT_FALSE(cache.Read("key0"));
  EXPECT_EQ(cache.Read("key4"), std::string(1000, 'x'));
  EXPECT_FALSE(cache.Read("another"));
}

}  // namespace
}  // namespace hir::codegen
