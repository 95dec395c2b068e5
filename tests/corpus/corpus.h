// The programs of this folder and of models/: their texts, the sizes that they are run with, inputs, and how far
// results may be off.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/fusion/interpret/bind.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "csrc/ir/graph.h"

namespace hir::testing {

constexpr char kCorpus[] = "tests/corpus";  // From the root of the source tree, where tests run.

struct CorpusProgram {
  std::unique_ptr<ir::Graph> graph;
  fusion::SymbolValues sizes;
  int64_t num_devices = 1;             // That its meshes name.
  std::set<std::string> not_negative;  // Inputs, as squares are.
};

// Without folder and ".hir", in order.
std::vector<std::string> CorpusNames();

// Where a file of a program is, or is to be: beside its "NAME.hir".
std::string CorpusPath(const std::string& name, const std::string& extension);
// The text of such a file. Errors: kNotFound.
Result<std::string> ReadCorpusFile(const std::string& name, const std::string& extension);
// Errors: the same; those of the parser.
Result<CorpusProgram> ReadCorpus(const std::string& name);

// Floats in [-1, 1), or [0, 1); integers, which name classes and positions, below 16.
std::vector<fusion::HostTensor> DrawInputs(const CorpusProgram& program, uint64_t seed);

// The Euclidean norm.
double NormOf(const fusion::HostTensor& tensor);
// The norm of got - want, NaN where the types differ or `got` has a NaN that `want` has not.
double DistanceOf(const fusion::HostTensor& got, const fusion::HostTensor& want);
// How large that may be beside the norm of what is wanted.
double ToleranceOf(DType dtype);

}  // namespace hir::testing
