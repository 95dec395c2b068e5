// In the place of mpi.cc where the build has no MPI.
#include "multidevice/comm/mpi/mpi.h"

namespace hir::comm {

bool HasMpiCommunicator() { return false; }

Result<std::unique_ptr<Communicator>> CreateMpi(const MpiOptions&, Rendezvous&) {
  return Unimplemented("mpi: this build has no MPI");
}

}  // namespace hir::comm
