#include "multidevice/comm/ucx/shared_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/check.h"

namespace hir::comm {

SharedSlots::SharedSlots(SharedMemory memory, int64_t ranks, int64_t index, int64_t contribution_max)
    : memory_(std::move(memory)),
      ranks_(ranks),
      index_(index),
      slot_bytes_(SlotBytes(contribution_max)),
      slots_(memory_.data() + ranks * static_cast<int64_t>(sizeof(Control))) {
  HIR_CHECK(memory_.bytes() == BytesFor(ranks, contribution_max));
}

bool SharedSlots::Admits(int64_t number) {
  if (number - kDepth < finished_by_all_) return true;
  int64_t least = finished_;
  for (int64_t peer = 0; peer < ranks_; ++peer) least = std::min(least, control(peer).finished.load());
  finished_by_all_ = least;
  return number - kDepth < finished_by_all_;
}

int64_t SharedSlots::WhoHolds(int64_t number) const {
  for (int64_t peer = 0; peer < ranks_; ++peer) {
    if (control(peer).finished.load(std::memory_order_acquire) <= number - kDepth) return peer;
  }
  return index_;
}

void SharedSlots::Put(int64_t number, const std::byte* data, int64_t bytes) {
  Slot& slot = SlotOf(index_, number);
  slot.bytes = bytes;
  std::memcpy(DataOf(slot, bytes), data, static_cast<size_t>(bytes));
  slot.number.store(number + 1);  // In one order with SetAsleep and IsAsleep.
}

SharedSlots::Contribution SharedSlots::Get(int64_t peer, int64_t number) const {
  Slot& slot = SlotOf(peer, number);
  if (slot.number.load() != number + 1) return {};
  return {.data = DataOf(slot, slot.bytes), .bytes = slot.bytes};
}

void SharedSlots::Finish(int64_t number) {
  finished_apart_ |= uint64_t{1} << (number - finished_);
  while ((finished_apart_ & 1) != 0) {
    finished_apart_ >>= 1;
    ++finished_;
  }
  control(index_).finished.store(finished_);  // As in Put.
}

}  // namespace hir::comm
