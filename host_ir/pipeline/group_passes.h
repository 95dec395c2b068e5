// Passes that decide which ops of a local program run together: between stream loops and lowering.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/target.h"
#include "host_ir/lower/segmentation.h"
#include "host_ir/lower/stream_loops.h"

namespace hir::host {

struct GroupOptions {
  codegen::Target target = {};
  codegen::Sizes sizes = {};  // Where they are known: they count bytes, and choose.
  Segmentation segmentation = {};
  std::string_view without = {};  // Names, with commas between: passes that do not run.
};

// One row of group_passes.def. Edits the groups and ops of one graph; those of its loops have runs of their own.
struct GroupPass {
  enum class Need : uint8_t { kRequired, kOptional };
  std::string_view name = {};
  Status (*run)(Segmented& program, const GroupOptions& options) = nullptr;
  Need need = Need::kRequired;
  std::string_view doc = {};
};

extern const std::span<const GroupPass> kGroupPasses;

// Library calls first, then forwarding, so that no boundary carries what is cheap to make again. A view that is
// returned is no reason to compute a value again, so views go before rematerialization; behind it groups read and write
// others.
inline constexpr std::string_view kCutIntoGroups =
    "fit_products,sink_reshapes,forward,copy_scalars,segment,take_out_views,rematerialize,merge_copies,take_out_views,"
    "order_for_overlap";

// Runs `names` on `program`, then on the bodies of its loops. Where the segmentation saves no bytes, and for names in
// `without`, the optional ones are left out. HOSTIR_DUMP=groups prints the groups behind each pass.
// Errors: kInvalidArgument for an unknown name, with the nearest; what a pass returns.
Status RunGroupPasses(Segmented& program, std::string_view names, const GroupOptions& options);

// The passes that PlanOptions::without may name: those of kOptional here, and fusion passes that nothing needs.
std::vector<std::string_view> OptionalPasses();

}  // namespace hir::host
