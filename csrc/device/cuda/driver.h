// Driver: the CUDA driver's functions, found at run time. Private to the folder: it includes cuda.h.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace hir::device::cuda {

inline constexpr int kDriverVersionMin = 12000;

// A version of CUDA as people write it: 12040 is "12.4".
std::string VersionText(int version);

// Immutable, thread-safe. The library stays loaded for the life of the process.
class Driver {
 public:
  // Loads and initialises it. Errors: kFailedPrecondition: it is not there, too old, or sees no GPU;
  // kUnavailable: it does not start.
  static Result<std::shared_ptr<const Driver>> Load(std::string_view library);

  int version() const { return version_; }
  std::string Describe(CUresult error) const;  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  // OK, or an error that names the call.
  Status Check(CUresult result, std::string_view call) const;

#define CUDA_FUNCTION(Name, parameters, need) CUresult(CUDAAPI* Name) parameters = nullptr;
#include "csrc/device/cuda/functions.def"

 private:
  Status Find(void* library, std::string_view name);
  Status Start(std::string_view name) const;

  int version_ = 0;
};

// The Status of a failed call: kInternal for what a kernel did wrong, kResourceExhausted for memory,
// kUnavailable for what the machine did.
Code CodeOf(CUresult error);
// Whether the context can do nothing more after it.
bool LosesContext(CUresult error);

}  // namespace hir::device::cuda
