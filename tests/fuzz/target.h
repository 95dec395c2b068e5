// A fuzz target: what a file NAME_fuzz.cc defines. libfuzzer.cc makes a libFuzzer program of it, under the preset fuzz;
// bounded.cc a test that runs the seeds and some mutations of them, under every compiler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::fuzz {

// Inputs to start from, of which each is accepted. The current folder is the repository.
std::vector<std::string> Seeds();

// `input`, which may be anything, changed a little in a way that the target's kind of input suggests.
std::string Mutated(base::Prng& prng, const std::string& input);

// One input. Returns, or ends the process by Found, HIR_CHECK or a sanitizer. One thread; whatever is dear to make is
// made once.
void RunOne(std::string_view input);

// Ends the process: `what` should not be.
[[noreturn]] void Found(std::string_view what);

}  // namespace hir::fuzz
