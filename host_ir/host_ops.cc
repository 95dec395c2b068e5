#include "host_ir/host_ops.h"

#include "host_ir/infer.h"
#include "host_ir/verify/verify.h"

namespace hir::host {
namespace {

using ir::AttrKind;
using ir::kComm;
using ir::kPure;
using ir::kReads;
using ir::kSyncs;
using ir::kVariadic;
using ir::kWrites;

constexpr ir::OpInfo kTable[] = {
#define HOST_OP(Name, mnemonic, operands, results, blocks, effects, access, doc, ...)                           \
  {mnemonic,     static_cast<uint16_t>(HostOp::k##Name), operands, results, blocks, effects, doc, &Infer##Name, \
   {__VA_ARGS__}},
#include "host_ir/host_ops.def"
};

constexpr std::string_view kAccess[] = {
#define HOST_OP(Name, mnemonic, operands, results, blocks, effects, access, doc, ...) access,
#include "host_ir/host_ops.def"
};

Access LaunchAccess(const ir::Op& op, int64_t operand) {
  if ((operand -= op.Int("inputs")) < 0) return Access::kRead;
  if ((operand -= op.Int("outputs")) < 0) return Access::kWrite;
  if ((operand -= op.Int("workspaces")) < 0) return Access::kScratch;
  return Access::kNone;
}

}  // namespace

const ir::OpSet kHostOps = {.name = "host", .ops = kTable, .verify = &VerifyHost, .declares = true};
const ir::OpSet kUnorderedHostOps = {.name = "host", .ops = kTable, .verify = &VerifyUnordered, .declares = true};

bool IsTransposed(const ir::Op& op, size_t operand) {
  const std::string_view name = op.Name("transposed");
  return operand < 2 && (name == "both" || name == (operand == 0 ? "x" : "y"));
}

Access AccessOf(const ir::Op& op, int operand) {
  const HostOp code = CodeOf(op);
  if (code == HostOp::kLaunch) return LaunchAccess(op, operand);
  if (code == HostOp::kLibrary || code == HostOp::kAttention)
    return operand < op.Int("inputs") ? Access::kRead : Access::kWrite;
  switch (kAccess[op.info->code][static_cast<size_t>(operand)]) {
    case 'r': return Access::kRead;
    case 'w': return Access::kWrite;
    case 'm': return Access::kReadWrite;
    case 'v': return Access::kAlias;
    default: return Access::kNone;
  }
}

bool IsQueued(const ir::Op& op) {
  for (const ir::AttrInfo& attr : op.info->attrs) {
    if (attr.name == "stream") return true;
  }
  return false;
}

bool MakesView(const ir::Op& op) {
  const HostOp code = CodeOf(op);
  return code == HostOp::kViewPermute || code == HostOp::kViewReshape || code == HostOp::kViewSelect ||
         code == HostOp::kViewSlice;
}

std::string_view WorkNameOf(const ir::Op& op) {
  return CodeOf(op) == HostOp::kLaunch ? op.Name("kernel") : std::string_view(op.operands.back()->name);
}

const ir::Value* BaseOf(const ir::Value* value) {
  while (value->def != nullptr && MakesView(*value->def)) value = value->def->operands[0];
  return value;
}

}  // namespace hir::host
