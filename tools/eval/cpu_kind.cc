#include "host_ir/rank/cpu/cpu_backends.h"
#include "multidevice/comm/mpi/mpi.h"
#include "tools/eval/device_kind.h"

namespace hir::eval {
namespace {

Result<std::unique_ptr<comm::Communicator>> MakeMpi(const rank::CommOptions& options, comm::Rendezvous& rendezvous,
                                                    device::Device&) {
  return comm::CreateMpi({.rank = options.rank,
                          .size = options.size,
                          .generation = options.generation,
                          .setup_timeout = options.setup_timeout,
                          .op_timeout = options.op_timeout},
                         rendezvous);
}

}  // namespace

DeviceKind CpuKind(std::string_view comm) {
  DeviceKind kind = {.backends = rank::CpuBackends()};
  if (comm == "mpi") kind.backends.make_communicator = &MakeMpi;
  return kind;
}

}  // namespace hir::eval
