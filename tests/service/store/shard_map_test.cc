// Goal: every element of an upload lands where the sharding says, and a download finds it there.
// Method: random specs; shards are compared element by element with what ShardSlices says each device
// holds, whatever the sizes of the chunks. Half of the specs have uneven blocks.
#include "service/store/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

struct Case {
  TensorSpec spec;
  std::vector<bool> sent_once;
};

Case RandomCase(base::Prng& prng) {
  const std::vector<std::vector<int64_t>> meshes = {{1}, {2}, {3}, {2, 2}, {2, 3}, {2, 1, 2}};
  const std::vector<int64_t>& mesh = meshes[static_cast<size_t>(prng.Below(std::ssize(meshes)))];
  const int64_t rank = prng.Between(0, 4);
  mesh::DimensionForm form = {mesh, {}, {}};
  int64_t num_devices = 1;
  Case out;
  for (int64_t axis = 0; axis < rank; ++axis) out.spec.shape.push_back(prng.Between(0, 3));
  for (const int64_t extent : mesh) {
    num_devices *= extent;
    const int64_t axis = rank == 0 ? -1 : prng.Between(-1, rank - 1);
    form.axis_of_dimension.push_back(axis);
    if (axis >= 0) out.spec.shape[static_cast<size_t>(axis)] *= extent;
  }
  if (prng.OneIn(2)) {
    for (int64_t& extent : out.spec.shape) extent = std::max<int64_t>(0, extent - prng.Below(4));
  }
  form.dealt.resize(mesh.size());
  for (size_t i = 0; i < mesh.size(); ++i) {
    const int64_t axis = form.axis_of_dimension[i];
    if (axis < 0 || std::ranges::count(form.axis_of_dimension, axis) > 1 || !prng.OneIn(2)) continue;
    form.dealt[i] = true;
    int64_t& extent = out.spec.shape[static_cast<size_t>(axis)];
    extent = extent / mesh[i] * mesh[i];
  }
  for (int64_t device = num_devices; device-- > 0;) form.devices.push_back(device);
  out.spec.dtype = kAllDTypes[static_cast<size_t>(prng.Below(std::size(kAllDTypes)))];
  for (int64_t axis = 0; axis < rank; ++axis) {
    out.sent_once.push_back(prng.OneIn(4));
    const bool may_be_once = out.sent_once.back() || out.spec.shape[static_cast<size_t>(axis)] <= 1;
    out.spec.stored_once.push_back(may_be_once && prng.OneIn(2));
  }
  auto sharding = mesh::FromDimensionForm(form, static_cast<size_t>(rank));
  EXPECT_TRUE(sharding.ok()) << sharding.status().ToString();
  out.spec.sharding = *std::move(sharding);
  if (prng.OneIn(2)) {
    for (int64_t axis = 0; axis < rank; ++axis) {
      auto& order = out.spec.memory_order;
      order.insert(order.begin() + prng.Between(0, axis), axis);
    }
  }
  EXPECT_TRUE(CheckSpec(out.spec, num_devices).ok());
  return out;
}

// The position of `index` in an array of `shape` in which `once` axes hold one element, its axes in `memory_order`, or
// row-major.
int64_t Offset(const std::vector<int64_t>& index, const std::vector<int64_t>& shape, const std::vector<bool>& once,
               const std::vector<int64_t>& memory_order = {}) {
  int64_t offset = 0;
  for (size_t place = 0; place < shape.size(); ++place) {
    const size_t axis = memory_order.empty() ? place : static_cast<size_t>(memory_order[place]);
    if (!once[axis]) offset = offset * shape[axis] + index[axis];
  }
  return offset;
}

// Calls visit(index) for every index of `shape`.
template <typename Visit>
void ForEachIndex(const std::vector<int64_t>& shape, const Visit& visit) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<int64_t> index(shape.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0;) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    visit(index);
  }
}

class ShardMaps : public testing::TestWithParam<uint64_t> {};

TEST_P(ShardMaps, ScatterAsTheShardingSaysAndGatherBack) {
  base::Prng prng(GetParam());
  const Case c = RandomCase(prng);
  SCOPED_TRACE(testing::Message() << "seed " << GetParam() << ": " << ToString(c.spec));
  const ShardMap map(c.spec, c.sent_once);
  const size_t element = static_cast<size_t>(DTypeBytes(c.spec.dtype));
  std::string sent(static_cast<size_t>(map.sent_bytes()), '\0');
  for (char& byte : sent) byte = static_cast<char>(prng.Below(256));
  std::vector<std::string> shards;
  std::vector<std::byte*> addresses;
  for (int64_t i = 0; i < c.spec.sharding.mesh.num_devices(); ++i) {
    shards.emplace_back(static_cast<size_t>(ShardBytes(c.spec)), '?');
  }
  for (std::string& shard : shards) addresses.push_back(reinterpret_cast<std::byte*>(shard.data()));
  for (size_t at = 0; at < sent.size();) {
    const size_t n = std::min(sent.size() - at, static_cast<size_t>(prng.Between(1, 40)));
    map.Scatter(static_cast<int64_t>(at), std::as_bytes(std::span(sent).subspan(at, n)), addresses);
    at += n;
  }

  const std::vector<int64_t> block = mesh::ShardShape(c.spec.sharding, c.spec.shape);
  for (size_t position = 0; position < shards.size(); ++position) {
    const int64_t device = c.spec.sharding.mesh.devices()[position];
    auto ranges = mesh::ShardSlices(c.spec.sharding, c.spec.shape, device, "x");
    ASSERT_TRUE(ranges.ok());
    std::vector<int64_t> local, global(c.spec.shape.size());
    for (size_t axis = 0; axis < ranges->size(); ++axis) {
      // What is stored once is not split in memory: also a device whose part is empty has the element.
      const bool is_missing = c.spec.stored_once[axis] && (*ranges)[axis].size() == 0;
      if (is_missing && c.spec.shape[axis] > 0) (*ranges)[axis] = {0, 1};
      local.push_back((*ranges)[axis].size());
    }
    const ShardMap own = ShardMap::OfShard(c.spec, position);
    std::string held(static_cast<size_t>(own.sent_bytes()), '\0');
    own.Gather(0, std::as_writable_bytes(std::span(held)), addresses);
    ForEachIndex(local, [&](const std::vector<int64_t>& index) {
      for (size_t axis = 0; axis < index.size(); ++axis)
        global[axis] = (*ranges)[axis].begin + index[axis] * (*ranges)[axis].step;
      const size_t from = static_cast<size_t>(Offset(global, c.spec.shape, c.sent_once, c.spec.memory_order)) * element;
      const size_t to = static_cast<size_t>(Offset(index, block, c.spec.stored_once, c.spec.memory_order)) * element;
      ASSERT_EQ(sent.substr(from, element), shards[position].substr(to, element)) << "device " << device;
      if (held.empty()) return;  // Of an empty part.
      const size_t at = static_cast<size_t>(Offset(index, local, c.spec.stored_once, c.spec.memory_order)) * element;
      ASSERT_EQ(sent.substr(from, element), held.substr(at, element)) << "device " << device;
    });
  }
  if (c.spec.stored_once != c.sent_once) return;
  bool even = true;
  for (size_t axis = 0; axis < block.size(); ++axis) {
    even &= c.spec.shape[axis] % c.spec.sharding.Ways(axis) == 0;
    even &= c.spec.shape[axis] > 0 || !c.spec.stored_once[axis];  // Room for one that is never there.
  }
  const int64_t stored = ShardBytes(c.spec) * std::ssize(shards);
  EXPECT_LE(map.sent_bytes() * map.copies(), stored);
  if (even) {
    EXPECT_EQ(map.sent_bytes() * map.copies(), stored);
  }
  std::string got(sent.size(), '\0');
  for (size_t at = 0; at < got.size();) {
    const size_t n = std::min(got.size() - at, static_cast<size_t>(prng.Between(1, 40)));
    map.Gather(static_cast<int64_t>(at), std::as_writable_bytes(std::span(got).subspan(at, n)), addresses);
    at += n;
  }
  EXPECT_EQ(sent, got);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShardMaps, testing::Range<uint64_t>(0, 600));

// Far more than is copied at once, in steps that do not divide it: along the last axis, the middle one, and both.
TEST(ShardMap, FillsWhatIsSentOnce) {
  const std::vector<int64_t> shape = {2, 300007, 3};
  for (const auto& sent_once :
       std::vector<std::vector<bool>>{{false, true, false}, {false, true, true}, {true, true, true}}) {
    const TensorSpec spec = {DType::kInt32, shape, {false, false, false}, mesh::Sharding::OnDevice0(3)};
    const ShardMap map(spec, sent_once);
    std::vector<int32_t> sent(static_cast<size_t>(map.sent_bytes()) / sizeof(int32_t));
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int32_t>(i + 1);
    std::vector<int32_t> shard(2 * 300007 * 3, -1);
    std::byte* const address = reinterpret_cast<std::byte*>(shard.data());
    map.Scatter(0, std::as_bytes(std::span(sent)), {&address, 1});
    size_t wrong = 0, at = 0;
    ForEachIndex(shape, [&](const std::vector<int64_t>& index) {
      const int64_t from = Offset(index, shape, sent_once);
      wrong += shard[at++] == sent[static_cast<size_t>(from)] ? 0 : 1;
    });
    EXPECT_EQ(at, shard.size());
    EXPECT_EQ(wrong, 0U);
  }
}

TEST(SameMemory, AxesOfOneElementLieAnywhere) {
  const TensorSpec spec = {DType::kFloat32, {4, 1, 6, 3}, {false, false, false, true}, mesh::Sharding::OnDevice0(4)};
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{}, {0, 1, 2, 3}, {3, 1, 0, 2}, {0, 3, 2, 1}})
    EXPECT_TRUE(SameMemory(spec, order)) << base::JoinInts(order, ", ");
  EXPECT_FALSE(SameMemory(spec, std::vector<int64_t>{2, 1, 0, 3}));
  TensorSpec other = spec;
  other.memory_order = {2, 0, 1, 3};
  EXPECT_FALSE(SameMemory(other, {}));
  EXPECT_TRUE(SameMemory(other, std::vector<int64_t>{1, 2, 3, 0}));
}

TEST(CheckSpec, SaysWhatIsWrong) {
  const auto text = [](const TensorSpec& spec) { return CheckSpec(spec, 2).ToString(); };
  TensorSpec spec = {DType::kFloat32, {4, 6}, {false, false}, mesh::Sharding::OnDevice0(2)};
  EXPECT_EQ(text(spec), "OK");
  spec.shape[1] = -1;
  EXPECT_EQ(text(spec), "INVALID_ARGUMENT: axis 1 has extent -1; it must be 0 or more");
  spec.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(text(spec),
            "INVALID_ARGUMENT: a tensor of shape [1099511627776, 1099511627776] and dtype f32 has "
            "more bytes than "
            "fit in 63 bits");
  spec.shape = {3, 6};
  spec.sharding = *mesh::FromDimensionForm({{2}, {0, 1}, {0}}, 2);
  EXPECT_EQ(text(spec), "OK");
  EXPECT_EQ(ShardBytes(spec), 2 * 6 * 4);
  spec.sharding = *mesh::FromDimensionForm({{2}, {0, 2}, {1}}, 2);
  EXPECT_EQ(text(spec), "INVALID_ARGUMENT: mesh [0, 2] names device 2; this daemon has devices 0 to 1");
  spec.sharding = *mesh::FromDimensionForm({{2}, {0, 1}, {0}, {true}}, 2);
  EXPECT_EQ(text(spec),
            "INVALID_ARGUMENT: axis 0 dealt 2 ways over mesh_x has 3 elements, and elements are "
            "dealt in whole turns: make its extent a multiple of 2 (pad), or use an outer split");
  spec.sharding = mesh::Sharding::OnDevice0(2);
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{1, 0}, {1}, {1, 1}, {2, 0}, {-1, 0}}) {
    spec.memory_order = order;
    const bool is_order = order == std::vector<int64_t>{1, 0};
    const std::string wrong =
        "INVALID_ARGUMENT: memory_order [" + base::JoinInts(order, ", ") + "] is not a permutation of the 2 axes";
    EXPECT_EQ(text(spec), is_order ? "OK" : wrong);
  }
  spec.memory_order = {};
  spec.stored_once.pop_back();
  EXPECT_EQ(text(spec), "INVALID_ARGUMENT: 1 stored-once flags for 2 axes");
  spec.shape.assign(17, 1);
  EXPECT_EQ(text(spec), "INVALID_ARGUMENT: a tensor of 17 axes; at most 16");
}

}  // namespace
}  // namespace hir::service
