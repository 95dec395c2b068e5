// The arguments of a kernel: which tensor is read where, and what symbols and scalars are called in its code.
// Private to csrc/codegen/gpu.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Arguments {
 public:
  explicit Arguments(const LoopNest& nest);  // Which outlives this.

  // The first lines of a function: symbols of its index type, and scalars.
  void Declare(Scopes& code) const;

  // Which tensor a load of `value` reads, an index into LoopNest::tensors; -1: none, it is an accumulator's.
  int TensorOf(const ir::Value* value) const;
  const Tensor& tensor(int at) const { return nest_.tensors[static_cast<size_t>(at)]; }
  const std::string& SymbolOf(std::string_view symbol) const { return symbols_.at(symbol); }
  const std::string& ScalarOf(const ir::Value* value) const { return scalars_.at(value); }
  // Where its elements lie in code: the argument, or what a schedule says, as long as it says it (empty: no more).
  std::string AddressOf(int tensor) const {
    const auto known = addresses_.find(tensor);
    return known == addresses_.end() ? base::Cat("a.t", tensor) : known->second;
  }
  void SetAddress(int tensor, std::string address) {
    if (address.empty()) {
      addresses_.erase(tensor);
    } else {
      addresses_[tensor] = std::move(address);
    }
  }
  // An expression of symbols alone, in 64 bits, for conditions.
  std::string SymbolText(const ir::Expr* expr) const;

 private:
  const LoopNest& nest_;
  std::unordered_map<const ir::Value*, int> tensors_;
  std::unordered_map<int, std::string> addresses_;  // Other than arguments.
  std::unordered_map<std::string_view, std::string> symbols_;
  std::unordered_map<const ir::Value*, std::string> scalars_;
};

}  // namespace hir::codegen::gpu
