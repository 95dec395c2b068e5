// A compiler of kernels for what is planned and never run: names, and no code.
#pragma once

#include "host_ir/rank/backends.h"

namespace hir::fuzz {

inline Result<codegen::Artifact> NoCode(const codegen::KernelPlan& plan) {
  codegen::Artifact artifact = {"code", {}};
  for (const codegen::Launch& launch : plan.launches) artifact.kernels.push_back(launch.kernel);
  return artifact;
}

}  // namespace hir::fuzz
