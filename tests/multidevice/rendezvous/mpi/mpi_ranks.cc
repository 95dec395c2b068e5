#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

namespace hir::comm {
namespace {

MpiRendezvous* ranks = nullptr;

int Main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  auto started = MpiRendezvous::Start();
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    return 1;
  }
  ranks = started->get();
  return RUN_ALL_TESTS();  // MPI ends with `started`.
}

}  // namespace

MpiRendezvous& Ranks() { return *ranks; }

}  // namespace hir::comm

int main(int argc, char** argv) { return hir::comm::Main(argc, argv); }
