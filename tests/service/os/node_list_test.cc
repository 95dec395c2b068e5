// Goal: a list of nodes is read as it is meant, and a fault is said by its place. Method: lists and files.
#include "service/os/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

using testing::HasSubstr;

std::string Parsed(std::string_view text) {
  const Result<std::vector<Address>> nodes = ParseNodes(text);
  if (!nodes.ok()) return nodes.status().ToString();
  std::vector<std::string> all;
  for (const Address& node : *nodes) all.push_back(node.ToString());
  return base::Join(all, " ");
}

TEST(NodeList, OfAddresses) {
  EXPECT_EQ(Parsed("tcp:a:1"), "tcp:a:1");
  EXPECT_EQ(Parsed("tcp:10.0.0.1:7001, unix:/run/b"), "tcp:10.0.0.1:7001 unix:/run/b");
}

TEST(NodeList, OfAFile) {
  const std::string path = testing::TempDir() + "/nodes";
  std::ofstream(path) << "# The head.\ntcp:a:1\n\n  tcp:b:1  # The other.\n";
  EXPECT_EQ(Parsed(path), "tcp:a:1 tcp:b:1");
  std::ofstream(path) << "tcp:a:1\n\nwhere\n";
  EXPECT_THAT(Parsed(path), HasSubstr("line 3 of " + path));
  EXPECT_THAT(Parsed(path + ".none"), HasSubstr("NOT_FOUND"));
}

TEST(NodeList, SaysWhatIsWrong) {
  EXPECT_THAT(Parsed(""), HasSubstr("names one at least"));
  EXPECT_THAT(Parsed("tcp:a:1,,tcp:b:1"), HasSubstr("node 1"));
  EXPECT_THAT(Parsed("tcp:a:1,tcp:b"), HasSubstr("node 1"));
  EXPECT_THAT(Parsed("tcp:a:1,tcp:a:1"), HasSubstr("node 1: tcp:a:1 is there twice"));
  EXPECT_THAT(Parsed("tcp:a:0"), HasSubstr("others have to know the port"));
  std::string many = "tcp:a:1";
  for (size_t i = 0; i < kNodesMax; ++i) many += base::Cat(",tcp:b", i, ":1");
  EXPECT_THAT(Parsed(many), HasSubstr("1024 nodes at most, not 1025"));
}

std::string Rank(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  const std::optional<LauncherRank> rank = RankOfLauncher(environment.data());
  return rank.has_value() ? base::Cat(rank->variable, "=", rank->text) : "none";
}

TEST(RankOfLauncher, TheFirstOfTheVariables) {
  EXPECT_EQ(Rank({}), "none");
  EXPECT_EQ(Rank({"PATH=/bin", "SLURM_PROCID=3"}), "SLURM_PROCID=3");
  EXPECT_EQ(Rank({"SLURM_PROCID=0", "PMI_RANK=2"}), "PMI_RANK=2");
  EXPECT_EQ(Rank({"PMI_RANK=2", "OMPI_COMM_WORLD_RANK=4", "SLURM_PROCID=0"}), "OMPI_COMM_WORLD_RANK=4");
  EXPECT_EQ(Rank({"OMPI_COMM_WORLD_RANK=4", "SLURM_PROCID=0", "PMIX_RANK=5"}), "PMIX_RANK=5");
}

TEST(RankOfLauncher, NamesAreWholeAndValuesAsTheyAre) {
  EXPECT_EQ(Rank({"PMIX_RANKS=1", "MY_PMI_RANK=1", "SLURM_PROCID"}), "none");
  EXPECT_EQ(Rank({"PMI_RANK=", "SLURM_PROCID=1"}), "PMI_RANK=");
}

}  // namespace
}  // namespace hir::service
