// For tests that mpirun starts: every rank runs all tests, in step. Their main is mpi_ranks.cc.
#pragma once

#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::comm {

// MPI starts once in a process, before the first test.
MpiRendezvous& Ranks();

}  // namespace hir::comm
