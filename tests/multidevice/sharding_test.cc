// Shards as values: which blocks devices hold, what is refused, and the form that travels, both ways.
#include "multidevice/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multidevice/mesh.h"

namespace hir::mesh {
namespace {

using testing::ElementsAre;
constexpr ParallelType kX = ParallelType::kMeshX;
constexpr ParallelType kY = ParallelType::kMeshY;
constexpr ParallelType kZ = ParallelType::kMeshZ;

DeviceMesh Make(std::vector<int64_t> shape, std::vector<int64_t> devices) {
  return *DeviceMesh::Make(std::move(shape), std::move(devices));
}

TEST(Mesh, LastDimensionIsX) {
  const DeviceMesh mesh = Make({2, 3}, {5, 4, 3, 2, 1, 0});
  EXPECT_EQ(mesh.Size(kX), 3);
  EXPECT_EQ(mesh.Size(kY), 2);
  EXPECT_EQ(mesh.Size(kZ), 1);
  EXPECT_FALSE(mesh.Has(kZ));
  EXPECT_THAT(mesh.Team(1, kX), ElementsAre(2, 1, 0));
  EXPECT_THAT(mesh.Team(1, kY), ElementsAre(4, 1));
  EXPECT_THAT(mesh.Team(1, kZ), ElementsAre(1));
  EXPECT_EQ(mesh.ToString(), "[[5, 4, 3], [2, 1, 0]]");
}

TEST(Mesh, Refusals) {
  EXPECT_EQ(DeviceMesh::Make({2}, {1, 1}).status().message(), "mesh names device 1 twice");
  EXPECT_EQ(DeviceMesh::Make({2}, {0, -1}).status().message(), "mesh device -1 is negative");
  EXPECT_EQ(DeviceMesh::Make({}, {}).status().message(), "a mesh has 1 to 3 dimensions, this one has 0");
  EXPECT_EQ(DeviceMesh::Make({2, 2}, {0, 1}).status().message(), "mesh of shape [2, 2] needs 4 devices, got 2");
}

TEST(Sharding, SlicesFollowTheDeviceOrder) {
  const Sharding rows = {Make({4}, {3, 1, 0, 2}), {{kX}, {}}, {}};
  const std::vector<int64_t> shape = {8, 5};
  EXPECT_THAT(*ShardSlices(rows, shape, 3, "x"), ElementsAre(Range{0, 2}, Range{0, 5}));
  EXPECT_THAT(*ShardSlices(rows, shape, 2, "x"), ElementsAre(Range{6, 8}, Range{0, 5}));
  EXPECT_THAT(ShardShape(rows, shape), ElementsAre(2, 5));
  EXPECT_EQ(rows.ToString(), "axis 0 split 4 ways over mesh_x");
}

TEST(Sharding, TheFirstTypeOfAnAxisIsTheOuter) {
  const DeviceMesh mesh = Make({2, 2}, {0, 1, 2, 3});
  const std::vector<int64_t> shape = {4};
  const Sharding yx = {mesh, {{kY, kX}}, {}};
  const Sharding xy = {mesh, {{kX, kY}}, {}};
  EXPECT_THAT(*ShardSlices(yx, shape, 1, "x"), ElementsAre(Range{1, 2}));
  EXPECT_THAT(*ShardSlices(xy, shape, 1, "x"), ElementsAre(Range{2, 3}));
  EXPECT_EQ(xy.ToString(), "axis 0 split 4 ways over mesh_x, mesh_y");
}

TEST(Sharding, TheLastBlocksAreShortOrEmpty) {
  const Sharding columns = {Make({4}, {0, 1, 2, 3}), {{}, {kX}}, {}};
  const auto slice = [&](int64_t extent, int64_t device) {
    return (*ShardSlices(columns, std::vector<int64_t>{8, extent}, device, "x"))[1];
  };
  EXPECT_EQ(slice(7, 0), (Range{0, 2}));
  EXPECT_EQ(slice(7, 3), (Range{6, 7}));
  EXPECT_EQ(slice(5, 2), (Range{4, 5}));
  EXPECT_EQ(slice(5, 3), (Range{5, 5}));
  EXPECT_EQ(slice(3, 3), (Range{3, 3}));
  EXPECT_EQ(slice(0, 1), (Range{0, 0}));
  EXPECT_THAT(ShardShape(columns, std::vector<int64_t>{8, 5}), ElementsAre(8, 2));
  EXPECT_THAT(ShardShape(columns, std::vector<int64_t>{8, 3}), ElementsAre(8, 1));
  EXPECT_THAT(ShardShape(columns, std::vector<int64_t>{8, 0}), ElementsAre(8, 0));
  EXPECT_EQ(ShardSlices(columns, std::vector<int64_t>{8, 8}, 7, "x").status().message(),
            "x: device 7 is not in its mesh [0, 1, 2, 3]");
}

TEST(Sharding, ASecondDimensionCutsEachBlockAgain) {
  const Sharding both = {Make({2, 2}, {0, 1, 2, 3}), {{kY, kX}}, {}};
  const std::vector<int64_t> shape = {5};  // Blocks of 3, each of blocks of 2.
  EXPECT_THAT(*ShardSlices(both, shape, 0, "x"), ElementsAre(Range{0, 2}));
  EXPECT_THAT(*ShardSlices(both, shape, 1, "x"), ElementsAre(Range{2, 3}));
  EXPECT_THAT(*ShardSlices(both, shape, 2, "x"), ElementsAre(Range{3, 5}));
  EXPECT_THAT(*ShardSlices(both, shape, 3, "x"), ElementsAre(Range{5, 5}));
  EXPECT_THAT(ShardShape(both, shape), ElementsAre(2));
}

TEST(Sharding, DealtElementsAreEveryDth) {
  Sharding dealt = {Make({3}, {2, 0, 1}), {{}, {kX}}, {}};
  dealt.axes[1].dealt = 3;
  const std::vector<int64_t> shape = {4, 9};
  EXPECT_THAT(*ShardSlices(dealt, shape, 2, "x"), ElementsAre(Range{0, 4}, Range{0, 9, 3}));
  EXPECT_THAT(*ShardSlices(dealt, shape, 1, "x"), ElementsAre(Range{0, 4}, Range{2, 9, 3}));
  EXPECT_EQ((Range{2, 9, 3}).size(), 3);
  EXPECT_THAT(PartRangeOf(dealt, shape, 1).valid, ElementsAre(Range{0, 4}, Range{6, 9}));
  EXPECT_THAT(ShardShape(dealt, shape), ElementsAre(4, 3));
  EXPECT_THAT((*ShardSlices(dealt, std::vector<int64_t>{4, 0}, 1, "x"))[1].size(), 0);
  EXPECT_EQ(dealt.ToString(), "axis 1 dealt 3 ways over mesh_x");
  Sharding natural = dealt;
  natural.axes[1].dealt = 1;
  EXPECT_NE(dealt, natural);
  EXPECT_EQ(ShardSlices(dealt, std::vector<int64_t>{4, 8}, 1, "x").status().ToString(),
            "INVALID_ARGUMENT: axis 1 dealt 3 ways over mesh_x has 8 elements, and elements are "
            "dealt in whole turns: make its extent a multiple of 3 (pad), or use an outer split");
  // On the way from one sharding to another.
  dealt.axes[1].clear();
  EXPECT_EQ(dealt.ToString(), "axis 1 dealt 3 ways");
  dealt.axes[0] = {kX};
  dealt.axes[0].dealt = 2;
  EXPECT_EQ(dealt.ToString(), "axis 0 dealt 2 ways, split 3 ways over mesh_x; axis 1 dealt 3 ways");
}

TEST(Sharding, OwnersHoldTheWholeOnce) {
  const Sharding sharding = {Make({2, 2}, {0, 1, 2, 3}), {{kX}}, {}};
  EXPECT_THAT(Owners(sharding), ElementsAre(0, 1));
  EXPECT_THAT(Owners(Sharding::Replicated(Make({3}, {2, 0, 1}), 2)), ElementsAre(2));
  EXPECT_THAT(Owners(Sharding::OnDevice0(1)), ElementsAre(0));
}

// Every sharding of a tensor of two axes over a 2 x 3 x 2 mesh, through the travelling form and back, keeps every
// block.
TEST(Sharding, DimensionFormKeepsEveryBlock) {
  const DeviceMesh mesh = Make({2, 3, 2}, {11, 4, 6, 1, 0, 9, 10, 2, 3, 8, 7, 5});
  std::vector<ParallelType> types = {kX, kY, kZ};
  int cases = 0;
  do {
    for (int code = 0; code < 27; ++code) {
      Sharding sharding = Sharding::Replicated(mesh, 2);
      for (int i = 0, rest = code; i < 3; ++i, rest /= 3) {
        if (rest % 3 < 2) sharding.axes[static_cast<size_t>(rest % 3)].push_back(types[static_cast<size_t>(i)]);
      }
      const Result<Sharding> back = FromDimensionForm(ToDimensionForm(sharding), 2);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      for (const int64_t device : mesh.devices()) {
        ASSERT_EQ(BlockOf(sharding, device), BlockOf(*back, device)) << sharding.ToString() << ", device " << device;
      }
      ++cases;
    }
  } while (std::next_permutation(types.begin(), types.end()));
  EXPECT_EQ(cases, 6 * 27);
}

TEST(Sharding, DimensionFormKeepsWhatIsDealt) {
  Sharding sharding = {Make({2, 3}, {0, 1, 2, 3, 4, 5}), {{kX}, {kY}}, {}};
  EXPECT_TRUE(ToDimensionForm(sharding).dealt.empty());
  sharding.axes[0].dealt = 3;
  EXPECT_THAT(ToDimensionForm(sharding).dealt, ElementsAre(false, true));
  EXPECT_EQ(*FromDimensionForm(ToDimensionForm(sharding), 2), sharding);
  sharding.axes[1].dealt = 2;
  EXPECT_EQ(*FromDimensionForm(ToDimensionForm(sharding), 2), sharding);
}

TEST(Sharding, DimensionFormRefusals) {
  EXPECT_EQ(FromDimensionForm({{2, 2}, {0, 1, 2, 3}, {0, 0}, {false, true}}, 1).status().message(),
            "a sharding deals axis 0 over mesh_y, mesh_x; elements are dealt over one dimension of "
            "the mesh alone");
  EXPECT_EQ(FromDimensionForm({{2}, {0, 1}, {0}, {false, true}}, 1).status().message(),
            "a sharding says of 2 dimensions whether they deal, of a mesh of 1");
  EXPECT_EQ(FromDimensionForm({{2}, {0, 1}, {3}}, 2).status().message(),
            "a sharding splits axis 3 of a tensor of 2 axes");
  EXPECT_EQ(FromDimensionForm({{2}, {0, 1}, {0, 1}}, 2).status().message(),
            "a sharding names 2 axes for a mesh of 1 dimensions");
  EXPECT_EQ(FromDimensionForm({{1}, {3}, {0}}, 1).status().code(), Code::kOk);
}

}  // namespace
}  // namespace hir::mesh
