// The communicator over an engine: teams, posts and groups, for every transport.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "multidevice/comm/communicator.h"
#include "multidevice/comm/engine/engine.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

class EngineCommunicator : public Communicator {
 public:
  int64_t rank() const final { return rank_; }
  int64_t size() const final { return size_; }
  Result<TeamId> Team(std::span<const int64_t> ranks, int64_t lane) final;
  Status Post(const CommDesc& desc, device::Stream& stream) final;
  Status GroupBegin() final;
  Status GroupEnd() final;
  void Abort(Status cause) final { engine_.Poison(cause); }
  CommProgress Progress() const final { return engine_.progress(); }
  int64_t peak_bytes() const final;

 protected:
  EngineCommunicator(int64_t rank, int64_t size, base::Nanos op_timeout, std::unique_ptr<Transport> transport)
      : rank_(rank), size_(size), teams_(rank, size), engine_(std::move(transport), op_timeout) {}

  // What the transport knows of the team that these ranks, in this order, are about to form as the `number`-th of this
  // rank. Collective over them.
  virtual Result<std::unique_ptr<TransportTeam>> MakeTeam(std::span<const int64_t> ranks, int64_t lane,
                                                          int64_t number) = 0;
  // A limit of the transport's own; CheckDesc has passed.
  virtual Status CheckLimits(const CommDesc&, const TeamInfo&) const { return {}; }
  // The way a collective takes, where there are several: the same on every rank, which count those of each apart.
  virtual int Channel(const CommDesc&, const TransportTeam&) const { return 0; }

 private:
  EnginePost& PostFor(device::Stream& stream);

  const int64_t rank_;
  const int64_t size_;
  TeamTable teams_;
  std::vector<std::unique_ptr<TransportTeam>> transport_teams_;  // By TeamId.
  Numbering numbering_;
  bool in_group_ = false;
  std::vector<std::pair<device::Stream*, EnginePost*>> group_;
  Engine engine_;
};

}  // namespace hir::comm
