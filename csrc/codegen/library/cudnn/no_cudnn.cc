// Builds without cuDNN's headers.
#include "csrc/codegen/library/cudnn/cudnn.h"

namespace hir::codegen::library {

Status LoadCudnn() {
  return Unimplemented(
      "this build has no cuDNN: attention on GPUs is made of products; configure where cudnn.h and cudnn_frontend.h "
      "are found");
}

Result<std::unique_ptr<Cudnn>> Cudnn::Open(device::Device&, const CudnnOptions&) { return LoadCudnn(); }

}  // namespace hir::codegen::library
