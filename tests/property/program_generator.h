// Random fusion programs with inputs, the same on every machine for the same seed; what compiled kernels, sharded
// programs and passes are tested with, against the interpreter.
//
// Every value is well conditioned: the generator follows a bound on its magnitude and on how far two correct
// evaluations may be apart, brings operands into the domain of the next op, and applies ops that jump (comparisons,
// roundings, remainders, float to int) to exact values only. So a difference above an output's tolerance is a fault.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "csrc/fusion/interpret/bind.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "csrc/ir/graph.h"

namespace hir::testing {

struct GeneratorOptions {
  int num_ops_min = 3;
  int num_ops_max = 16;
  int64_t elements_max = 4096;  // Of one tensor.
  bool zero_extents = true;
  // Not empty: a mesh of this shape over devices 0, 1, ..., on which a random part of the values is sharded, along axes
  // whose extent the mesh divides. Extents are then multiples of its size more often.
  std::vector<int64_t> mesh_shape = {};
  // Axes of any extent are sharded: one over, smaller than the mesh, none; several mesh dimensions may split one axis.
  bool uneven = false;
};

struct GeneratedProgram {
  uint64_t seed = 0;
  std::unique_ptr<ir::Graph> graph;
  fusion::SymbolValues sizes;              // What the inputs' shapes say of the symbols.
  std::vector<fusion::HostTensor> inputs;  // One per parameter, broadcast axes written out.
  std::vector<double> tolerances;          // One per output: the largest right difference; 0: equal.

  std::string Describe() const;  // Seed, sizes and text, for a failure's message.
};

// Aborts when the builder refuses what is generated: a fault of the generator or of the ops.
GeneratedProgram Generate(uint64_t seed, const GeneratorOptions& options = {});

// The names of the ops that occur in `graph`, and of the dtypes of its values.
std::set<std::string> OpsOf(const ir::Graph& graph);
std::set<std::string> DTypesOf(const ir::Graph& graph);

// How often a program has what planning once got wrong: a feature's name, and how many ops or outputs have it.
std::map<std::string, int64_t> FeaturesOf(const ir::Graph& graph);

// Where `got` and `want` differ by more than `tolerance` (NaN equals NaN), or "" when nowhere.
std::string Difference(const fusion::HostTensor& got, const fusion::HostTensor& want, double tolerance);

}  // namespace hir::testing
