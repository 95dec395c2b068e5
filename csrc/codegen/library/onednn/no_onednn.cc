// The build without oneDNN: loops for everything, correct and slow.
#include "csrc/codegen/library/onednn/onednn.h"

namespace hir::codegen::library {

Result<std::unique_ptr<Call>> Make(const ProductDesc& desc, const Options&) { return MakeLoops(desc); }

}  // namespace hir::codegen::library
