// What one element of an op's result is, as an expression over elements of its operands. Each fusion op is defined
// once, here; the reference interpreter evaluates the definition op by op, the code generators inline definitions into
// fused loop nests.
//
// Elements are immutable and interned by their builder: equal expressions are one pointer, so common parts are shared.
// Arena memory of the builder; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <span>
#include <unordered_map>

#include "csrc/base/dtype.h"
#include "csrc/fusion/prims.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

struct Element {
  enum class Kind : uint8_t {
    kFloat,   // constant `number`, of dtype kFloat32 or kFloat64
    kInt,     // constant `integer`, of any dtype but floats
    kIndex,   // i64: the index along axis `integer` of whatever is being defined
    kExtent,  // i64: `extent`
    kScalar,  // the host scalar `value`
    kLoad,    // the element of `value` at `args` (one index per VALUE axis); dtype is the tensor's. An index may
    // itself be data (depend on a load); whoever defines it keeps it inside the tensor
    kConvert,      // args[0] in dtype, rounded once; to bool: != 0; float to int truncates, saturates, NaN is 0
    kPrim,         // `prim` of args
    kReduce,       // `reduce` of args[0] over the variables from `integer`, extents.size() of them; of nothing: neutral
    kReduceIndex,  // i64: reduction variable `integer`
  };
  Kind kind = Kind::kInt;
  DType dtype = DType::kInt64;
  Prim prim = Prim::kAdd;
  ReduceKind reduce = ReduceKind::kSum;
  double number = 0;
  int64_t integer = 0;
  const ir::Expr* extent = nullptr;
  const ir::Value* value = nullptr;
  std::span<const Element* const> args = {};
  std::span<const ir::Expr* const> extents = {};  // kReduce: trip counts, outermost first.
  int id = 0;                                     // Dense within the builder, operands before users.
  bool has_load = false;                          // It is a load, or one is below it.
  bool has_data_index = false;                    // It is a load at an index that is data, or one is below it.
  bool of_place = false;                          // kPrim: a division made by DividePlace.
};

class ElementBuilder {
 public:
  // `load` supplies the element of a tensor at an index: MakeLoad for a tensor in memory, or the inlined definition of
  // the op that makes it.
  using LoadFn = std::function<const Element*(const ir::Value* value, std::span<const Element* const> index)>;
  ElementBuilder();
  ElementBuilder(const ElementBuilder&) = delete;
  ElementBuilder& operator=(const ElementBuilder&) = delete;
  void set_load(LoadFn load) { load_ = std::move(load); }

  const Element* Float(DType dtype, double value);
  const Element* Int(DType dtype, int64_t value);
  const Element* Index(int axis);
  const Element* Extent(const ir::Expr* extent);
  // Of a host scalar that an op makes: that op's definition, so that kScalar names parameters only.
  const Element* Scalar(const ir::Value* value);
  // Through the load function; by default MakeLoad.
  const Element* Load(const ir::Value* value, std::span<const Element* const> index);
  const Element* MakeLoad(const ir::Value* value, std::span<const Element* const> index);
  const Element* Convert(DType dtype, const Element* x);  // `x` itself when it has that dtype.
  // Folds what is constant and what index arithmetic makes trivial (x + 0, i * 1, select of a constant).
  const Element* Apply(Prim prim, std::span<const Element* const> args);
  const Element* Apply(Prim prim, std::initializer_list<const Element*> args) {
    return Apply(prim, std::span<const Element* const>(args.begin(), args.size()));
  }
  // kDiv or kRem of a place in an array by an extent: neither is negative where the result is used, so that it may be
  // computed as index arithmetic, which rounds down. What a program divides may be negative, or divided by 0.
  const Element* DividePlace(Prim prim, const Element* place, const Element* extent);
  const Element* Select(const Element* condition, const Element* yes, const Element* no);
  // Fresh reduction variables for `extents`: the first one's number.
  int NewReduceVariables(int count);
  const Element* ReduceIndex(int variable);
  const Element* Reduce(ReduceKind kind, int first_variable, std::span<const ir::Expr* const> extents,
                        const Element* body);

 private:
  const Element* ApplyTo(Prim prim, std::span<const Element* const> args, bool of_place);
  const Element* Intern(Element element);
  std::pmr::monotonic_buffer_resource arena_;
  std::unordered_multimap<size_t, const Element*> interned_;
  std::unordered_map<const ir::Value*, const Element*> scalars_;
  LoadFn load_;
  int num_elements_ = 0;
  int num_variables_ = 0;
};

// The element of result `result` of `op` at `index` (one i64 element per VALUE axis of the result), of the result's
// dtype. Loads operands through `builder`. REQUIRES: op is over the fusion table, pure or a library op, and verified.
const Element* Define(ElementBuilder& builder, const ir::Op& op, int result, std::span<const Element* const> index);

}  // namespace hir::fusion
