#include "multidevice/comm/engine/engine_communicator.h"

#include <optional>

#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"

namespace hir::comm {

Result<TeamId> EngineCommunicator::Team(std::span<const int64_t> ranks, int64_t lane) {
  HIR_TRY(engine_.failure());
  HIR_ASSIGN(const std::optional<TeamId> known, teams_.Find(ranks, lane));
  if (known) return *known;
  HIR_ASSIGN(std::unique_ptr<TransportTeam> team, MakeTeam(ranks, lane, teams_.size()));
  const TeamId id = teams_.Add(ranks, lane);
  team->info = teams_.Get(id);
  transport_teams_.push_back(std::move(team));
  return id;
}

Status EngineCommunicator::Post(const CommDesc& desc, device::Stream& stream) {
  HIR_TRY(engine_.failure());
  const TeamInfo* const team = teams_.Get(desc.team);
  HIR_TRY(CheckDesc(desc, team, rank()));
  HIR_TRY(CheckLimits(desc, *team));
  EnginePost& post = PostFor(stream);
  const TransportTeam* const transport_team = transport_teams_[static_cast<size_t>(desc.team)].get();
  post.ops.push_back(
      {.desc = desc, .team = transport_team, .numbers = numbering_.Next(desc, Channel(desc, *transport_team))});
  if (!in_group_) stream.Enqueue(post);
  return {};
}

Status EngineCommunicator::GroupBegin() {
  if (in_group_) return {Code::kFailedPrecondition, "group: groups do not nest"};
  in_group_ = true;
  return {};
}

Status EngineCommunicator::GroupEnd() {
  if (!in_group_) return {Code::kFailedPrecondition, "group: it has not begun"};
  in_group_ = false;
  for (const auto& [stream, post] : group_) stream->Enqueue(*post);
  group_.clear();
  return {};
}

int64_t EngineCommunicator::peak_bytes() const {
  int64_t bytes = engine_.peak_scratch_bytes();
  for (const auto& team : transport_teams_) bytes += team->bytes();
  return bytes;
}

EnginePost& EngineCommunicator::PostFor(device::Stream& stream) {
  for (const auto& [known, post] : group_) {
    if (known == &stream) return *post;
  }
  EnginePost& post = engine_.NewPost();
  if (in_group_) group_.emplace_back(&stream, &post);
  return post;
}

}  // namespace hir::comm
