#include "tools/eval/rank_device.h"

#include <chrono>
#include <utility>

namespace hir::eval {

Status RankDevice::Open(const Options& options, const Ranks& ranks, const rank::Backends& backends) {
  const int num_threads = static_cast<int>(options.threads);
  HIR_ASSIGN(device_,
             backends.make_device({.rank = ranks.rank(), .ordinal = ranks.node_rank(), .num_threads = num_threads}));
  for (int i = 0; i < rank::kStreams; ++i) {
    HIR_ASSIGN(auto stream, streams_.size() == 1 ? device_->CreateUrgentStream() : device_->CreateStream());
    streams_.push_back(stream.get());
    owned_streams_.push_back(std::move(stream));
  }
  HIR_ASSIGN(libraries_, backends.make_libraries(*device_, num_threads));
  return {};
}

Status RankDevice::Connect(const Options& options, Ranks& ranks, const rank::Backends& backends) {
  if (ranks.size() == 1) return {};
  const base::Nanos timeout = std::chrono::seconds(options.timeout_s);
  const rank::CommOptions wanted = {.rank = ranks.rank(),
                                    .size = ranks.size(),
                                    .setup_timeout = timeout,
                                    .op_timeout = timeout,
                                    .nvlink_multicast = options.nvlink_multicast,
                                    .peer_memory = options.peer_memory};
  HIR_ASSIGN(communicator_, backends.make_communicator(wanted, ranks.rendezvous(), *device_));
  return {};
}

}  // namespace hir::eval
