// A build without NCCL's header.
#include "multidevice/comm/nccl/nccl.h"

namespace hir::comm {

bool HasNccl() { return false; }

Result<std::unique_ptr<Communicator>> CreateNccl(const NcclOptions&, Rendezvous&) {
  return Unimplemented("this build has no NCCL: GPUs cannot communicate (build it where nccl.h is found)");
}

}  // namespace hir::comm
