// A team of ranks that UCX connects: what its members call it, and the memory they share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/engine/engine.h"
#include "multidevice/comm/ucx/shared_slots.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

struct UcxTeam final : TransportTeam {
  int64_t bytes() const override { return slots == nullptr ? 0 : slots->bytes() / info->size(); }
  int64_t number = 0;                       // Here; a TeamId.
  std::vector<int64_t> number_at = {};      // At each member, by index.
  std::vector<int64_t> node_of = {};        // Of each member, by index, from 0 on; empty: all share memory.
  std::unique_ptr<SharedSlots> slots = {};  // Null: its ranks share no memory.
  int64_t shared_bytes_max = 0;             // Of a contribution there; at most the slots'.
};

// By which way a collective of `team` goes; its channel, too. Every rank of the team comes to the same.
enum Route : int { kByMessages = 0, kBySharedMemory = 1 };
Route RouteOf(const CommDesc& desc, const UcxTeam& team);

// What the members of a new team tell each other: one member's part.
struct TeamExchange {
  // Of team.number, which each member sets, makes team.number_at: members number their teams as they come, and others
  // put its number into what they send one. And team.slots, for contributions of up to the least shared_bytes_max of
  // all members; none where that is 0, or one of them has no memory or no file descriptor left: all do without then.
  //
  // Errors:  kDeadlineExceeded  a member did not come in time; the message names it.
  Status Run(int64_t shared_bytes_max, UcxTeam& team) const;

  Rendezvous& rendezvous;
  const std::string key;  // Of nothing else; a rank is appended.
  const base::Nanos deadline;
  const std::span<const int64_t> ranks;
  const int64_t rank;
};

}  // namespace hir::comm
