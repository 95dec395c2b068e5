#include "csrc/fusion/passes/passes.h"

#include "csrc/fusion/passes/cse.h"
#include "csrc/fusion/passes/dce.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "csrc/fusion/passes/decompose_reshardings.h"
#include "csrc/fusion/passes/fold_casts.h"
#include "csrc/fusion/passes/fold_permutes.h"
#include "csrc/fusion/passes/propagate_shardings.h"
#include "csrc/fusion/passes/transpose_products.h"

namespace hir::fusion {
namespace {

constexpr ir::Pass kTable[] = {
#define PASS(Function, name, doc) {name, Function, doc},
#include "csrc/fusion/passes/passes.def"
};

}  // namespace

constinit const std::span<const ir::Pass> kFusionPasses = kTable;

}  // namespace hir::fusion
