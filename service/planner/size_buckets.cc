#include "service/planner/size_buckets.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The first sizes of all buckets but the lowest.
constexpr std::array<int64_t, 7> kBuckets = {64, 256, 1024, 4096, 16384, 65536, 262144};

void AddAtMost(const std::string& left, const std::string& right, const std::string& reason, pb::Plan* plan) {
  pb::PlanGuard& guard = *plan->add_guards();
  guard.set_condition(base::Cat(left, " <= ", right));
  guard.set_left(left);
  guard.set_right(right);
  guard.set_kind(pb::PlanGuard::KIND_AT_MOST);
  guard.set_reason(reason);
  guard.set_replans(true);
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

void AddBuckets(const codegen::Sizes& sizes, pb::Plan* plan) {
  for (const auto& [symbol, size] : sizes) {
    for (size_t i = 0; i <= kBuckets.size(); ++i) {
      const bool below = i < kBuckets.size() && size < kBuckets[i];
      if (!below && i < kBuckets.size()) continue;
      const std::string reason = base::Cat("kernels are made for ", symbol, " = ", size);
      if (i > 0) AddAtMost(base::Cat(kBuckets[i - 1]), symbol, reason, plan);
      if (below) AddAtMost(symbol, base::Cat(kBuckets[i] - 1), reason, plan);
      break;
    }
  }
}

}  // namespace hir::service
