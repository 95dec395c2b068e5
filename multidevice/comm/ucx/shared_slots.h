// SharedSlots: where the ranks of a team put what they have for each other, and read it. A rank writes its own slots
// alone; a slot belongs to one communication at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "multidevice/comm/ucx/shared_memory.h"

namespace hir::comm {

// In one process, of one rank; the communications of the team that come here are numbered from 0 without gaps, the
// same on every rank. Each rank starts each of them (Admits), puts at most one contribution, reads others', and
// finishes it, in any order.
class SharedSlots {
 public:
  // So many communications ahead of the slowest rank may the fastest be.
  static constexpr int64_t kDepth = 8;

  static int64_t BytesFor(int64_t ranks, int64_t contribution_max) {
    return ranks * (static_cast<int64_t>(sizeof(Control)) + kDepth * SlotBytes(contribution_max));
  }
  // REQUIRES: memory.bytes() is BytesFor(ranks, contribution_max).
  SharedSlots(SharedMemory memory, int64_t ranks, int64_t index, int64_t contribution_max);

  int64_t bytes() const { return memory_.bytes(); }  // Of all ranks.

  // Whether nobody reads any more what was in the slots that `number` will have.
  bool Admits(int64_t number);
  // The first member, by its place in the team, that has yet to finish what keeps `number` out.
  int64_t WhoHolds(int64_t number) const;

  // REQUIRES: Admits(number), and nothing was put for it before; bytes <= contribution_max().
  void Put(int64_t number, const std::byte* data, int64_t bytes);

  struct Contribution {
    const std::byte* data = nullptr;  // Null: it is not there yet. Aligned to 16 bytes.
    int64_t bytes = 0;
  };
  // Of the rank at place `peer`; stays until Finish.
  Contribution Get(int64_t peer, int64_t number) const;
  // REQUIRES: Admits(number).
  void Finish(int64_t number);

  // A rank that will not look before it is woken says so, and then looks once more. Whoever puts something, or
  // finishes, looks afterwards at who is asleep: one of the two sees the other.
  void SetAsleep(bool asleep) { control(index_).asleep.store(asleep ? 1 : 0); }
  bool IsAsleep(int64_t peer) const { return control(peer).asleep.load() != 0; }

  // The core that this rank was on when it began a communication, for others to guess who can go on by itself; by
  // their number on the node. -1: not known.
  void SetCore(int core) {
    std::atomic<int>& mine = control(index_).core_plus_1;
    if (mine.load(std::memory_order_relaxed) != core + 1) mine.store(core + 1, std::memory_order_relaxed);
  }
  int Core(int64_t peer) const { return control(peer).core_plus_1.load(std::memory_order_relaxed) - 1; }

 private:
  // A line of the cache each, as what is written often and what others look at often would share one.
  struct Control {
    alignas(64) std::atomic<int64_t> finished;  // All communications below it.
    alignas(64) std::atomic<int64_t> asleep;
    std::atomic<int> core_plus_1;  // Memory is zero at first. Changes as seldom as `asleep`.
  };
  // Short contributions are in the line of the number that says they are there, so that one line moves.
  struct Slot {
    std::atomic<int64_t> number;  // Plus 1: memory is zero at first.
    int64_t bytes;
    std::byte here[48];
  };
  static_assert(sizeof(Slot) == 64 && std::atomic<int64_t>::is_always_lock_free);

  // Of two lines or more, as processors fetch lines in pairs.
  static int64_t SlotBytes(int64_t contribution_max) { return (64 + contribution_max + 127) / 128 * 128; }
  static std::byte* DataOf(Slot& slot, int64_t bytes) {
    return bytes <= static_cast<int64_t>(sizeof slot.here) ? slot.here : reinterpret_cast<std::byte*>(&slot + 1);
  }
  Control& control(int64_t peer) const { return reinterpret_cast<Control*>(memory_.data())[peer]; }
  Slot& SlotOf(int64_t peer, int64_t number) const {
    return *reinterpret_cast<Slot*>(slots_ + (peer * kDepth + number % kDepth) * slot_bytes_);
  }

  const SharedMemory memory_;
  const int64_t ranks_;
  const int64_t index_;
  const int64_t slot_bytes_;
  std::byte* const slots_;
  int64_t finished_by_all_ = 0;  // As far as this rank has looked.
  int64_t finished_ = 0;         // Here: all below it, and of those from it on the ones in finished_apart_.
  uint64_t finished_apart_ = 0;  // Bit i: finished_ + i.
};

}  // namespace hir::comm
