// The programs of this folder: their texts, the sizes that they are run with, inputs, and how far results may be off.
#pragma once

#include <cstdint>
#include <memory>
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
  int64_t num_devices = 1;  // That its meshes name.
};

// Without ".hir", in order.
std::vector<std::string> CorpusNames();

// The text of a file of the folder. Errors: kNotFound.
Result<std::string> ReadCorpusFile(const std::string& file);
// Errors: the same; those of the parser.
Result<CorpusProgram> ReadCorpus(const std::string& name);

// Floats in [-1, 1); integers, which name classes and positions, below 16.
std::vector<fusion::HostTensor> DrawInputs(const CorpusProgram& program, uint64_t seed);

// The Euclidean norm.
double NormOf(const fusion::HostTensor& tensor);
// The norm of got - want, NaN where the types differ or `got` has a NaN that `want` has not.
double DistanceOf(const fusion::HostTensor& got, const fusion::HostTensor& want);
// How large that may be beside the norm of what is wanted.
double ToleranceOf(DType dtype);

}  // namespace hir::testing
