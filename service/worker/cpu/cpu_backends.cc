#include "service/worker/cpu/cpu_backends.h"

#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/device/host/host_device.h"
#include "host_ir/eval/host/host_builtins.h"
#include "multidevice/comm/ucx/ucx.h"
#include "service/worker/cpu/kernels.h"
#include "service/worker/cpu/libraries.h"

namespace hir::service {

Backends CpuBackends() {
  Backends backends;
  backends.make_device = [](int64_t rank, int num_threads) {
    return device::CreateHostDevice({.name = base::Cat("cpu:", rank), .num_threads = num_threads});
  };
  backends.make_communicator = [](const CommOptions& options, comm::Rendezvous& rendezvous) {
    return comm::CreateUcx({.rank = options.rank,
                            .size = options.size,
                            .generation = options.generation,
                            .setup_timeout = options.setup_timeout,
                            .op_timeout = options.op_timeout},
                           rendezvous);
  };
  backends.make_builtins = [] { return std::make_unique<host::HostBuiltins>(); };
  backends.load_kernels = &LoadCpuKernels;
  backends.make_libraries = &MakeCpuLibraries;
  return backends;
}

decltype(PipelineOptions::compile) CpuCompile() {
  auto compiler = std::make_shared<codegen::cpu::Compiler>(codegen::cpu::Compiler::Options());
  return [compiler](const codegen::KernelPlan& plan) -> Result<::hostir::v1::Artifact> {
    HIR_ASSIGN(codegen::Artifact compiled, compiler->Compile(plan));
    ::hostir::v1::Artifact artifact;
    artifact.set_backend("cpu");
    artifact.set_code(std::move(compiled.bytes));
    for (std::string& kernel : compiled.kernels) artifact.add_kernels(std::move(kernel));
    return artifact;
  };
}

}  // namespace hir::service
