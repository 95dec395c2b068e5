// Pointwise outputs: one region for the outputs of one iteration domain, every op inlined down to the group's
// inputs.
//
// Bytes moved: each output once, and for each region the inputs it reads once (broadcast ones stay in cache).
// Outputs of one
// domain share their loads; regions of different domains do not, which costs an input read twice at most as
// often as there
// are domains, instead of an intermediate written and read.
#include <algorithm>

#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using fusion::Element;

struct Domain {
  std::vector<int> variables;             // One per axis that varies, in the first output's order.
  std::vector<const ir::Expr*> extents;   // Of those.
  std::unordered_map<int, int> of_class;  // Variable of each class.
  std::vector<const ir::Value*> outputs;
};

struct VaryingAxes {
  std::vector<int> classes;
  std::vector<const ir::Expr*> extents;
};

VaryingAxes VaryingOf(const NestBuilder& builder, const ir::Value* value) {
  VaryingAxes varying;
  const std::span<const int> classes = builder.classes().Of(value);
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (classes[i] < 0) continue;
    varying.classes.push_back(classes[i]);
    varying.extents.push_back(axes[i].extent);
  }
  return varying;
}

bool HasRepeat(std::vector<int> classes) {
  std::ranges::sort(classes);
  return std::ranges::adjacent_find(classes) != classes.end();
}

// Same classes in any order, or else the same extents in the same order: unrelated tensors of one shape.
bool Fits(const Domain& domain, const VaryingAxes& varying) {
  if (varying.classes.size() != domain.variables.size()) return false;
  if (!HasRepeat(varying.classes) &&
      std::ranges::all_of(varying.classes, [&](int c) { return domain.of_class.contains(c); })) {
    return true;
  }
  return std::ranges::equal(varying.extents, domain.extents, [](auto* a, auto* b) { return ir::Equal(a, b); });
}

std::vector<const Element*> IndexIn(NestBuilder& builder, const Domain& domain, const ir::Value* value) {
  const VaryingAxes varying = VaryingOf(builder, value);
  const bool by_class = !HasRepeat(varying.classes) &&
                        std::ranges::all_of(varying.classes, [&](int c) { return domain.of_class.contains(c); });
  std::vector<const Element*> index;
  size_t next = 0;
  for (const int axis : builder.classes().Of(value)) {
    if (axis < 0) {
      index.push_back(builder.nest().elements.Int(DType::kInt64, 0));
    } else {
      index.push_back(builder.nest().elements.Index(by_class ? domain.of_class.at(axis) : domain.variables[next]));
      ++next;
    }
  }
  return index;
}

}  // namespace

void AddPointwiseRegions(NestBuilder& builder, const std::vector<const ir::Value*>& outputs) {
  std::vector<Domain> domains;
  for (const ir::Value* output : outputs) {
    const VaryingAxes varying = VaryingOf(builder, output);
    auto found = std::ranges::find_if(domains, [&](const Domain& d) { return Fits(d, varying); });
    if (found == domains.end()) {
      Domain domain;
      domain.extents = varying.extents;
      for (const int axis : varying.classes) {
        domain.variables.push_back(builder.NewVariable());
        if (!HasRepeat(varying.classes)) domain.of_class[axis] = domain.variables.back();
      }
      found = domains.insert(domains.end(), std::move(domain));
    }
    found->outputs.push_back(output);
  }
  ir::ExprPool& pool = builder.nest().exprs;
  for (const Domain& domain : domains) {
    builder.StartRegion();
    Region region;
    for (size_t i = 0; i < domain.variables.size(); ++i) {
      region.grid.push_back({domain.variables[i], pool.Const(0), pool.Import(domain.extents[i])});
    }
    Phase& phase = region.phases.emplace_back();
    for (const ir::Value* output : domain.outputs) {
      const std::vector<const Element*> index = IndexIn(builder, domain, output);
      phase.stores.push_back({builder.AddTensor(Tensor::Role::kOutput, output), index, builder.Inline(output, index)});
    }
    for (Region& piece : InPieces(builder, std::move(region))) AddRegion(builder, std::move(piece));
  }
}

}  // namespace hir::codegen
