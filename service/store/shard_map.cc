#include "service/store/shard_map.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/check.h"

namespace hir::service {

ShardMap::ShardMap(const TensorSpec& spec, const std::vector<bool>& sent_once) {
  const mesh::Sharding& sharding = spec.sharding;
  sent_bytes_ = DTypeBytes(spec.dtype);
  // From the last axis, so that strides are known: of a shard in bytes, and of the numbers of blocks.
  std::vector<int64_t> block_strides(spec.shape.size());
  int64_t shard_stride = DTypeBytes(spec.dtype);
  int64_t block_stride = 1;
  steps_.push_back({shard_stride, 1, 0});
  for (size_t axis = spec.shape.size(); axis-- > 0;) {
    const int64_t ways = sharding.Ways(axis);
    const int64_t local = spec.shape[axis] / ways;
    const int64_t stride = spec.stored_once[axis] ? 0 : shard_stride;
    HIR_CHECK(sent_once[axis] || !spec.stored_once[axis] || spec.shape[axis] <= 1);
    if (!spec.stored_once[axis]) shard_stride *= local;
    if (sent_once[axis]) {
      if (spec.shape[axis] == 0) sent_bytes_ = 0;
      if (!spec.stored_once[axis] && local > 1) repeats_.push_back({local, stride});
      continue;  // Every block along it gets what is sent.
    }
    sent_bytes_ *= spec.shape[axis];
    steps_.push_back({local, stride, 0});
    steps_.push_back({ways, 0, block_stride});
    block_strides[axis] = block_stride;
    block_stride *= ways;
  }
  std::reverse(steps_.begin(), steps_.end());
  Simplify();

  blocks_.resize(static_cast<size_t>(block_stride));
  for (size_t position = 0; position < sharding.mesh.devices().size(); ++position) {
    const std::vector<int64_t> block_of =
        mesh::BlockOf(sharding, sharding.mesh.devices()[position]);
    int64_t block = 0;
    for (size_t axis = 0; axis < block_of.size(); ++axis)
      block += block_of[axis] * block_strides[axis];
    blocks_[static_cast<size_t>(block)].push_back(position);
  }
  copies_ = static_cast<int64_t>(blocks_.front().size());
  for (const Repeat& repeat : repeats_) copies_ *= repeat.extent;
}

// Drops steps of extent 1 and joins neighbours that lie side by side, so that runs are as long as can be.
void ShardMap::Simplify() {
  std::vector<Step> joined;
  for (const Step& step : steps_) {
    if (step.extent == 1) continue;
    const bool joins = !joined.empty() && joined.back().block_stride == 0 &&
                       step.block_stride == 0 &&
                       joined.back().shard_stride == step.shard_stride * step.extent;
    if (joins) {
      joined.back() = {joined.back().extent * step.extent, step.shard_stride, 0};
    } else {
      joined.push_back(step);
    }
  }
  if (joined.empty() || joined.back().shard_stride != 1) joined.push_back({1, 1, 0});
  steps_ = std::move(joined);
}

ShardMap::Place ShardMap::Find(int64_t offset) const {
  Place place;
  place.run = steps_.back().extent - offset % steps_.back().extent;
  for (size_t i = steps_.size(); i-- > 0;) {
    const int64_t index = offset % steps_[i].extent;
    offset /= steps_[i].extent;
    place.block += index * steps_[i].block_stride;
    place.shard_offset += index * steps_[i].shard_stride;
  }
  return place;
}

void ShardMap::WriteRepeated(std::byte* to, const std::byte* from, size_t bytes,
                             size_t repeat) const {
  if (repeat == repeats_.size()) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (int64_t i = 0; i < repeats_[repeat].extent; ++i) {
    WriteRepeated(to + i * repeats_[repeat].shard_stride, from, bytes, repeat + 1);
  }
}

void ShardMap::Scatter(int64_t offset, std::span<const std::byte> bytes,
                       std::span<std::byte* const> shards) const {
  while (!bytes.empty()) {
    const Place place = Find(offset);
    const size_t run = std::min(bytes.size(), static_cast<size_t>(place.run));
    for (const size_t position : blocks_[static_cast<size_t>(place.block)]) {
      WriteRepeated(shards[position] + place.shard_offset, bytes.data(), run, 0);
    }
    offset += static_cast<int64_t>(run);
    bytes = bytes.subspan(run);
  }
}

std::vector<size_t> ShardMap::SourcePositions() const {
  std::vector<size_t> positions;
  for (const std::vector<size_t>& block : blocks_) positions.push_back(block.front());
  return positions;
}

void ShardMap::Gather(int64_t offset, std::span<std::byte> bytes,
                      std::span<std::byte* const> shards) const {
  HIR_CHECK(repeats_.empty());
  while (!bytes.empty()) {
    const Place place = Find(offset);
    const size_t run = std::min(bytes.size(), static_cast<size_t>(place.run));
    const size_t position = blocks_[static_cast<size_t>(place.block)].front();
    std::memcpy(bytes.data(), shards[position] + place.shard_offset, run);
    offset += static_cast<int64_t>(run);
    bytes = bytes.subspan(run);
  }
}

}  // namespace hir::service
