// The arithmetic of elements as C++ expressions. Private to csrc/codegen/gpu.
//
// Types in code: bool, int, i64, double, and float for f32 and for the 16-bit floats, whose values it holds exactly.
#pragma once

#include <span>
#include <string>

#include "csrc/base/dtype.h"
#include "csrc/fusion/element.h"

namespace hir::codegen::gpu {

std::string_view TypeText(DType dtype);    // In registers: "float"
std::string_view MemoryText(DType dtype);  // In memory: "u16"
std::string_view Suffix(DType dtype);      // "bf16": ld_bf16, put_bf16

std::string FloatText(DType dtype, double value);
std::string IntText(DType dtype, int64_t value);

// `prim` of `args`, all of `dtype` but a select's condition. `fast`: transcendental functions may have the accuracy of
// 16-bit floats.
std::string PrimText(fusion::Prim prim, DType dtype, std::span<const std::string> args, bool fast);
std::string ConvertText(DType from, DType to, const std::string& x);

std::string NeutralText(fusion::ReduceKind kind, DType dtype);

}  // namespace hir::codegen::gpu
