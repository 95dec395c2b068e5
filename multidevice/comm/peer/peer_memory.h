// PeerMemory: communication between GPUs of one machine by writing into each other's memory: the copy engine for large
// messages, which takes no multiprocessor from a kernel beside it; a kernel of our own for small ones, in one shot.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/peer/paths.h"
#include "multidevice/comm/peer/peer_team.h"
#include "multidevice/comm/team.h"
#include "multidevice/rendezvous/descriptors.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// After an abort a rank's streams stay in their waits for so long, until the others have heard of it. What has gone on
// with garbage sends it: the others' leave to do so may have come before.
inline constexpr base::Nanos kPeerHoldBack = std::chrono::milliseconds(500);

struct PeerOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> absent = {};  // Ranks that are not there, ascending, and in no team.
  int64_t generation = 0;
  base::Nanos setup_timeout = std::chrono::seconds(60);
  base::Nanos op_timeout = std::chrono::seconds(30);
  device::Device* device = nullptr;  // Of csrc/device/cuda; outlives this.
  // CUDA C++ to a cubin.
  std::function<Result<std::string>(std::string_view text, int architecture)> compile = {};
  int64_t team_bytes = kPeerTeamBytes;  // Device memory of each team of several.
  PeerPaths paths = {};                 // Which communications go which way; the same on all ranks.
};

// Threads: as Communicator's; Abort from any.
class PeerMemory {
 public:
  // Collective over all ranks. Errors: kUnavailable, the same on all ranks: they are not on one machine, or one of them
  // cannot compile the kernels; kDeadlineExceeded: a rank did not come.
  static Result<std::unique_ptr<PeerMemory>> Create(const PeerOptions& options, Rendezvous& rendezvous);
  ~PeerMemory();

  // Collective over the members of `team`.
  // Errors: kUnavailable, on all of them: one has no memory for it, or cannot reach another's; then Takes says no to
  //         what is the team's. kDeadlineExceeded: a member did not come.
  Status AddTeam(TeamId id, const TeamInfo& team);

  // Collective over the members of `team`, one of AddTeam's. Errors: as of Communicator::MakeWindow.
  Result<std::shared_ptr<const Window>> MakeWindow(TeamId id, const TeamInfo& team, int64_t bytes);

  // Teams that have memory, and those that AddTeam refused.
  int64_t num_teams() const { return static_cast<int64_t>(teams_.size()); }
  int64_t num_refused() const { return num_refused_; }

  // Whether `desc` goes this way: the same on every rank that posts it. REQUIRES: CheckDesc passed.
  bool Takes(const CommDesc& desc, const TeamInfo& team) const;
  // REQUIRES: Takes. Errors: of the device.
  Status Queue(const CommDesc& desc, const TeamInfo& team, device::Stream& stream);

  // A graph with posts of this was launched on `stream`.
  Status FollowGraph(device::Stream& stream);

  // Lets every wait of what was queued end, from kPeerHoldBack after the first call on; what is received then is
  // anything.
  void Abort();

 private:
  struct Side;   // What a stream has beside it for pushes.
  struct Phase;  // What is sent and received at one time.
  explicit PeerMemory(const PeerOptions& options);

  Status Prepare();
  // The other members' memory, mapped here, by place; null in this rank's. Where one has none, `mine` says so on all.
  Result<std::vector<std::unique_ptr<device::Allocation>>> MapAll(std::string_view name, const TeamInfo& info,
                                                                  int64_t bytes, int fd, Status& mine);
  Status Clear(device::Buffer memory, const PeerLayout& layout);
  Result<Side*> SideOf(device::Stream& stream);
  void QueuePush(const CommDesc& desc, const PeerTeam& team, device::Stream& stream) const;
  Status QueueCopies(const CommDesc& desc, const TeamInfo& info, const PeerTeam& team, device::Stream& stream);
  void QueuePut(const CommDesc& desc, const TeamInfo& info, const PeerTeam& team, device::Stream& stream) const;
  Status QueuePhase(const Phase& phase, const PeerTeam& team, device::Stream& stream);
  void ReducePiece(const Phase& phase, const PeerTeam& team, int64_t offset, int64_t bytes, int half,
                   device::Stream& stream) const;
  void Release();

  const PeerOptions options_;
  std::unique_ptr<DescriptorExchange> descriptors_;
  std::unique_ptr<device::Stream> stream_;  // Prepares teams, then ends their waits.
  std::unique_ptr<device::KernelSource> source_;
  const device::Kernel* push_ = nullptr;
  const device::Kernel* reduce_ = nullptr;
  int64_t multiprocessors_ = 0;
  int64_t num_refused_ = 0;
  std::map<device::Stream*, std::unique_ptr<Side>> sides_;
  std::map<device::Stream*, std::unique_ptr<device::Event>> graph_ends_;

  std::mutex mutex_;  // Of teams_ and the work of stream_; whoever posts alone changes teams_, and reads without it.
  std::map<TeamId, std::unique_ptr<PeerTeam>> teams_;
  std::atomic<bool> aborted_ = false;
  std::jthread release_;  // Once aborted.
};

}  // namespace hir::comm
