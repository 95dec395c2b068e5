// Vector forms of functions of float32, as instructions: at most 2 ulp from the true value where float32 is normal
// (tests/csrc/codegen/cpu/math_test.cc), with the C library's values at 0, infinities and NaN.
#pragma once

#include "csrc/codegen/cpu/ir_writer.h"

namespace hir::codegen::cpu {

V EmitExp(Writer& writer, std::string& code, const V& x);
V EmitExp2(Writer& writer, std::string& code, const V& x);
V EmitExpm1(Writer& writer, std::string& code, const V& x);
V EmitLog(Writer& writer, std::string& code, const V& x);
V EmitLog1p(Writer& writer, std::string& code, const V& x);
V EmitLog2(Writer& writer, std::string& code, const V& x);
V EmitTanh(Writer& writer, std::string& code, const V& x);
V EmitErf(Writer& writer, std::string& code, const V& x);
// Functions of the module, beside its declarations: a lane beyond 2^20 is the C library's.
V EmitSin(Writer& writer, std::string& code, const V& x);
V EmitCos(Writer& writer, std::string& code, const V& x);

}  // namespace hir::codegen::cpu
