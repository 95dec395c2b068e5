#include "csrc/fusion/fusion_ops.h"

#include "csrc/fusion/check_program.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

using ir::AttrKind;
using enum ir::Effect;
using ir::kVariadic;

constexpr ir::OpInfo kTable[] = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) \
  {mnemonic, static_cast<uint16_t>(FusionOp::k##Name), operands, 1, 0, kPure, doc, InferPointwise, {}},
#define OP(Name, mnemonic, operands, effects, doc, ...) \
  {mnemonic, static_cast<uint16_t>(FusionOp::k##Name), operands, 1, 0, effects, doc, Infer##Name, {__VA_ARGS__}},
#define COMPOSITE(Name, mnemonic, operands, doc, ...) \
  {mnemonic, static_cast<uint16_t>(FusionOp::k##Name), operands, 1, 0, kPure, doc, Infer##Name, {__VA_ARGS__}},
#define COMM(Name, mnemonic, doc, ...) \
  {mnemonic, static_cast<uint16_t>(FusionOp::k##Name), 1, 1, 0, kComm, doc, Infer##Name, {__VA_ARGS__}},
#define PLANNED(Name, mnemonic, operands, results, effects, doc, ...) \
  {mnemonic, static_cast<uint16_t>(FusionOp::k##Name), operands, results, 0, effects, doc, Infer##Name, {__VA_ARGS__}},
#include "csrc/fusion/fusion_ops.def"
};
static_assert(std::size(kTable) == kNumFusionOps);

}  // namespace

constinit const ir::OpSet kFusionOps = {"fusion", kTable, CheckOutputs};

bool IsPointwise(FusionOp op) {
  constexpr bool kIs[] = {
#define POINTWISE(...) true,
#define OP(...) false,
#define COMPOSITE(...) false,
#define COMM(...) false,
#define PLANNED(...) false,
#include "csrc/fusion/fusion_ops.def"
  };
  return op == FusionOp::kCast || kIs[static_cast<int>(op)];
}

bool IsReduction(FusionOp op) {
  return op == FusionOp::kSum || op == FusionOp::kProd || op == FusionOp::kMin || op == FusionOp::kMax;
}

bool IsAttention(FusionOp op) { return op == FusionOp::kAttention || op == FusionOp::kAttentionGrad; }

bool IsGrouped(FusionOp op) { return op == FusionOp::kGroupedMatmul || op == FusionOp::kGroupedOuter; }

bool IsProduct(FusionOp op) { return op == FusionOp::kMatmul || op == FusionOp::kLinear; }

bool IsComposite(FusionOp op) {
  constexpr bool kIs[] = {
#define POINTWISE(...) false,
#define OP(...) false,
#define COMPOSITE(...) true,
#define COMM(...) false,
#define PLANNED(...) false,
#include "csrc/fusion/fusion_ops.def"
  };
  return kIs[static_cast<int>(op)];
}

bool IsCommunication(FusionOp op) { return (kFusionOps.ops[static_cast<size_t>(op)].effects & kComm) != 0; }

bool IsPlanned(FusionOp op) { return (kFusionOps.ops[static_cast<size_t>(op)].effects & (kComm | kLoop)) != 0; }

bool IsBetweenMeshes(FusionOp op) {
  return op == FusionOp::kBroadcastTo || op == FusionOp::kCollectivePermute || op == FusionOp::kGatherTo ||
         op == FusionOp::kReduceTo || op == FusionOp::kScatterTo || op == FusionOp::kSendRecv;
}

}  // namespace hir::fusion
