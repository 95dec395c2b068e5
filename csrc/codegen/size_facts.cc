#include "csrc/codegen/size_facts.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::codegen {

std::optional<int64_t> SizeFacts::ValueOf(const ir::Expr* extent) const {
  const auto value = ir::Evaluate(extent, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto known = sizes_->find(std::string(symbol));
    if (known == sizes_->end()) return std::nullopt;
    return known->second;
  });
  return value.ok() ? std::optional(*value) : std::nullopt;
}

bool SizeFacts::AtLeast(const ir::Expr* extent, int64_t least, bool otherwise) {
  extent = pool_->Import(extent);
  if (extent->IsConst()) return extent->value >= least;
  const std::optional<int64_t> value = ValueOf(extent);
  if (!value) return otherwise;
  const bool yes = *value >= least;
  const ir::Expr* bound = pool_->Const(yes ? least : least - 1);
  ir::Guard guard = {.kind = ir::Guard::Kind::kAtMost,
                     .left = yes ? bound : extent,
                     .right = yes ? extent : bound,
                     .reason = base::Cat("planned for ", yes ? "at least " : "less than ", least)};
  const bool known = std::ranges::any_of(
      guards_, [&](const ir::Guard& other) { return other.left == guard.left && other.right == guard.right; });
  if (!known) guards_.push_back(std::move(guard));
  return yes;
}

}  // namespace hir::codegen
