// The variable along which vectors lie, and how long they are. Private to csrc/codegen/gpu.
#pragma once

#include "csrc/ir/expr.h"

namespace hir::codegen::gpu {

class Vector {
 public:
  // Whoever defines `variable` gives it the first lane's value, a multiple of `lanes`, less the skew.
  void Set(int variable, int lanes) {
    variable_ = variable;
    lanes_ = lanes;
  }
  void Clear() { Set(-1, 1); }
  int variable() const { return variable_; }  // -1: none.
  int lanes() const { return lanes_; }        // Elements of a vector.
  bool HasLanes() const { return lanes_ > 1 && variable_ >= 0; }

  // Whoever writes the loops takes care of what vectors leave: they need not divide it.
  void SetRagged(bool is_ragged) { is_ragged_ = is_ragged; }
  bool is_ragged() const { return is_ragged_; }

  // Rows begin at this offset, whatever vectors want: those begin where it and the variable make a multiple. Null: 0.
  void SetSkew(const ir::Expr* skew) { skew_ = skew; }
  const ir::Expr* skew() const { return skew_; }

 private:
  int variable_ = -1;
  int lanes_ = 1;
  bool is_ragged_ = false;
  const ir::Expr* skew_ = nullptr;
};

}  // namespace hir::codegen::gpu
