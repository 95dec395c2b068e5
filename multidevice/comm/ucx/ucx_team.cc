#include "multidevice/comm/ucx/ucx_team.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "csrc/base/text.h"
#include "multidevice/comm/ucx/chunks.h"
#include "multidevice/comm/ucx/shared_memory.h"

namespace hir::comm {
namespace {

// Of all slots of a team. With many ranks what fits into one becomes less, not the memory more.
constexpr int64_t kSlotsBytesMax = 4 << 20;

// What one member publishes.
struct Word {
  int64_t number = 0;            // Its number for the team.
  int64_t shared_bytes_max = 0;  // 0: it can, or shall, not share memory.
  std::string ticket = {};       // Of the first member: of the team's memory.

  std::string ToString() const { return base::Cat(number, " ", shared_bytes_max, " ", ticket); }
};

Result<Word> Parse(const std::string& text) {
  std::istringstream in(text);
  Word word;
  if (!(in >> word.number >> word.shared_bytes_max))
    return Internal(base::Cat("rendezvous: \"", text, "\" is not what a member of a team says"));
  std::getline(in >> std::ws, word.ticket);
  return word;
}

Result<Word> Get(const TeamExchange& exchange, int64_t peer) {
  const Result<std::string> text =
      exchange.rendezvous.Get(base::Cat(exchange.key, peer), exchange.deadline - base::Clock::Steady().Now());
  if (text.ok()) return Parse(*text);
  return text.status().WithContext(base::Cat("team [", base::JoinInts(exchange.ranks, ", "), "]: rank ", peer));
}

}  // namespace

Route RouteOf(const CommDesc& desc, const UcxTeam& team) {
  // What two ranks have for each other is no collective: others do not count it. UCX puts it into shared memory, too.
  if (team.slots == nullptr || desc.count == 0 || desc.type == CommType::kSendRecv) return kByMessages;
  const Chunks chunks(desc, *team.info, kNoRank);
  return chunks.SrcBytes() <= team.shared_bytes_max ? kBySharedMemory : kByMessages;
}

Status TeamExchange::Run(int64_t shared_bytes_max, UcxTeam& team) const {
  const auto size = std::ssize(ranks);
  const int64_t first = ranks[0];
  const int64_t room = kSlotsBytesMax / (size * SharedSlots::kDepth) - 128;
  Word mine = {.number = team.number,
               .shared_bytes_max = size == 1 ? 0 : std::clamp<int64_t>(shared_bytes_max, 0, room)};
  // The first member makes memory for what it would put there. The others open it before they say anything, so that
  // everybody knows of everybody whether they can.
  SharedMemory memory;
  int64_t contribution_max = mine.shared_bytes_max;
  if (rank == first && contribution_max > 0) {
    Result<SharedMemory> made = SharedMemory::Create(SharedSlots::BytesFor(size, contribution_max));
    if (made.ok()) {
      memory = std::move(*made);
      mine.ticket = memory.Ticket();
    } else {
      mine.shared_bytes_max = 0;
    }
  } else if (rank != first) {
    HIR_ASSIGN(const Word theirs, Get(*this, first));
    contribution_max = theirs.shared_bytes_max;
    Result<SharedMemory> opened = Unavailable("nothing to open");
    if (mine.shared_bytes_max > 0 && !theirs.ticket.empty()) opened = SharedMemory::Open(theirs.ticket);
    if (opened.ok()) {
      memory = std::move(*opened);
    } else {
      mine.shared_bytes_max = 0;
    }
  }
  HIR_TRY(rendezvous.Publish(base::Cat(key, rank), mine.ToString()));
  int64_t least = mine.shared_bytes_max;
  for (const int64_t peer : ranks) {
    HIR_ASSIGN(const Word theirs, peer == rank ? Result<Word>(mine) : Get(*this, peer));
    team.number_at.push_back(theirs.number);
    least = std::min(least, theirs.shared_bytes_max);
  }
  if (least == 0) return {};
  memory.CloseFile();
  const int64_t index = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  team.slots = std::make_unique<SharedSlots>(std::move(memory), size, index, contribution_max);
  team.shared_bytes_max = least;
  return {};
}

}  // namespace hir::comm
