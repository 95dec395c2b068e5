// Everything at once: each rank sends every other what is its own, straight from src into its dst.
#include <cstring>

#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/algorithm.h"

namespace hir::comm {
namespace {

class Direct final : public Algorithm {
 public:
  Direct(const CommDesc& desc, const TeamInfo& team, int64_t rank)
      : desc_(desc), team_(team), rank_(rank), bytes_(ChunkBytes(desc)) {}

  void Begin(Wire& wire) override {
    const std::byte* const src = Source(wire);
    const int64_t me = team_.index;
    // Peers in the order of their distance, so that not everybody starts with the same one.
    for (int64_t step = 1; step < team_.size(); ++step) {
      const int64_t peer = (me + team_.size() - step) % team_.size();
      if (Receives(peer)) wire.Recv({.peer = peer}, desc_.dst.data + DstOffset(peer), bytes_);
    }
    for (int64_t step = 1; step < team_.size(); ++step) {
      const int64_t peer = (me + step) % team_.size();
      if (Sends(peer)) wire.Send({.is_send = true, .peer = peer}, src + SrcOffset(peer), bytes_);
    }
    if (!Receives(me)) return;
    std::byte* const own = desc_.dst.data + DstOffset(me);
    if (own != src + SrcOffset(me))
      std::memmove(own, src + SrcOffset(me), static_cast<size_t>(bytes_));
  }

  void Done(Wire&, const Transfer&) override {}

 private:
  bool Sends(int64_t peer) const {
    return desc_.type != CommType::kSendRecv || desc_.to == team_.ranks[static_cast<size_t>(peer)];
  }
  bool Receives(int64_t peer) const {
    return desc_.type != CommType::kSendRecv ||
           desc_.from == team_.ranks[static_cast<size_t>(peer)];
  }
  int64_t SrcOffset(int64_t peer) const {
    return desc_.type == CommType::kAllToAll ? peer * bytes_ : 0;
  }
  int64_t DstOffset(int64_t peer) const {
    return desc_.type == CommType::kSendRecv ? 0 : peer * bytes_;
  }

  // src, or a copy of it where what arrives would overwrite what has yet to go.
  const std::byte* Source(Wire& wire) const {
    const bool exchanges = desc_.type == CommType::kAllToAll || desc_.type == CommType::kSendRecv;
    const CommBytes bytes = BytesOf(desc_, team_, rank_);
    if (!exchanges || bytes.src == 0 || bytes.dst == 0 || desc_.src.data != desc_.dst.data)
      return desc_.src.data;
    std::byte* const copy = wire.Scratch(bytes.src);
    std::memcpy(copy, desc_.src.data, static_cast<size_t>(bytes.src));
    return copy;
  }

  const CommDesc& desc_;
  const TeamInfo& team_;
  const int64_t rank_;
  const int64_t bytes_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeDirect(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  return std::make_unique<Direct>(desc, team, rank);
}

}  // namespace hir::comm
