#include "multidevice/comm/peer/peer_team.h"

#include "csrc/base/check.h"
#include "csrc/base/checked.h"

namespace hir::comm {
namespace {

constexpr int64_t kGrain = 4096;
constexpr int64_t kUnitBytes = 16;  // Of 8 of a message.

int64_t RoundUp(int64_t bytes) { return base::CeilDiv(bytes, kGrain) * kGrain; }
int64_t RoundDown(int64_t bytes) { return bytes / kGrain * kGrain; }

// A quarter is for pushes: two halves of a room for each rank.
int64_t RoomBytes(int64_t ranks, int64_t bytes) { return RoundDown(bytes / 4 / (2 * ranks)); }

}  // namespace

int64_t PeerLayout::WordsEnd(int64_t ranks) { return RoundUp(Word(ranks * 6 + 1)); }

int64_t PeerLayout::LeastBytes(int64_t ranks) { return WordsEnd(ranks) + 16 * ranks * kGrain; }

PeerLayout::PeerLayout(int64_t ranks, int64_t bytes)
    : ranks_(ranks),
      words_end_(WordsEnd(ranks)),
      push_units_(RoomBytes(ranks, bytes) / kUnitBytes),
      pieces_(words_end_ + 2 * ranks * RoomBytes(ranks, bytes)),
      piece_bytes_(RoundDown((bytes - pieces_) / (2 * (ranks - 1)))) {
  HIR_CHECK(ranks >= 2 && push_units_ > 0 && piece_bytes_ > 0);
}

std::vector<int64_t> PeerLayout::Words(int64_t from, int64_t to) const {
  std::vector<int64_t> words;
  for (int64_t index = from * ranks_; index < to * ranks_; ++index) words.push_back(Word(index));
  return words;
}

std::vector<int64_t> PeerLayout::words() const { return Words(0, 6); }

std::vector<int64_t> PeerLayout::free_words() const { return Words(2, 4); }

}  // namespace hir::comm
