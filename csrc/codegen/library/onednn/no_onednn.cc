// The build without oneDNN: loops for everything, correct and slow.
#include "csrc/codegen/library/attention.h"
#include "csrc/codegen/library/grouped_product.h"
#include "csrc/codegen/library/onednn/onednn.h"

namespace hir::codegen::library {

Result<std::unique_ptr<Call>> Make(const ProductDesc& desc, const Options&) { return MakeLoops(desc); }

Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool) {
  return MakeAttention(desc, pool, LoopProduct<float>, "loops");
}

Result<std::unique_ptr<Call>> MakeGroupedProduct(const GroupedProductDesc& desc, base::WorkPool& pool) {
  return MakeGroupedProduct(desc, pool, LoopProduct<float>, "loops");
}

}  // namespace hir::codegen::library
