// The build without oneDNN: loops for everything, correct and slow.
#include "csrc/codegen/library/attention.h"
#include "csrc/codegen/library/onednn/onednn.h"

namespace hir::codegen::library {

Result<std::unique_ptr<Call>> Make(const ProductDesc& desc, const Options&) { return MakeLoops(desc); }

Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool) {
  return MakeAttention(desc, pool, LoopProduct<float>, "loops");
}

}  // namespace hir::codegen::library
