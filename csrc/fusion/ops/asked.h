// Ops of which an element asks all elements along an axis, as tensors with one more axis. Private to csrc/fusion.
#pragma once

#include <string_view>
#include <vector>

#include "csrc/fusion/ops/reduced.h"

namespace hir::fusion {

// Whether the elements that all elements of a tensor of `axes` ask along `axis` can be counted, in blocks too.
Status CheckAsked(ir::Graph& graph, const std::vector<ir::Axis>& axes, size_t axis);

// Places along `axis`, of the element that asks and of those asked, in a tensor where the asked axis comes behind it.
struct AskedPlaces {
  ir::Value* own = nullptr;
  ir::Value* asked = nullptr;
};
AskedPlaces PlacesAlong(ir::Builder& builder, const std::vector<ir::Axis>& axes, size_t axis, std::string_view name);

// x with a new axis of extent 1 at `at`.
ir::Value* WithAxis(ir::Builder& builder, ir::Value* x, size_t at);

}  // namespace hir::fusion
