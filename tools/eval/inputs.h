// Inputs: what a run brings: the elements of a program's inputs and the sizes that follow from their shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"
#include "tools/arrays/npy.h"
#include "tools/arrays/part.h"
#include "tools/eval/options.h"

namespace hir::eval {

// Values of a program's sizes: {"i0", 8}.
using Sizes = std::map<std::string, int64_t, std::less<>>;

// The value of `expr` with these sizes. Errors: kInvalidArgument naming a size that has no value.
Result<int64_t> ValueOf(const ir::Expr* expr, const Sizes& sizes);
// The extents that consumers of a tensor see.
Result<std::vector<int64_t>> ShapeOf(const ir::Type& tensor, const Sizes& sizes);

// An input as the program declares it.
struct InputType {
  std::string name;
  const ir::Type* type = nullptr;
};

// From files, or made up. Immutable, movable.
class Inputs {
 public:
  // Opens the files of `types`. Errors: kNotFound and kInvalidArgument of NpyFile::Open; kInvalidArgument for a wrong
  // element type or number of axes, naming the input.
  static Result<Inputs> Open(std::span<const InputType> types, const Options& options);

  // What the shapes say about the sizes of `types`. Errors: kInvalidArgument for an extent that does not fit, or a size
  // that nothing gives, naming input, axis and both sides.
  Result<Sizes> BindSizes(std::span<const InputType> types) const;

  // The extents of the array of input `index`; 1 where it has one element for an axis that is stored once.
  std::vector<int64_t> ArrayShape(size_t index, const std::vector<int64_t>& shape) const;
  // The bytes of `part` of input `index`: in the file where they lie there as they are, else put into `staging`.
  std::span<const std::byte> Bytes(size_t index, DType dtype, const arrays::Part& part,
                                   std::vector<std::byte>& staging) const;
  // The bits of a host scalar: of the f64, or the int64.
  int64_t ScalarBits(size_t index, DType dtype) const;

 private:
  Inputs(std::optional<int64_t> seed, std::map<std::string, int64_t> sizes)
      : seed_(seed), given_(sizes.begin(), sizes.end()) {}

  std::vector<arrays::NpyFile> files_;  // One an input; none when they are made up.
  std::optional<int64_t> seed_;
  Sizes given_;
};

}  // namespace hir::eval
