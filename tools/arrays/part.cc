#include "tools/arrays/part.h"

#include <algorithm>
#include <utility>

namespace hir::arrays {
namespace {

Status Walk(std::span<const PartAxis> axes, int64_t whole_offset, int64_t part_offset, int64_t bytes,
            const Part::Copy& copy) {
  if (axes.empty()) return copy(whole_offset, part_offset, bytes);
  for (int64_t i = 0; i < axes[0].extent; ++i) {
    HIR_TRY(Walk(axes.subspan(1), whole_offset + i * axes[0].whole_stride, part_offset + i * axes[0].part_stride, bytes,
                 copy));
  }
  return {};
}

}  // namespace

Part Part::Of(std::span<const int64_t> whole, const mesh::PartRange& range, const std::vector<bool>& stored_once,
              int64_t element_bytes, std::span<const int64_t> memory_order) {
  Part part = {.element_bytes = element_bytes, .axes = std::vector<PartAxis>(whole.size())};
  std::vector<int64_t> part_strides(whole.size());
  part.bytes = element_bytes;
  for (size_t place = whole.size(); place-- > 0;) {
    const size_t axis = memory_order.empty() ? place : static_cast<size_t>(memory_order[place]);
    if (stored_once[axis]) continue;
    part_strides[axis] = part.bytes;
    part.bytes *= range.block[axis];
  }
  int64_t whole_stride = element_bytes;
  for (size_t axis = whole.size(); axis-- > 0;) {
    const bool one_for_all = whole[axis] == 1;
    part.axes[axis] = {.extent = range.valid[axis].size(),
                       .whole_stride = one_for_all ? 0 : range.valid[axis].step * whole_stride,
                       .part_stride = part_strides[axis],
                       .whole_extent = whole[axis],
                       .whole_begin = one_for_all ? 0 : range.valid[axis].begin * whole_stride};
    part.whole_offset += part.axes[axis].whole_begin;
    whole_stride *= whole[axis];
  }
  return part;
}

Part Part::All(std::span<const int64_t> whole, std::span<const int64_t> shape, const std::vector<bool>& stored_once,
               int64_t element_bytes, std::span<const int64_t> memory_order) {
  const mesh::Sharding on_one = mesh::Sharding::OnDevice0(shape.size());
  return Of(whole, mesh::PartRangeOf(on_one, shape, 0), stored_once, element_bytes, memory_order);
}

Part Part::FirstOfStoredOnce() const {
  Part first = *this;
  for (PartAxis& axis : first.axes) {
    if (axis.part_stride != 0) continue;
    axis.extent = std::min<int64_t>(axis.whole_extent, 1);
    first.whole_offset -= std::exchange(axis.whole_begin, 0);
  }
  return first;
}

bool Part::IsOnePiece() const {
  int64_t pieces = 0;
  const Status walked = ForEachPiece([&](int64_t, int64_t, int64_t) -> Status {
    return ++pieces == 1 ? Status() : Status(Code::kCancelled, "the second tells");
  });
  return walked.ok() && pieces == 1;
}

Status Part::ForEachPiece(const Copy& copy) const {
  std::vector<PartAxis> outer;
  for (const PartAxis& axis : axes) {
    if (axis.extent == 0) return {};
    if (axis.extent > 1) outer.push_back(axis);
  }
  int64_t piece = element_bytes;
  while (!outer.empty() && outer.back().whole_stride == piece && outer.back().part_stride == piece) {
    piece *= outer.back().extent;
    outer.pop_back();
  }
  return Walk(outer, whole_offset, 0, piece, copy);
}

}  // namespace hir::arrays
