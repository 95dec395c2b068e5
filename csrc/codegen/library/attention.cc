// Attention in one form: types and shapes checked, leading axes broadcast.
#include "csrc/codegen/library/attention.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

DType ComputeTypeOf(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

// An axis of `tensor`, counted from the end; one that it has not is an axis of extent 1.
int64_t ExtentOf(const Tensor& tensor, size_t from_end) {
  return from_end > tensor.shape.size() ? 1 : tensor.shape[tensor.shape.size() - from_end];
}
int64_t StrideFromEnd(const Tensor& tensor, size_t from_end) {
  return ExtentOf(tensor, from_end) == 1 ? 0 : tensor.strides[tensor.strides.size() - from_end];
}

// A tensor, how many axes it has behind the leading ones, and where its form goes.
struct Part {
  std::string_view name;
  const Tensor* tensor;
  size_t own;
  Attention::Matrix* to;
  std::vector<int64_t> shape = {};  // Its own axes.
};

Status CheckType(std::string_view name, DType got, DType want) {
  if (got == want) return {};
  return Unimplemented(Cat("attention: ", name, " is ", DTypeName(got), ", not ", DTypeName(want)));
}

// Leading axes of the result, counted from the end: each is 1, or what the others have.
Status Broadcast(const Part& part, std::vector<int64_t>& extents) {
  for (size_t axis = 1; part.own + axis <= part.tensor->shape.size(); ++axis) {
    const int64_t extent = ExtentOf(*part.tensor, part.own + axis);
    if (extents.size() < axis) extents.push_back(1);
    if (extent == 1 || extent == extents[axis - 1]) continue;
    if (extents[axis - 1] != 1) {
      return InvalidArgument(
          Cat("attention: a leading axis of ", part.name, " has extent ", extent, ", not ", extents[axis - 1]));
    }
    extents[axis - 1] = extent;
  }
  return {};
}

Status CheckOwnAxes(const Part& part, bool broadcasts) {
  if (part.tensor->shape.size() < part.own && !broadcasts)
    return InvalidArgument(Cat("attention: ", part.name, " has fewer axes than ", part.own));
  for (size_t axis = 1; axis <= part.own; ++axis) {
    const int64_t got = ExtentOf(*part.tensor, axis), want = part.shape[part.own - axis];
    if (got != want && !(broadcasts && got == 1))
      return InvalidArgument(Cat("attention: axis -", axis, " of ", part.name, " has extent ", got, ", not ", want));
  }
  return {};
}

// Extents of 1 are left out of `batches`, and of every matrix.
void SetStrides(const Part& part, const std::vector<int64_t>& extents) {
  part.to->dtype = part.tensor->dtype;
  part.to->row = StrideFromEnd(*part.tensor, part.own);
  part.to->column = part.own == 1 ? 0 : StrideFromEnd(*part.tensor, 1);
  for (size_t axis = extents.size(); axis > 0; --axis) {
    if (extents[axis - 1] != 1) part.to->batch.push_back(StrideFromEnd(*part.tensor, part.own + axis));
  }
}

// An output's name, its own axes, and its form.
Result<Part> PartOf(const AttentionDesc::Output& output, int place, Attention& a) {
  using enum AttentionDesc::Result;
  const auto part = [&](std::string_view name, Attention::Output& to, std::vector<int64_t> shape,
                        bool backward) -> hir::Result<Part> {
    if (backward != a.backward)
      return InvalidArgument(Cat("attention: ", name, " of ", a.backward ? "gradients" : "values"));
    if (to) return InvalidArgument(Cat("attention: ", name, " twice"));
    to.place = place;
    return Part{name, &output.tensor, shape.size(), &to.matrix, std::move(shape)};
  };
  switch (output.what) {
    case kValues: return part("the result", a.values, {a.m, a.e}, false);
    case kLse: return part("the result's lse", a.of_lse, {a.m}, false);
    case kQ: return part("the gradient of q", a.of_q, {a.m, a.d}, true);
    case kK: return part("the gradient of k", a.of_k, {a.n, a.d}, true);
    case kV: return part("the gradient of v", a.of_v, {a.n, a.e}, true);
  }
  return InvalidArgument("attention: an unknown output");
}

}  // namespace

Result<Attention> Normalize(const AttentionDesc& desc) {
  if (desc.inputs.size() != (desc.backward ? 6U : 3U) + (desc.has_mask ? 1U : 0U))
    return InvalidArgument(Cat("attention: ", desc.inputs.size(), " inputs"));
  if (desc.outputs.empty()) return InvalidArgument("attention: no outputs");
  const Tensor &q = desc.inputs[0], &k = desc.inputs[1], &v = desc.inputs[2];
  if (!IsFloat(q.dtype)) return Unimplemented(Cat("attention of ", DTypeName(q.dtype)));
  Attention a;
  a.dtype = q.dtype;
  a.backward = desc.backward;
  a.has_mask = desc.has_mask;
  a.scale = desc.scale;
  a.m = ExtentOf(q, 2);
  a.n = ExtentOf(k, 2);
  a.d = ExtentOf(q, 1);
  a.e = ExtentOf(v, 1);
  // Numbers of any size, with which sums do not overflow.
  a.diagonal = desc.causal ? std::clamp(desc.diagonal, -a.m, a.n) : a.n;
  std::vector<Part> parts = {
      {"q", &q, 2, &a.q, {a.m, a.d}}, {"k", &k, 2, &a.k, {a.n, a.d}}, {"v", &v, 2, &a.v, {a.n, a.e}}};
  if (desc.backward) {
    parts.push_back({"the gradient", &desc.inputs[3], 2, &a.gradient, {a.m, a.e}});
    parts.push_back({"lse", &desc.inputs[4], 1, &a.lse, {a.m}});
    parts.push_back({"the values", &desc.inputs[5], 2, &a.saved, {a.m, a.e}});
  }
  for (const Part& part : parts) {
    HIR_TRY(CheckType(part.name, part.tensor->dtype, part.own == 2 ? a.dtype : ComputeTypeOf(a.dtype)));
    HIR_TRY(CheckOwnAxes(part, /*broadcasts=*/false));
  }
  if (desc.has_mask) {
    parts.push_back({"the mask", &desc.inputs.back(), 2, &a.mask, {a.m, a.n}});
    const DType dtype = desc.inputs.back().dtype;
    if (dtype != DType::kBool && !IsFloat(dtype))
      return Unimplemented(Cat("attention with a mask of ", DTypeName(dtype)));
    HIR_TRY(CheckOwnAxes(parts.back(), /*broadcasts=*/true));
  }
  std::vector<int64_t> extents;
  for (const Part& part : parts) HIR_TRY(Broadcast(part, extents));
  for (const Part& part : parts) SetStrides(part, extents);
  for (size_t axis = extents.size(); axis > 0; --axis) {
    if (extents[axis - 1] != 1) a.batches.push_back(extents[axis - 1]);
  }
  for (size_t place = 0; place < desc.outputs.size(); ++place) {
    HIR_ASSIGN(const Part part, PartOf(desc.outputs[place], static_cast<int>(place), a));
    HIR_TRY(CheckType(part.name, part.tensor->dtype, part.own == 2 ? a.dtype : ComputeTypeOf(a.dtype)));
    HIR_TRY(CheckOwnAxes(part, /*broadcasts=*/false));
    const std::vector<int64_t>& shape = part.tensor->shape;
    if (!std::equal(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(part.own), extents.rbegin(),
                    extents.rend()))
      return InvalidArgument(Cat("attention: ", part.name, " has not the leading axes that the inputs have"));
    SetStrides(part, extents);
  }
  return a;
}

}  // namespace hir::codegen::library
