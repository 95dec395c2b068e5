// ShardMap: where each byte of a tensor, in the order it travels, lies in the shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "service/store/spec.h"

namespace hir::service {

// A value. Thread-safe.
class ShardMap {
 public:
  // `sent_once`: the axes of which one element travels; as that of an axis of extent 1 it goes to all. REQUIRES:
  // CheckSpec(spec) is OK; every axis that is stored once, and has not extent 1, travels once.
  ShardMap(const TensorSpec& spec, const std::vector<bool>& sent_once);
  // The elements that the device at `position` holds, in the form that it stores them in, alone. REQUIRES:
  // CheckSpec(spec) is OK.
  static ShardMap OfShard(const TensorSpec& spec, size_t position);

  int64_t sent_bytes() const { return sent_bytes_; }
  // Whether an element that is sent is stored more than once in a shard.
  bool repeats() const { return !repeats_.empty(); }
  // One position for each part of the tensor: those that Gather reads.
  std::vector<size_t> SourcePositions() const;
  // How many bytes all shards together store for each byte sent (replicas, and elements repeated along an axis), but
  // for padding.
  int64_t copies() const { return copies_; }

  // Writes the bytes [offset, offset + bytes.size()) of what travels to every shard that stores them. shards[p] is
  // the memory of the device at position p.
  void Scatter(int64_t offset, std::span<const std::byte> bytes, std::span<std::byte* const> shards) const;
  // Reads them from the first shard that stores them. REQUIRES: nothing is repeated (sent_once is stored_once).
  void Gather(int64_t offset, std::span<std::byte> bytes, std::span<std::byte* const> shards) const;

 private:
  // Where an index leaves one block and enters the next: every `size`. A cut within it says the same of what is left.
  struct Cut {
    int64_t size = 1;
    int64_t block_stride = 0;  // In blocks_.
  };
  // One step of the index of what travels, outermost first.
  struct Step {
    int64_t extent = 1;
    int64_t shard_stride = 0;  // In bytes, within a block.
    std::vector<Cut> cuts = {};
    int64_t dealt = 1;  // In so many turns, `together` at a time: the cuts are of the index in that order.
    int64_t together = 1;
  };
  struct Repeat {  // Elements repeated along an axis.
    int64_t extent = 1;
    int64_t shard_stride = 0;
  };
  struct Place {
    int64_t block = 0;
    int64_t shard_offset = 0;
    int64_t run = 0;  // Bytes from here on that lie side by side.
  };
  ShardMap() = default;
  Place Find(int64_t offset) const;
  // Along the first `num_repeats`. Returns how many bytes there are now without a gap; 0 where there are gaps.
  size_t WriteRepeated(std::byte* to, const std::byte* from, size_t bytes, size_t num_repeats) const;
  void Simplify();

  std::vector<Step> steps_;
  std::vector<Repeat> repeats_;              // Strides ascend.
  std::vector<std::vector<size_t>> blocks_;  // The positions that store each block.
  int64_t sent_bytes_ = 0;
  int64_t copies_ = 1;
};

}  // namespace hir::service
