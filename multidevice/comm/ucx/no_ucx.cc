// A build without UCX.
#include "multidevice/comm/ucx/ucx.h"

namespace hir::comm {

bool HasUcx() { return false; }

Result<std::unique_ptr<Communicator>> CreateUcx(const UcxOptions&, Rendezvous&) {
  return Unimplemented("this build has no UCX: ranks cannot communicate (./run setup installs it)");
}

}  // namespace hir::comm
