// Instead of mpi.cc where MPI was not found.
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::comm {

bool HasMpi() { return false; }

Result<std::unique_ptr<MpiRendezvous>> MpiRendezvous::Start(base::Nanos) {
  return Unimplemented("this build has no MPI (HIR_WITH_MPI): ranks cannot find each other");
}

}  // namespace hir::comm
