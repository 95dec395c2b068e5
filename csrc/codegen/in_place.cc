// Which outputs may lie in the memory of an input: those of pointwise regions that read it where they write.
#include <algorithm>
#include <unordered_set>

#include "csrc/codegen/codegen.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen {
namespace {

using fusion::Element;

// All that the stores of a phase read, at each element.
class Reads {
 public:
  explicit Reads(const Phase& phase) {
    for (const Store& store : phase.stores) {
      for (const Element* index : store.index) Visit(index);
      Visit(store.value);
    }
  }
  std::vector<const Element*> Of(const ir::Value& value) const {
    std::vector<const Element*> loads;
    std::ranges::copy_if(loads_, std::back_inserter(loads), [&](const Element* load) { return load->value == &value; });
    return loads;
  }

 private:
  void Visit(const Element* element) {
    if (!seen_.insert(element).second) return;
    if (element->kind == Element::Kind::kLoad) loads_.push_back(element);
    for (const Element* arg : element->args) Visit(arg);
  }
  std::vector<const Element*> loads_;
  std::unordered_set<const Element*> seen_;  // Lookups only.
};

size_t NumberOf(const std::vector<const ir::Value*>& values, const ir::Value& value) {
  return static_cast<size_t>(std::ranges::find(values, &value) - values.begin());
}

// Each iteration stands alone: nothing is added up, kept for a later one, or read ahead of it.
bool IsPointwise(const Region& region) {
  if (region.phases.size() != 1 || !region.ahead.stores.empty()) return false;
  const Phase& phase = region.phases[0];
  return phase.accumulators.empty() && phase.carried.empty() && phase.nested.empty();
}

// Whether `load` reads where `store` writes. Along axes that are stored once there is one place.
bool IsAtStore(const Element* load, const Tensor& read, const Store& store, const Tensor& written) {
  if (load->args.size() != store.index.size()) return false;
  for (size_t axis = 0; axis < store.index.size(); ++axis) {
    if (!ir::Equal(read.strides[axis], written.strides[axis])) return false;
    if (!read.strides[axis]->IsConst(0) && load->args[axis] != store.index[axis]) return false;
  }
  return true;
}

bool MayShare(const LoopNest& nest, size_t input, size_t output) {
  const Tensor& read = nest.tensors[input];
  int stores = 0;
  for (const Region& region : nest.regions) {
    if (!IsPointwise(region)) return false;
    const Phase& phase = region.phases[0];
    const auto store =
        std::ranges::find_if(phase.stores, [&](const Store& s) { return std::cmp_equal(s.tensor, output); });
    const bool stored = store != phase.stores.end();
    stores += stored ? 1 : 0;
    for (const Element* load : Reads(phase).Of(*read.value)) {
      if (!stored || !IsAtStore(load, read, *store, nest.tensors[output])) return false;
    }
  }
  return stores == 1;
}

}  // namespace

bool AllowInPlace(KernelPlan& plan, const ir::Value& input, const ir::Value& output) {
  const auto writes = [&](const Launch& launch) { return NumberOf(launch.outputs, output) < launch.outputs.size(); };
  if (std::ranges::count_if(plan.launches, writes) != 1) return false;
  bool written = false;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    Launch& launch = plan.launches[i];
    const size_t read = NumberOf(launch.inputs, input);
    const bool reads = read < launch.inputs.size();
    if (written && reads) return false;
    if (!writes(launch)) continue;
    written = true;
    if (!reads) continue;
    const size_t made = NumberOf(launch.outputs, output);
    if (!MayShare(*plan.nests[i], read, launch.inputs.size() + made)) return false;
    launch.in_place.emplace_back(read, made);
  }
  return written;
}

}  // namespace hir::codegen
