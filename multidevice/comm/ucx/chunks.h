// Which chunk each rank has for which, of every communication.
#pragma once

#include <cstdint>

#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// One rank's part. A peer is a place in the team, this rank's own among them. REQUIRES: CheckDesc passed; `desc` and
// `team` outlive it.
class Chunks {
 public:
  Chunks(const CommDesc& desc, const TeamInfo& team, int64_t rank)
      : desc_(&desc), team_(&team), rank_(rank), bytes_(ChunkBytes(desc)) {}

  // A chunk's.
  int64_t bytes() const { return bytes_; }

  bool Sends(int64_t peer) const {
    if (HasHalves(desc_->type)) return desc_->to == RankAt(peer);
    if (ToRoot()) return desc_->root == RankAt(peer);
    return !FromRoot() || desc_->root == rank_;
  }
  bool Receives(int64_t peer) const {
    if (HasHalves(desc_->type)) return desc_->from == RankAt(peer);
    if (FromRoot()) return desc_->root == RankAt(peer);
    return !ToRoot() || desc_->root == rank_;
  }
  // Whether it sends to any but itself.
  bool SendsAway() const {
    if (HasHalves(desc_->type)) return desc_->to != kNoRank && desc_->to != rank_;
    if (ToRoot()) return desc_->root != rank_;
    return !FromRoot() || desc_->root == rank_;
  }

  // Of what it has for others, where it has anything.
  int64_t SrcBytes() const { return SrcIsDealtOut() ? team_->size() * bytes_ : bytes_; }
  // Whether src holds a chunk for every peer, else one for all of them.
  bool SrcIsDealtOut() const {
    return desc_->type == CommType::kAllToAll || desc_->type == CommType::kScatter ||
           desc_->type == CommType::kReduceScatter;
  }
  int64_t SrcOffset(int64_t peer) const { return SrcIsDealtOut() ? peer * bytes_ : 0; }
  int64_t DstOffset(int64_t peer) const {
    const bool chunks =
        desc_->type == CommType::kGather || desc_->type == CommType::kAllgather || desc_->type == CommType::kAllToAll;
    return chunks ? peer * bytes_ : 0;
  }

 private:
  bool ToRoot() const { return desc_->type == CommType::kGather || desc_->type == CommType::kReduce; }
  bool FromRoot() const { return desc_->type == CommType::kScatter || desc_->type == CommType::kBroadcast; }
  int64_t RankAt(int64_t place) const { return team_->ranks[static_cast<size_t>(place)]; }

  const CommDesc* desc_;
  const TeamInfo* team_;
  int64_t rank_;
  int64_t bytes_;
};

}  // namespace hir::comm
