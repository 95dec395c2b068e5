#include "host_ir/eval/host_program.h"

#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/verify/verify.h"

namespace hir::host {
namespace {

void CollectFromType(const ir::Type& type, std::vector<std::string_view>& symbols) {
  for (const ir::Axis& axis : type.axes) {
    if (axis.kind != ir::AxisKind::kReduction) ir::CollectSymbols(axis.extent, symbols);
  }
}

}  // namespace

HostProgram::HostProgram(std::unique_ptr<ir::Graph> graph) : graph_(std::move(graph)) {
  for (const ir::Value* param : graph_->params) CollectFromType(*param->type, symbols_);
  ir::ForEachOp(graph_->body, [this](ir::Op* op) {
    for (const ir::Value* result : op->results) CollectFromType(*result->type, symbols_);
    for (const ir::Attr& attr : op->attrs) {
      if (const auto* expr = std::get_if<const ir::Expr*>(&attr.value)) ir::CollectSymbols(*expr, symbols_);
      if (const auto* exprs = std::get_if<std::span<const ir::Expr* const>>(&attr.value)) {
        for (const ir::Expr* expr : *exprs) ir::CollectSymbols(expr, symbols_);
      }
    }
  });
  std::erase_if(symbols_, [](std::string_view symbol) {
    return symbol == "rank" || symbol.starts_with('@') || symbol.starts_with('%');
  });
  for (const ir::Output& output : graph_->outputs) outputs_.push_back(output.value->index);
}

Result<std::unique_ptr<HostProgram>> HostProgram::Load(std::string_view text) {
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, ir::Parse(text, kHostOps));
  return Load(std::move(graph));
}

Result<std::unique_ptr<HostProgram>> HostProgram::Load(std::unique_ptr<ir::Graph> graph) {
  HIR_TRY(VerifyComplete(*graph));
  return LoadUnchecked(std::move(graph));
}

std::unique_ptr<HostProgram> HostProgram::LoadUnchecked(std::unique_ptr<ir::Graph> graph) {
  return std::unique_ptr<HostProgram>(new HostProgram(std::move(graph)));
}

}  // namespace hir::host
