#include "service/planner/size_buckets.h"

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/ir/graph.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

void Add(pb::PlanGuard::Kind kind, const std::string& left, const std::string& right, const std::string& reason,
         pb::Plan* plan) {
  pb::PlanGuard& guard = *plan->add_guards();
  guard.set_condition(base::Cat(left, kind == pb::PlanGuard::KIND_EQUAL ? " == " : " <= ", right));
  guard.set_left(left);
  guard.set_right(right);
  guard.set_kind(kind);
  guard.set_reason(reason);
  guard.set_replans(true);
}

void AddAtMost(const std::string& left, const std::string& right, const std::string& reason, pb::Plan* plan) {
  Add(pb::PlanGuard::KIND_AT_MOST, left, right, reason, plan);
}

}  // namespace

std::set<std::string> SymbolsOf(std::span<const plan::Boundary> inputs) {
  std::vector<std::string_view> symbols;
  for (const plan::Boundary& input : inputs) {
    if (input.global->kind != ir::TypeKind::kTensor) continue;
    for (const ir::Axis& axis : input.global->axes) ir::CollectSymbols(axis.extent, symbols);
  }
  return {symbols.begin(), symbols.end()};
}

void KeepFromSmall(const codegen::Sizes& least_shared, const codegen::Sizes& sizes, pb::Plan* plan) {
  for (const auto& [symbol, size] : sizes) {
    const auto least = least_shared.find(symbol);
    if (least == least_shared.end()) continue;
    const std::string reason =
        base::Cat("an axis ", symbol, " of fewer than ", least->second, " elements has plans of their own");
    if (size >= least->second) AddAtMost(base::Cat(least->second), symbol, reason, plan);
    if (size == 0) AddAtMost(symbol, "0", reason, plan);
  }
}

void KeepToVectors(const codegen::Sizes& sizes, pb::Plan* plan) {
  for (const auto& [symbol, size] : sizes) {
    const std::string reason = base::Cat("kernels have vectors for ", symbol, " = ", size);
    const int64_t vector = codegen::gpu::VectorOfSize(size);
    if (vector == 1) {
      AddAtMost("1", base::Cat(symbol, " mod 4"), reason, plan);
    } else {
      const int64_t rest = vector == 8 ? 0 : 4;
      Add(pb::PlanGuard::KIND_EQUAL, base::Cat(symbol, " mod 8"), base::Cat(rest), reason, plan);
    }
  }
}

void AddBuckets(const codegen::Sizes& sizes, pb::Plan* plan) {
  for (const auto& [symbol, size] : sizes) {
    const codegen::gpu::SizeRange alike = codegen::gpu::SizesLike(size);
    const std::string reason = base::Cat("kernels are made for ", symbol, " = ", size);
    if (alike.least > 0) AddAtMost(base::Cat(alike.least), symbol, reason, plan);
    if (alike.most < std::numeric_limits<int64_t>::max()) AddAtMost(symbol, base::Cat(alike.most), reason, plan);
  }
}

}  // namespace hir::service
