// Calls of libraries as plans describe them, in the words of csrc/codegen/library.
#pragma once

#include "csrc/base/status.h"
#include "csrc/codegen/library/library.h"
#include "host_ir/eval/library.h"

namespace hir::rank {

codegen::library::Tensor ToLibrary(const host::LibraryTensor& tensor);
codegen::library::IndexSumDesc ToLibrary(const host::IndexSumDesc& desc);
codegen::library::GroupedProductDesc ToLibrary(const host::GroupedProductDesc& desc);
// Errors: kUnimplemented for an epilogue of another name.
Result<codegen::library::ProductDesc> ToLibrary(const host::ProductDesc& desc);
// Errors: kInvalidArgument for a result of another name.
Result<codegen::library::AttentionDesc> ToLibrary(const host::AttentionDesc& desc);

}  // namespace hir::rank
