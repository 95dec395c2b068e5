// Conditions on the arguments, on which the code of a function relies: true of every launch it is used for.
// Private to csrc/codegen/gpu.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/vector.h"

namespace hir::codegen::gpu {

class Conditions {
 public:
  // All outlive this. `sizes`: of symbols, where known, or null: they decide which vectors there are (MayDivide).
  Conditions(ir::ExprPool& pool, const Vector& vector, const Arguments& arguments, Dependences& dependences,
             const Sizes* sizes)
      : pool_(pool), vector_(vector), arguments_(arguments), dependences_(dependences), sizes_(sizes) {}

  void Require(std::string condition);
  // Requires that tensor number `tensor` begins at a multiple of `bytes`, a power of two.
  void RequireAligned(int tensor, int64_t bytes);
  // Whether expr is a multiple of `by`, at most 8: provably, or by a condition on symbols of which the known sizes are.
  bool Divisible(const ir::Expr* expr, int64_t by);
  // The same of the first lane's place, where `base` is that of the vector variable's 0.
  bool BeginsVector(const ir::Expr* base);
  // body(), which asks what would be: conditions are not kept.
  void Probe(const std::function<void()>& body);

  const std::set<std::string>& texts() const { return texts_; }

 private:
  bool MayDivide(const ir::Expr* expr, int64_t by) const;
  bool IsMultiple(int variable, int64_t by) const;

  ir::ExprPool& pool_;
  const Vector& vector_;
  const Arguments& arguments_;
  Dependences& dependences_;
  const Sizes* const sizes_;
  std::set<std::string> texts_;
  bool is_probing_ = false;
};

}  // namespace hir::codegen::gpu
