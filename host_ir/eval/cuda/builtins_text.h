// The built-in kernels as CUDA C++. Needs no header.
#pragma once

#include <string_view>

namespace hir::host {

// What the hardware does: 16-bit floats. Tests have another one.
extern const std::string_view kBuiltinsIntrinsics;
// Everything else.
extern const std::string_view kBuiltinsText;

// The names of the three in the text, in the order of ../builtins.h.
inline constexpr const char* kBuiltinFunctions[] = {"hir_host_copy", "hir_host_binary", "hir_host_reduce"};
// Their slots: the arguments for tensors of 16 axes.
inline constexpr int kBuiltinSlots = 70;
// Threads of a CTA, and elements that one does of a copy or a binary op.
inline constexpr int kBuiltinThreads = 256;
inline constexpr int kBuiltinElements = 1024;

}  // namespace hir::host
