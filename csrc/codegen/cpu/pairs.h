// Vectors of bfloat16 without shuffles. A register of memory is lanes of 32 bits that hold two elements each: one shift
// widens the even elements, one mask the odd ones, and a vector of float32 is the even ones and then the odd ones.
// All vectors of a loop are in that order, so arithmetic does not see it; what is not bfloat16 is shuffled when it is
// loaded or stored, and sums that are carried from row to row when they are complete. (Widened and narrowed in memory's
// order, 32 elements cost ten instructions of one port; so they cost four.)
#pragma once

#include <string>

#include "csrc/codegen/cpu/ir_writer.h"

namespace hir::codegen::cpu {

// The numbers in memory's order, i64, of the lanes of a vector in pairs.
V PairedIota(int lanes);
V EmitInMemoryOrder(Writer& writer, std::string& code, const V& value);
V EmitInPairs(Writer& writer, std::string& code, const V& value);
// float32 in pairs of two elements of bfloat16 a lane of `both`.
V EmitPairsWidened(Writer& writer, std::string& code, const V& both);
// Two elements a lane of bfloat16 in pairs, which lies in the upper 16 of the 32 bits of each lane of `bits`.
V EmitPairsNarrowed(Writer& writer, std::string& code, const V& bits);

}  // namespace hir::codegen::cpu
