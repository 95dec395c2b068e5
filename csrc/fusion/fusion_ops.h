// The op set of fusion programs; the table is fusion_ops.def, the meaning of each op is in docs/ops.md.
#pragma once

#include <cstdint>
#include <string_view>

#include "csrc/ir/graph.h"

namespace hir::fusion {

enum class FusionOp : uint16_t {
#define POINTWISE(Name, ...) k##Name,
#define OP(Name, ...) k##Name,
#define COMPOSITE(Name, ...) k##Name,
#define COMM(Name, ...) k##Name,
#define PLANNED(Name, ...) k##Name,
#include "csrc/fusion/fusion_ops.def"
};

inline constexpr int kNumFusionOps = 0
#define POINTWISE(...) +1
#define OP(...) +1
#define COMPOSITE(...) +1
#define COMM(...) +1
#define PLANNED(...) +1
#include "csrc/fusion/fusion_ops.def"
    ;

extern const ir::OpSet kFusionOps;

// REQUIRES: op is over kFusionOps.
inline FusionOp CodeOf(const ir::Op& op) { return static_cast<FusionOp>(op.info->code); }
bool IsPointwise(FusionOp op);      // A POINTWISE row, or cast.
bool IsReduction(FusionOp op);      // sum, prod, min, max.
bool IsProduct(FusionOp op);        // matmul, linear.
bool IsAttention(FusionOp op);      // attention, attention_grad.
bool IsGrouped(FusionOp op);        // grouped_matmul, grouped_outer.
bool IsComposite(FusionOp op);      // A COMPOSITE row.
bool IsCommunication(FusionOp op);  // A COMM row.
bool IsPlanned(FusionOp op);        // A COMM or PLANNED row: no user's program holds it.
bool IsBetweenMeshes(FusionOp op);  // A COMM row with meshes `from` and `to`.

}  // namespace hir::fusion
