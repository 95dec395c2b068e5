// Which pieces of a whole array a rank copies: compared with indices counted one element at a time.
#include "tools/arrays/part.h"

#include <gtest/gtest.h>

#include <map>

namespace hir::arrays {
namespace {

// Bytes of the part by the bytes of the whole they stand for.
std::map<int64_t, int64_t> Pairs(const Part& part, int64_t* pieces = nullptr) {
  std::map<int64_t, int64_t> pairs;
  int64_t count = 0;
  EXPECT_TRUE(part.ForEachPiece([&](int64_t whole, int64_t at, int64_t bytes) {
                    for (int64_t i = 0; i < bytes; ++i) pairs[whole + i] = at + i;
                    ++count;
                    return Status();
                  })
                  .ok());
  if (pieces != nullptr) *pieces = count;
  return pairs;
}

// A block without padding.
mesh::PartRange Block(std::vector<mesh::Range> ranges) {
  mesh::PartRange part = {.begin = {}, .block = {}, .valid = std::move(ranges)};
  for (const mesh::Range& range : part.valid) {
    part.begin.push_back(range.begin);
    part.block.push_back(range.size());
  }
  return part;
}

TEST(Part, EverySecondRow) {
  mesh::Sharding dealt = {*mesh::DeviceMesh::Make({2}, {0, 1}), {{mesh::ParallelType::kMeshX}, {}}};
  dealt.axes[0].dealt = 2;
  const int64_t whole[] = {6, 4};
  int64_t pieces = 0;
  const Part part = Part::Of(whole, mesh::ElementsOf(dealt, whole, 1), {false, false}, 2);
  const std::map<int64_t, int64_t> pairs = Pairs(part, &pieces);
  EXPECT_EQ(part.bytes, 3 * 4 * 2);
  EXPECT_EQ(pieces, 3);
  std::map<int64_t, int64_t> wanted;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t byte = 0; byte < 8; ++byte) wanted[(2 * row + 1) * 8 + byte] = row * 8 + byte;
  }
  EXPECT_EQ(pairs, wanted);
}

TEST(Part, ABlockOfAMatrix) {
  const int64_t whole[] = {4, 6};
  const mesh::PartRange ranges = Block({{1, 3}, {2, 5}});
  const Part part = Part::Of(whole, ranges, {false, false}, 2);
  EXPECT_EQ(part.bytes, 2 * 3 * 2);
  std::map<int64_t, int64_t> wanted;
  for (int64_t row = 1; row < 3; ++row) {
    for (int64_t byte = 4; byte < 10; ++byte) wanted[row * 12 + byte] = (row - 1) * 6 + byte - 4;
  }
  EXPECT_EQ(Pairs(part), wanted);
  EXPECT_FALSE(part.IsOnePiece());
}

TEST(Part, ABlockWithItsAxesInAnotherOrder) {
  const int64_t whole[] = {4, 6, 2};
  const int64_t order[] = {2, 0, 1};
  const Part part = Part::Of(whole, Block({{1, 3}, {2, 5}, {0, 2}}), {false, false, false}, 1, order);
  EXPECT_EQ(part.bytes, 2 * 3 * 2);
  std::map<int64_t, int64_t> wanted;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t k = 0; k < 2; ++k) wanted[((i + 1) * 6 + j + 2) * 2 + k] = (k * 2 + i) * 3 + j;
    }
  }
  EXPECT_EQ(Pairs(part), wanted);
  EXPECT_FALSE(part.IsOnePiece());
}

TEST(Part, RowsAreOnePiece) {
  const int64_t whole[] = {4, 6};
  const mesh::PartRange ranges = Block({{2, 4}, {0, 6}});
  const Part part = Part::Of(whole, ranges, {false, false}, 4);
  int64_t pieces = 0;
  EXPECT_EQ(Pairs(part, &pieces).size(), 48u);
  EXPECT_EQ(pieces, 1);
  EXPECT_TRUE(part.IsOnePiece());
  EXPECT_EQ(part.whole_offset, 48);
}

TEST(Part, AnAxisStoredOnceIsReadOnceAndWrittenEverywhere) {
  const int64_t whole[] = {3, 2};
  const mesh::PartRange ranges = Block({{0, 3}, {0, 2}});
  const Part part = Part::Of(whole, ranges, {true, false}, 1);
  EXPECT_EQ(part.bytes, 2);
  EXPECT_EQ(Pairs(part), (std::map<int64_t, int64_t>{{0, 0}, {1, 1}, {2, 0}, {3, 1}, {4, 0}, {5, 1}}));
  EXPECT_FALSE(part.IsOnePiece());  // As many bytes as the first piece has, at three places.
  EXPECT_EQ(Pairs(part.FirstOfStoredOnce()), (std::map<int64_t, int64_t>{{0, 0}, {1, 1}}));
  EXPECT_TRUE(part.FirstOfStoredOnce().IsOnePiece());
  // A file may hold one element for all.
  const int64_t once[] = {1, 2};
  EXPECT_EQ(Pairs(Part::Of(once, ranges, {true, false}, 1).FirstOfStoredOnce()),
            (std::map<int64_t, int64_t>{{0, 0}, {1, 1}}));
}

// The last device of four that share an axis of 5 in blocks of 2 has none of them, but what stands for all it has.
TEST(Part, AnAxisStoredOnceIsNotSplitInMemory) {
  const int64_t whole[] = {2, 5};
  const mesh::PartRange last = {.begin = {0, 6}, .block = {2, 2}, .valid = {{0, 2}, {5, 5}}};
  const Part part = Part::Of(whole, last, {false, true}, 1);
  EXPECT_EQ(part.bytes, 2);
  EXPECT_TRUE(Pairs(part).empty()) << "written are its own places";
  EXPECT_EQ(Pairs(part.FirstOfStoredOnce()), (std::map<int64_t, int64_t>{{0, 0}, {5, 1}}));
  const mesh::PartRange second = {.begin = {0, 2}, .block = {2, 2}, .valid = {{0, 2}, {2, 4}}};
  EXPECT_EQ(Pairs(Part::Of(whole, second, {false, true}, 1).FirstOfStoredOnce()),
            (std::map<int64_t, int64_t>{{0, 0}, {5, 1}}));
  const int64_t file[] = {2, 1};
  EXPECT_EQ(Pairs(Part::Of(file, last, {false, true}, 1).FirstOfStoredOnce()),
            (std::map<int64_t, int64_t>{{0, 0}, {1, 1}}));
  const int64_t none[] = {2, 0};
  const mesh::PartRange nothing = {.begin = {0, 0}, .block = {2, 0}, .valid = {{0, 2}, {0, 0}}};
  EXPECT_TRUE(Pairs(Part::Of(none, nothing, {false, true}, 1).FirstOfStoredOnce()).empty());
}

TEST(Part, RowsOfAPaddedBlockLieABlockApart) {
  const int64_t whole[] = {2, 5};
  const mesh::PartRange last = {.begin = {0, 3}, .block = {2, 3}, .valid = {{0, 2}, {3, 5}}};
  const Part part = Part::Of(whole, last, {false, false}, 1);
  EXPECT_EQ(part.bytes, 6);
  EXPECT_EQ(Pairs(part), (std::map<int64_t, int64_t>{{3, 0}, {4, 1}, {8, 3}, {9, 4}}));
  EXPECT_FALSE(part.IsOnePiece());
}

TEST(Part, NothingAndNumbers) {
  const int64_t whole[] = {0, 3};
  const mesh::PartRange ranges = Block({{0, 0}, {0, 3}});
  int64_t pieces = 0;
  Pairs(Part::Of(whole, ranges, {false, false}, 4), &pieces);
  EXPECT_EQ(pieces, 0);
  EXPECT_EQ(Pairs(Part::Of({}, Block({}), {}, 4)).size(), 4u);
}

}  // namespace
}  // namespace hir::arrays
