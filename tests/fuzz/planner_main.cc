// The planner of service_fuzz: as the worker's, for CPUs, with code that nothing will run.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "service/os/process.h"
#include "service/planner/planner.h"
#include "tests/fuzz/no_code.h"

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  hir::service::PipelineOptions options;
  options.backend = "cpu";
  options.compile = hir::fuzz::NoCode;
  hir::service::ServePlanner(hir::base::Fd(hir::service::kInheritedFd), /*bytes_max=*/0, options);
}
