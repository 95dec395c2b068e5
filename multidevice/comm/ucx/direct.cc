// One round: what one rank has for another goes straight from src into its dst, to a few ranks at a time.
#include <cstring>

#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/algorithm.h"
#include "multidevice/comm/ucx/chunks.h"

namespace hir::comm {
namespace {

// More would compete for the same memory, or for the same link.
constexpr int64_t kPeersInFlight = 4;

class Direct final : public Algorithm {
 public:
  Direct(const CommDesc& desc, const TeamInfo& team, int64_t rank)
      : desc_(desc), team_(team), rank_(rank), chunks_(desc, team, rank) {}

  void Begin(Wire& wire) override {
    const std::byte* const src = Source(wire);
    const int64_t me = team_.index;
    // Peers in the order of their distance, so that not everybody starts with the same one.
    for (int64_t step = 1; step < team_.size(); ++step) {
      const int64_t peer = (me + team_.size() - step) % team_.size();
      if (chunks_.Receives(peer)) wire.Recv({.peer = peer}, desc_.dst.data + chunks_.DstOffset(peer), chunks_.bytes());
    }
    src_ = src;
    for (int64_t i = 0; i < kPeersInFlight; ++i) SendNext(wire);
    if (!chunks_.Receives(me)) return;
    std::byte* const own = desc_.dst.data + chunks_.DstOffset(me);
    const std::byte* const from = src + chunks_.SrcOffset(me);
    if (own != from) std::memmove(own, from, static_cast<size_t>(chunks_.bytes()));
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    if (transfer.is_send) SendNext(wire);
  }

 private:
  // To the next peer that is sent anything, if there is one.
  void SendNext(Wire& wire) {
    while (++sent_to_ < team_.size()) {
      const int64_t peer = (team_.index + sent_to_) % team_.size();
      if (!chunks_.Sends(peer)) continue;
      return wire.Send({.is_send = true, .peer = peer}, src_ + chunks_.SrcOffset(peer), chunks_.bytes());
    }
  }

  // src, or a copy of it where what arrives would overwrite what has yet to go.
  const std::byte* Source(Wire& wire) const {
    const bool exchanges = desc_.type == CommType::kAllToAll || HasHalves(desc_.type);
    const CommBytes bytes = BytesOf(desc_, team_, rank_);
    if (!exchanges || bytes.src == 0 || bytes.dst == 0 || desc_.src.data != desc_.dst.data) return desc_.src.data;
    std::byte* const copy = wire.Scratch(bytes.src);
    std::memcpy(copy, desc_.src.data, static_cast<size_t>(bytes.src));
    return copy;
  }

  const CommDesc& desc_;
  const TeamInfo& team_;
  const int64_t rank_;
  const Chunks chunks_;
  const std::byte* src_ = nullptr;
  int64_t sent_to_ = 0;  // The distance of the latest peer that was sent to, or passed over.
};

}  // namespace

std::unique_ptr<Algorithm> MakeDirect(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  return std::make_unique<Direct>(desc, team, rank);
}

}  // namespace hir::comm
