// Goal: a scratch folder goes with its owner, also one that was killed, and never while that lives.
#include "service/os/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace hir::service {
namespace {

namespace fs = std::filesystem;

class ScratchFolders : public testing::Test {
 protected:
  ScratchFolders() {
    parent_ = (fs::temp_directory_path() / "hostir-test-XXXXXX").string();
    if (mkdtemp(parent_.data()) == nullptr) std::abort();
  }
  ~ScratchFolders() override { fs::remove_all(parent_); }
  size_t Count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(parent_), fs::directory_iterator()));
  }
  std::string parent_;
};

TEST_F(ScratchFolders, GoesWithWhatIsInIt) {
  {
    Result<ScratchFolder> folder = ScratchFolder::Make(parent_);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    struct stat seen = {};
    ASSERT_EQ(stat((*folder).path().c_str(), &seen), 0);
    EXPECT_EQ(seen.st_mode & 0777, 0700U);
    std::ofstream((*folder).path() + "/segment") << "left";
    const ScratchFolder moved = *std::move(folder);
    EXPECT_TRUE(fs::exists(moved.path() + "/segment"));
  }
  EXPECT_EQ(Count(), 0U);
}

TEST_F(ScratchFolders, OfAProcessThatWasKilledGoesWithTheNext) {
  const pid_t child = fork();
  if (child == 0) {
    const Result<ScratchFolder> folder = ScratchFolder::Make(parent_);
    if (folder.ok()) std::ofstream((*folder).path() + "/segment") << "left";
    _exit(folder.ok() ? 0 : 1);  // Nothing is destroyed.
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(Count(), 1U);
  const Result<ScratchFolder> first = ScratchFolder::Make(parent_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Count(), 1U) << "its own";
  const Result<ScratchFolder> second = ScratchFolder::Make(parent_);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(fs::exists((*first).path())) << "its owner lives";
  EXPECT_EQ(Count(), 2U);
}

TEST_F(ScratchFolders, LeavesAloneWhatIsNoneOfThem) {
  std::ofstream(parent_ + "/hostir-scratch-file") << "a file";
  fs::create_directory(parent_ + "/folder");
  fs::create_directory_symlink(parent_ + "/folder", parent_ + "/hostir-scratch-link");
  const Result<ScratchFolder> folder = ScratchFolder::Make(parent_);
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(Count(), 4U);
  EXPECT_FALSE(ScratchFolder::Make(parent_ + "/nowhere").ok());
}

}  // namespace
}  // namespace hir::service
