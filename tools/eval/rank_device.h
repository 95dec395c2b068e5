// RankDevice: one rank's device and its connection to the others: what all programs of a process run on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "host_ir/eval/library.h"
#include "multidevice/comm/communicator.h"
#include "tools/eval/device_kind.h"
#include "tools/eval/options.h"
#include "tools/eval/ranks.h"

namespace hir::eval {

// One thread. Open, then Connect, once each, before the rest.
class RankDevice {
 public:
  Status Open(const Options& options, const Ranks& ranks, const rank::Backends& backends);
  Status Connect(const Options& options, Ranks& ranks, const rank::Backends& backends);  // Collective.

  device::Device& device() { return *device_; }
  const std::vector<device::Stream*>& streams() const { return streams_; }
  host::LibrarySource* libraries() { return libraries_.get(); }
  comm::Communicator* communicator() { return communicator_.get(); }  // Null: one rank alone.

  // What is added to the numbers of the next run's communications: each run's are its own.
  int64_t NextSeqBase() { return num_runs_++ * kSeqsPerRun; }

 private:
  static constexpr int64_t kSeqsPerRun = int64_t{1} << 20;

  // In the order in which they are made.
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<device::Stream>> owned_streams_;
  std::vector<device::Stream*> streams_;
  std::unique_ptr<host::LibrarySource> libraries_;
  std::unique_ptr<comm::Communicator> communicator_;
  int64_t num_runs_ = 0;
};

}  // namespace hir::eval
