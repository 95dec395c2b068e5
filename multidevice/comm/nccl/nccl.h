// Communication between GPUs through NCCL, which is loaded when a communicator is made: a program
// that links this runs without it, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/peer/peer_memory.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

struct NcclOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> absent = {};  // Ranks that are not there, ascending, and in no team.
  int64_t generation = 0;
  base::Nanos setup_timeout = std::chrono::seconds(60);  // Of Create and of each Team.
  // From when the device starts a communication to its end.
  base::Nanos op_timeout = std::chrono::seconds(30);
  // The file of the library. Empty: $HOSTIR_NCCL, else libnccl.so.2 where the system's loader finds
  // it, in CUDA's folder, or in a Python package.
  std::string library = {};
  // Lets NCCL use NVLink multicast (NVLS). Off: NCCL_NVLS_ENABLE=0 is put into the environment
  // before the library starts, for all communicators of the process. On: the environment decides.
  bool nvlink_multicast = false;

  // The GPU of this rank, which outlives the communicator, and what its streams can do beside the
  // device interface. Its context is current on the thread that makes and uses the communicator.
  device::Device* device = nullptr;
  void* (*native_stream)(device::Stream& stream) = nullptr;  // A CUstream.
  // Says that a library queues work on the stream from here on, which is over, or has failed, when
  // the completion says so; that may be shortly after the stream is gone.
  device::Completion (*begin_work)(device::Stream& stream) = nullptr;
  // Optional: another number once more work was queued on the stream (device::WorkMark). Where two
  // posts have nothing between them, the end of one is the begin of the next, and one event serves.
  int64_t (*work_mark)(device::Stream& stream) = nullptr;
  // Optional: whether the stream is in a capture. Without it posts cannot be captured.
  bool (*is_capturing)(device::Stream& stream) = nullptr;
  // Optional: takes what it can, on all ranks alike; NCCL the rest.
  std::shared_ptr<PeerMemory> peers = {};
};

// True when this build knows NCCL; whether the library is there, CreateNccl finds out.
bool HasNccl();

// Collective over all ranks; `rendezvous` outlives the communicator. One thread of its own follows
// the work.
//
// Errors:  kUnimplemented       this build does not know NCCL, or there is no such library; the
//                               message names what was looked for;
//          kFailedPrecondition  the library is too old; the message has its version;
//          kDeadlineExceeded    a rank did not come in time;
//          kUnavailable         NCCL could not start or connect; the message has its reason.
Result<std::unique_ptr<Communicator>> CreateNccl(const NcclOptions& options, Rendezvous& rendezvous);

}  // namespace hir::comm
