// A seeded mutator of programs as messages: what a client of ours would not send, but its like might.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "hostir/v1/program.pb.h"

namespace hir::fuzz {

// The programs of `texts` that parse, as messages.
std::vector<hostir::v1::Program> CorpusMessages(std::span<const std::string> texts);

// Changes fields of the program that `input` is, or what it consists of: an op's name, its operands, an op repeated on
// other operands or taken from `donors`, an annotation moved to another value, a size; then, mostly,
// types of results are left to inference, as clients leave them.
std::string MutatedProgram(base::Prng& prng, const std::string& input, std::span<const hostir::v1::Program> donors);

}  // namespace hir::fuzz
