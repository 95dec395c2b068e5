// PeerTeam: the memory that the members of one team write into, and where in it what lies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/device/buffer.h"
#include "csrc/device/stream.h"

namespace hir::comm {

inline constexpr int64_t kPeerTeamBytes = int64_t{32} << 20;

// Every member's memory looks alike: words, rooms for pushes, two pieces from each other member. Places count members
// in the team's order; n is how many there are.
//
// A piece from j at i: i awaits arrived(j, half) in its own memory, j awaits free(i, half) in its own: whoever waits
// looks at memory of its own device, takes the word, and the other gives it again.
class PeerLayout {
 public:
  // REQUIRES: at least 2 ranks; LeastBytes of them.
  PeerLayout(int64_t ranks, int64_t bytes);
  static int64_t LeastBytes(int64_t ranks);

  int64_t arrived(int64_t from, int half) const { return Word(from * 2 + half); }
  int64_t free(int64_t to, int half) const { return Word((ranks_ + to) * 2 + half); }
  // For windows: the rank `to` lets this one write; what `from` writes is there.
  int64_t ready(int64_t to) const { return Word(ranks_ * 4 + to); }
  int64_t written(int64_t from) const { return Word(ranks_ * 5 + from); }
  int64_t control() const { return Word(ranks_ * 6); }  // kPushControlWords words, side by side.
  std::vector<int64_t> words() const;                   // All of these, but control.
  std::vector<int64_t> free_words() const;              // What is 1 in the beginning.
  int64_t rooms() const { return words_end_; }
  int64_t push_bytes() const { return push_units_ * 8; }  // Of a message.
  int64_t push_units() const { return push_units_; }
  int64_t piece_bytes() const { return piece_bytes_; }
  // REQUIRES: from != to; both are places.
  int64_t piece(int64_t to, int64_t from, int half) const {
    return pieces_ + ((from < to ? from : from - 1) * 2 + half) * piece_bytes_;
  }

 private:
  static constexpr int64_t kWordBytes = 128;  // One a line of the device's cache.
  static int64_t Word(int64_t index) { return index * kWordBytes; }
  static int64_t WordsEnd(int64_t ranks);
  std::vector<int64_t> Words(int64_t from, int64_t to) const;  // Those of kinds [from, to), `ranks` of each.

  const int64_t ranks_;
  const int64_t words_end_;
  const int64_t push_units_;
  const int64_t pieces_;
  const int64_t piece_bytes_;
};

struct PeerTeam {
  PeerLayout layout;
  int64_t place = 0;
  std::unique_ptr<device::Allocation> own = {};
  std::vector<std::unique_ptr<device::Allocation>> others = {};  // By place; null at this rank's.

  int64_t num_windows = 0;
  // Calls on several streams take turns: one begins behind the last.
  device::Stream* last = nullptr;
  std::unique_ptr<device::Event> behind = {};

  int64_t ranks() const { return static_cast<int64_t>(others.size()); }
  device::Buffer At(int64_t member, int64_t offset, int64_t bytes) const {
    const auto& memory = member == place ? own : others[static_cast<size_t>(member)];
    return memory->buffer().Slice(offset, bytes);
  }
  device::Buffer WordAt(int64_t member, int64_t offset) const { return At(member, offset, 8); }
};

}  // namespace hir::comm
