#include "service/store/shard_map.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"

namespace hir::service {
namespace {

constexpr size_t kCopiedMax = size_t{256} << 10;  // At once, of what repeats.

}  // namespace

ShardMap::ShardMap(const TensorSpec& spec, const std::vector<bool>& sent_once) {
  const mesh::Sharding& sharding = spec.sharding;
  sent_bytes_ = DTypeBytes(spec.dtype);
  // From the innermost axis, so that strides are known: of a shard in bytes, and of the numbers of blocks.
  const std::vector<int64_t> shard = mesh::ShardShape(sharding, spec.shape);
  std::vector<int64_t> block_strides(spec.shape.size());
  int64_t shard_stride = DTypeBytes(spec.dtype);
  int64_t block_stride = 1;
  steps_.push_back({shard_stride, 1});
  for (size_t place = spec.shape.size(); place-- > 0;) {
    const size_t axis = AxisInMemory(spec, place);
    const int64_t stride = spec.stored_once[axis] ? 0 : shard_stride;
    HIR_CHECK(sent_once[axis] || !spec.stored_once[axis] || spec.shape[axis] <= 1);
    if (!spec.stored_once[axis]) shard_stride *= shard[axis];
    // One element for all is on every device, also where the axis is split: what is stored once is not.
    if (sent_once[axis] || spec.shape[axis] == 1) {
      if (spec.shape[axis] == 0) sent_bytes_ = 0;
      if (!spec.stored_once[axis] && shard[axis] > 1) repeats_.push_back({shard[axis], stride});
      continue;  // Every block along it gets what is sent.
    }
    sent_bytes_ *= spec.shape[axis];
    Step step = {.extent = spec.shape[axis], .shard_stride = stride, .dealt = sharding.axes[axis].dealt};
    int64_t size = spec.shape[axis];
    int64_t ways = sharding.Ways(axis);
    block_strides[axis] = block_stride;
    block_stride *= ways;
    for (const mesh::ParallelType type : sharding.axes[axis]) {
      size = base::CeilDiv(size, sharding.mesh.Size(type));
      ways /= sharding.mesh.Size(type);
      step.cuts.push_back({size, block_strides[axis] * ways});
    }
    steps_.push_back(std::move(step));
  }
  std::reverse(steps_.begin(), steps_.end());
  Simplify();

  blocks_.resize(static_cast<size_t>(block_stride));
  for (size_t position = 0; position < sharding.mesh.devices().size(); ++position) {
    const std::vector<int64_t> block_of = mesh::BlockOf(sharding, sharding.mesh.devices()[position]);
    int64_t block = 0;
    for (size_t axis = 0; axis < block_of.size(); ++axis) block += block_of[axis] * block_strides[axis];
    blocks_[static_cast<size_t>(block)].push_back(position);
  }
  copies_ = static_cast<int64_t>(blocks_.front().size());
  for (const Repeat& repeat : repeats_) copies_ *= repeat.extent;
}

ShardMap ShardMap::OfShard(const TensorSpec& spec, size_t position) {
  const mesh::PartRange part = mesh::PartRangeOf(spec.sharding, spec.shape, spec.sharding.mesh.devices()[position]);
  ShardMap map;
  int64_t stride = DTypeBytes(spec.dtype);
  map.sent_bytes_ = stride;
  map.steps_.push_back({stride, 1});
  for (size_t place = spec.shape.size(); place-- > 0;) {
    const size_t axis = AxisInMemory(spec, place);
    const int64_t held = part.valid[axis].size();
    const int64_t sent = spec.stored_once[axis] ? std::min<int64_t>(held, 1) : held;
    map.sent_bytes_ *= sent;
    map.steps_.push_back({sent, stride});
    if (!spec.stored_once[axis]) stride *= part.block[axis];
  }
  std::reverse(map.steps_.begin(), map.steps_.end());
  map.Simplify();
  map.blocks_.push_back({position});
  return map;
}

// Drops steps of extent 1 and joins neighbours that lie side by side, so that runs are as long as can be.
void ShardMap::Simplify() {
  std::vector<Step> joined;
  for (Step& step : steps_) {
    if (step.extent == 1) continue;
    const bool joins =
        !joined.empty() && step.cuts.empty() && joined.back().shard_stride == step.shard_stride * step.extent;
    if (joins) {
      joined.back().extent *= step.extent;
      joined.back().shard_stride = step.shard_stride;
      for (Cut& cut : joined.back().cuts) cut.size *= step.extent;
      joined.back().together *= step.extent;
    } else {
      joined.push_back(std::move(step));
    }
  }
  if (joined.empty() || joined.back().shard_stride != 1) joined.push_back({1, 1});
  steps_ = std::move(joined);
}

ShardMap::Place ShardMap::Find(int64_t offset) const {
  Place place;
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    int64_t index = offset % step.extent;
    int64_t run = step.extent - index;
    offset /= step.extent;
    if (step.dealt > 1) {
      const int64_t turn = index / step.together, rest = index % step.together;
      const int64_t turns = step.extent / step.together / step.dealt;
      index = (turn % step.dealt * turns + turn / step.dealt) * step.together + rest;
      run = step.together - rest;
    }
    for (const Cut& cut : step.cuts) {
      place.block += index / cut.size * cut.block_stride;
      index %= cut.size;
      run = std::min(run, cut.size - index);
    }
    place.shard_offset += index * step.shard_stride;
    if (i + 1 == steps_.size()) place.run = run;
  }
  return place;
}

size_t ShardMap::WriteRepeated(std::byte* to, const std::byte* from, size_t bytes, size_t num_repeats) const {
  if (num_repeats == 0) {
    std::memcpy(to, from, bytes);
    return bytes;
  }
  const Repeat& outer = repeats_[num_repeats - 1];
  const auto stride = static_cast<size_t>(outer.shard_stride);
  const size_t size = static_cast<size_t>(outer.extent) * stride;
  if (WriteRepeated(to, from, bytes, num_repeats - 1) < stride) {
    for (size_t at = stride; at < size; at += stride) WriteRepeated(to + at, from, bytes, num_repeats - 1);
    return 0;
  }
  // No gaps: what is written so far is copied, twice as much each time, as long as a cache holds it. (An element at a
  // time is 80 times as slow.)
  const size_t most = std::max(stride, kCopiedMax / stride * stride);
  for (size_t done = stride; done < size;) {
    const size_t copied = std::min({done, most, size - done});
    std::memcpy(to + done, to, copied);
    done += copied;
  }
  return size;
}

void ShardMap::Scatter(int64_t offset, std::span<const std::byte> bytes, std::span<std::byte* const> shards) const {
  while (!bytes.empty()) {
    const Place place = Find(offset);
    const size_t run = std::min(bytes.size(), static_cast<size_t>(place.run));
    for (const size_t position : blocks_[static_cast<size_t>(place.block)]) {
      WriteRepeated(shards[position] + place.shard_offset, bytes.data(), run, repeats_.size());
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

void ShardMap::Gather(int64_t offset, std::span<std::byte> bytes, std::span<std::byte* const> shards) const {
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
