// Worker: what the process of one rank does with the daemon's messages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/device/stream.h"
#include "host_ir/eval/pool.h"
#include "host_ir/rank/backends.h"
#include "service/os/shared_memory.h"
#include "service/worker/link.h"
#include "service/worker/loaded_program.h"

namespace hir::service {

// Threads: Handle on the main thread; Dump on any.
class Worker {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t generation = 0;
    int64_t ordinal = 0;           // Of its device.
    int64_t device_bytes_max = 0;  // 0: what the device's kind takes.
    // Shards live in the device's memory even if it could work on the daemon's.
    bool own_memory = false;
    bool nvlink_multicast = false;
    bool peer_memory = true;
    bool damages_plans = false;  // For tests: what it loads is not what it was sent.
  };
  Worker(Options options, rank::Backends backends) : options_(options), backends_(std::move(backends)) {}

  // Carries out one message and returns what to answer. `rendezvous` outlives the worker.
  ::hostir::v1::FromWorker Handle(Link::Request request, comm::Rendezvous& rendezvous);
  ::hostir::v1::Dumped Dump();

 private:
  Status Do(Link::Request& request, comm::Rendezvous& rendezvous);
  Status DoAll(Link::Request& request, comm::Rendezvous& rendezvous);  // A batch.
  Status Hello(const ::hostir::v1::Hello& hello, comm::Rendezvous& rendezvous);
  // Errors: kInternal, poisoning the generation, when the plan is not the one that was sent.
  Status Load(::hostir::v1::Load& load);
  Status Bind(const ::hostir::v1::Bind& bind, std::vector<base::Fd>& fds);
  Status Fetch(const ::hostir::v1::Fetch& fetch, std::vector<base::Fd>& fds);
  Status Execute(const ::hostir::v1::Execute& execute);
  // LoadedProgram::Bind, with all of the device's memory where it must be.
  Status BindRun(const ::hostir::v1::Execute& execute, LoadedProgram& program);
  Status Release(const ::hostir::v1::Release& release);

  const Options options_;
  const rank::Backends backends_;
  // Made by Hello, in this order; a program uses them all.
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<host::LibrarySource> libraries_;
  std::vector<std::unique_ptr<device::Stream>> owned_streams_;
  std::vector<device::Stream*> streams_;
  std::unique_ptr<comm::Communicator> communicator_;  // Null when there is one rank.
  std::unique_ptr<host::Pool> pool_;
  struct Shard {
    SharedMemory mapped;                            // The daemon's memory, or
    std::unique_ptr<device::Allocation> on_device;  // the device's, or
    device::Buffer part;                            // of another shard's.
  };
  bool OwnMemory() const { return options_.own_memory || !backends_.uses_host_memory; }
  Result<device::Buffer> BufferOf(int64_t shard) const;
  // Between a shard and what a client exported. Errors: kInvalidArgument: that is no such memory.
  Status CopyExported(device::Buffer shard, base::Fd exported, rank::CopyWay way) const;

  std::map<int64_t, Shard> shards_;
  std::map<int64_t, std::unique_ptr<LoadedProgram>> programs_;
  bool poisoned_ = false;
  ::hostir::v1::Measured measured_;  // For the reply to the message at hand.

  struct Watched {  // What Dump looks at.
    comm::Communicator* communicator = nullptr;
    int64_t run = 0;
    const LoadedProgram* program = nullptr;
  };
  std::mutex mutex_;
  Watched watched_;  // Guarded by mutex_.
};

}  // namespace hir::service
