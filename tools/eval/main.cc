// hostir-eval: runs a program in text form without a daemon, on one rank or under mpirun.
#include <cstdio>
#include <span>

#include "tools/eval/device_kind.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/options.h"

int main(int argc, char** argv) {
  using namespace hir::eval;
  const std::span<const char* const> arguments(argv, static_cast<size_t>(argc));
  const hir::Result<Options> options = ParseOptions(arguments.subspan(1));
  if (!options.ok()) {
    std::fprintf(stderr, "hostir-eval: %s\n", std::string(options.status().message()).c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  return Evaluate(*options, options->device == "cuda" ? CudaKind() : CpuKind(options->comm));
}
