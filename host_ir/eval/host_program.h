// HostProgram: a host program that was loaded: parsed, verified, complete. Immutable; shared by
// evaluators and threads.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::host {

class HostProgram {
 public:
  // Errors: those of the parser and of VerifyComplete.
  static Result<std::unique_ptr<HostProgram>> Load(std::string_view text);
  static Result<std::unique_ptr<HostProgram>> Load(std::unique_ptr<ir::Graph> graph);
  // Checks nothing: for tests that show what goes wrong in a program that Load refuses.
  static std::unique_ptr<HostProgram> LoadUnchecked(std::unique_ptr<ir::Graph> graph);

  const ir::Graph& graph() const { return *graph_; }
  // The extents whose values a binding gives, in order of appearance. The rank's symbols and loop
  // indices are not here.
  const std::vector<std::string_view>& symbols() const { return symbols_; }
  // The parameters that the program returns, by index; a parameter may come several times.
  const std::vector<int>& outputs() const { return outputs_; }

 private:
  explicit HostProgram(std::unique_ptr<ir::Graph> graph);

  std::unique_ptr<ir::Graph> graph_;
  std::vector<std::string_view> symbols_;
  std::vector<int> outputs_;
};

}  // namespace hir::host
