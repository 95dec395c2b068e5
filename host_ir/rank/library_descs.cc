#include "host_ir/rank/library_descs.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"

namespace hir::rank {

namespace library = codegen::library;

library::Tensor ToLibrary(const host::LibraryTensor& tensor) { return {tensor.dtype, tensor.shape, tensor.strides}; }

library::IndexSumDesc ToLibrary(const host::IndexSumDesc& desc) {
  return {ToLibrary(desc.updates), ToLibrary(desc.indices), ToLibrary(desc.output), desc.axis};
}

library::GroupedProductDesc ToLibrary(const host::GroupedProductDesc& desc) {
  return {desc.outer, ToLibrary(desc.a), ToLibrary(desc.b), ToLibrary(desc.ends), ToLibrary(desc.output), desc.first};
}

Result<library::ProductDesc> ToLibrary(const host::ProductDesc& desc) {
  const std::optional<library::Epilogue> epilogue = library::EpilogueNamed(desc.epilogue);
  if (!epilogue) return Unimplemented(base::Cat(desc.op, " with the epilogue ", desc.epilogue));
  library::ProductDesc wanted = {
      .op = desc.op, .output = ToLibrary(desc.output), .epilogue = *epilogue, .tf32 = desc.tf32};
  for (const host::LibraryTensor& input : desc.inputs) wanted.inputs.push_back(ToLibrary(input));
  return wanted;
}

Result<library::AttentionDesc> ToLibrary(const host::AttentionDesc& desc) {
  using Result = library::AttentionDesc::Result;
  static constexpr std::pair<std::string_view, Result> kResults[] = {
      {"values", Result::kValues}, {"lse", Result::kLse}, {"q", Result::kQ}, {"k", Result::kK}, {"v", Result::kV}};
  library::AttentionDesc wanted = {.backward = desc.inputs.size() >= 6,
                                   .has_mask = desc.inputs.size() == 4 || desc.inputs.size() == 7,
                                   .causal = desc.causal,
                                   .diagonal = desc.diagonal,
                                   .scale = desc.scale};
  for (const host::LibraryTensor& input : desc.inputs) wanted.inputs.push_back(ToLibrary(input));
  for (size_t i = 0; i < desc.results.size(); ++i) {
    const auto* const result = std::ranges::find(kResults, desc.results[i], [](const auto& r) { return r.first; });
    if (result == std::end(kResults)) return InvalidArgument(base::Cat("attention has no result ", desc.results[i]));
    wanted.outputs.push_back({result->second, ToLibrary(desc.outputs[i])});
  }
  return wanted;
}

}  // namespace hir::rank
