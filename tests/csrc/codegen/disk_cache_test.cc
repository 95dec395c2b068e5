// Goal: compiled kernels on disk. What was written is read, damage anywhere is as if nothing was there, what is no file
// is neither waited for nor read, and the oldest go when there is too much.
#include "csrc/codegen/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
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
  EXPECT_EQ(DiskCache(directory.path(), 1 << 10).Read("key"), "new");
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

// In the place of an entry: a pipe that nobody writes, a device that has no end, a folder, a file longer than all may
// be. None is read, and all but the folder give way to what is written.
TEST(DiskCache, ReadsNothingThatIsNoFile) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 1 << 20);
  const std::string path = cache.PathOf("key");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  cache.Write("other", "beside it");
  EXPECT_EQ(cache.Read("other"), "beside it");
  cache.Write("key", "value");
  EXPECT_EQ(cache.Read("key"), "value");
  fs::remove(path);
  fs::create_symlink("/dev/full", path);
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  cache.Write("key", "value");
  EXPECT_EQ(cache.Read("key"), "value");
  fs::resize_file(path, int64_t{1} << 40);
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  cache.Write("key", "value");
  EXPECT_EQ(cache.Read("key"), "value");
  fs::remove(path);
  fs::create_directories(path + "/in it");
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  cache.Write("key", "value");
  EXPECT_EQ(cache.Read("key"), std::nullopt);
  EXPECT_EQ(cache.Read("other"), "beside it");
}

// It alone goes: what is of use stays.
TEST(DiskCache, ForgetsWhatIsTooLongToBeAnEntry) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 1 << 20);
  cache.Write("key", "value");
  std::ofstream(cache.PathOf("long")) << "x";
  fs::resize_file(cache.PathOf("long"), int64_t{1} << 40);
  DiskCache(directory.path(), 1 << 20).Write("other", "value");
  EXPECT_FALSE(fs::exists(cache.PathOf("long")));
  EXPECT_EQ(cache.Read("key"), "value");
}

TEST(DiskCache, LiesWhereAnAbsolutePathSays) {
  setenv("HOME", "/me", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(DefaultCacheDirectory(), "/cache/hostir/kernels");
  for (const char* none : {"cache", "./cache", ""}) {
    setenv("XDG_CACHE_HOME", none, 1);
    EXPECT_EQ(DefaultCacheDirectory(), "/me/.cache/hostir/kernels") << none;
  }
  setenv("HOME", "me", 1);
  EXPECT_EQ(DefaultCacheDirectory(), "");
}

TEST(DiskCache, ForgetsTheOldest) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 3000);
  for (int i = 0; i < 5; ++i) {
    cache.Write(Cat("key", i), std::string(1000, 'x'));
    fs::last_write_time(cache.PathOf(Cat("key", i)), fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  EXPECT_FALSE(cache.Read("key0"));
  EXPECT_EQ(cache.Read("key4"), std::string(1000, 'x'));
  EXPECT_FALSE(cache.Read("another"));
}

// All files are looked at once for a 64th of the cache's bytes, which may be there beside them. That it looks is seen
// by a file that goes when it does.
TEST(DiskCache, LooksAtItsFilesNowAndThen) {
  const CacheDirectory directory;
  const DiskCache cache(directory.path(), 64 * 4000);
  cache.Write("first", "");
  int looks = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!fs::exists(cache.PathOf("long"))) {
      std::ofstream(cache.PathOf("long")) << "x";
      fs::resize_file(cache.PathOf("long"), 64 * 4000 + 1);
    }
    cache.Write(Cat("key", i), std::string(400, 'x'));
    looks += fs::exists(cache.PathOf("long")) ? 0 : 1;
  }
  EXPECT_EQ(looks, 100);  // Every tenth of some 410 bytes.
  int64_t total = 0;
  for (const auto& entry : fs::directory_iterator(directory.path()))
    total += entry.path() == cache.PathOf("long") ? 0 : static_cast<int64_t>(entry.file_size());
  EXPECT_GT(total, 64 * 4000 / 2);
  EXPECT_LE(total, 65 * 4000 + 500);
}

}  // namespace
}  // namespace hir::codegen
