// The build without cuBLASLt's header.
#include "csrc/codegen/library/cublaslt/cublaslt.h"

namespace hir::codegen::library {

Result<std::unique_ptr<CublasLt>> CublasLt::Open(device::Device&, const CublasLtOptions&) {
  return Unimplemented(
      "this build has no cuBLASLt: matmul and linear do not run on GPUs; configure where "
      "cublasLt.h is found");
}

}  // namespace hir::codegen::library
