// The arithmetic of elements: a prim, a conversion, a step of a reduction, as instructions.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/cpu/ir_writer.h"
#include "csrc/fusion/element.h"

namespace hir::codegen::cpu {

V EmitPrim(Writer& writer, std::string& code, fusion::Prim prim, DType dtype, const std::vector<V>& args);
V EmitConvert(Writer& writer, std::string& code, DType from, DType to, const V& x);
// float32 to bfloat16 where no NaN has bits below those of bfloat16.
V EmitRoundToBFloat16(Writer& writer, std::string& code, const V& x);
// The same in the upper 16 of 32 bits; those below are anything. `is_plain`: no NaN has bits there.
V EmitBFloat16Bits(Writer& writer, std::string& code, const V& x, bool is_plain);
V EmitCombine(Writer& writer, std::string& code, fusion::ReduceKind kind, DType dtype, const V& a, const V& b);
V NeutralOf(fusion::ReduceKind kind, DType dtype, int lanes);

}  // namespace hir::codegen::cpu
