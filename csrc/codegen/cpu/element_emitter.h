// Writes the elements of one loop nest as LLVM IR: expressions, elements, loads, each computed once, as far out as it
// can be, and in vectors along one variable. The schedules (vector_loop, sums, ...) write the loops around it. Private
// to csrc/codegen/cpu.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/dependences.h"
#include "csrc/codegen/cpu/ir_writer.h"
#include "csrc/codegen/cpu/payloads.h"
#include "csrc/codegen/cpu/scopes.h"
#include "csrc/codegen/cpu/target.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::cpu {

// Elements in arrays of the function's own, which are read there instead of being computed, or read, where the program
// has them.
class KeptElements {
 public:
  struct Place {
    DType dtype;
    std::string array;
    const ir::Expr* offset = nullptr;
  };
  virtual ~KeptElements() = default;
  // The place of `element`, if an earlier phase has computed it.
  virtual std::optional<Place> SavedAt(const fusion::Element* element) = 0;
  // The place of the element that `load`, of a tensor, reads, if that is in a tile that was transposed.
  virtual std::optional<Place> TransposedAt(const fusion::Element* load) = 0;
};

// Where elements that vary along the vector variable are computed now.
struct Lanes {
  int variable = -1;  // -1: nowhere.
  int count = 1;
  V first;  // The value of the variable in lane 0.
  bool masked = false;
  V mask;               // Lanes that exist, when masked.
  bool paired = false;  // See pairs.h; never masked.
};

// An accumulator's result.
struct AccumulatorResult {
  DType dtype;
  V scalar;           // Without columns.
  std::string array;  // With columns: of elements of the accumulator's type, from the first column on.
};

class ElementEmitter {
 public:
  using Element = fusion::Element;

  ElementEmitter(const LoopNest& nest, const Target& target, KeptElements& kept);

  // The instructions that load the kernel's arguments, in front of all other code.
  std::string EmitArguments();
  // Errors: kUnimplemented where it has too many loops.
  Status StartRegion(const Region& region);

  const LoopNest& nest() const { return nest_; }
  const Target& target() const { return target_; }
  const Region& region() const { return *region_; }  // Being written.
  ir::ExprPool& pool() { return pool_; }
  IndexMath& math() { return math_; }
  Writer& writer() { return writer_; }
  Scopes& scopes() { return scopes_; }
  Dependences& dependences() { return dependences_; }

  const Lanes& lanes() const { return lanes_; }
  void SetLanes(Lanes lanes) { lanes_ = std::move(lanes); }
  // The tensor that `element` loads from; -1 where it is something else, or loads an accumulator's result.
  int SlotOf(const Element* element) const;
  const Tensor& TensorAt(int slot) const { return nest_.tensors[static_cast<size_t>(slot)]; }
  void SetResult(const ir::Value* value, AccumulatorResult result);

  V EmitExpr(const ir::Expr* expr);       // i64; of lane 0 where it varies.
  V EmitExprLanes(const ir::Expr* expr);  // Of every lane.
  // expr = base + stride * the vector variable; nothing where data that varies is in it.
  std::optional<IndexMath::Affine> SplitLanes(const ir::Expr* expr);
  // One lane where it does not vary.
  V EmitElement(const Element* element, int guard = 0);
  // Whether an earlier phase has computed it.
  bool IsSaved(const Element* element) const { return kept_.SavedAt(element).has_value(); }
  bool HasShortPayload(const Element* element) { return payloads_.IsShort(element); }

  const ir::Expr* OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard = 0);
  // Null where data is in it.
  const ir::Expr* PlainOffsetOf(const Element* load, const Tensor& tensor);
  // The element of `dtype` at `offset` of `base`, or those of all lanes.
  V LoadFrom(const std::string& base, DType dtype, const ir::Expr* offset, int guard, size_t level);
  // "<16 x i1> %m": the lanes that exist and that `guard` allows; empty for all.
  std::string MaskFor(int guard = 0);

 private:
  // expressions.cc
  bool Varies(uint64_t variables) const {
    return lanes_.variable >= 0 && lanes_.count > 1 && (variables & scopes_.BitOf(lanes_.variable)) != 0;
  }
  V EmitExprNode(std::string& code, const ir::Expr& expr, const std::vector<V>& args);
  bool HasVaryingData(const ir::Expr* expr);

  // element_emitter.cc
  V EmitGuard(int guard);  // REQUIRES: guard != 0.
  V EmitUncached(const Element* element, int guard, size_t level);
  V EmitConverted(const Element* element, int guard, size_t level);
  std::optional<V> EmitRounded(const Element* element, int guard, size_t level);
  // `side` emits one side under a guard.
  V EmitSelect(const Element* element, int guard, size_t level, const std::function<V(const Element*, int)>& side);
  V EmitNarrow(const Element* element, DType dtype, int guard);

  // loads.cc
  V EmitLoad(const Element* load, int guard, size_t level);
  KeptElements::Place InMemory(const Element* load, int guard);
  std::optional<V> EmitWidenedPairs(const Element* convert, int guard);
  V EmitMaskedLoad(const std::string& base, Ty type, const V& address, const std::string& mask);
  V EmitGather(const std::string& base, Ty type, const V& addresses, const std::string& mask);

  const LoopNest& nest_;
  const Target& target_;
  KeptElements& kept_;
  ir::ExprPool pool_;
  IndexMath math_;
  Writer writer_;
  Scopes scopes_;
  Dependences dependences_;
  Payloads payloads_;
  const Region* region_ = nullptr;
  std::unordered_map<std::string_view, V> symbols_;
  std::unordered_map<const ir::Value*, V> scalars_;
  std::unordered_map<const ir::Value*, int> slots_;
  std::unordered_map<const ir::Value*, AccumulatorResult> results_;
  Lanes lanes_;
  std::string zero_;  // Eight bytes of zero, for loads that a guard forbids.
  V never_;           // False, as nobody but the core knows. Only without masks of the core's own.
};

// The text behind a load from, or a store to, `base`: that outputs and workspaces overlap nothing else.
std::string ScopeOf(std::string_view base);

}  // namespace hir::codegen::cpu
