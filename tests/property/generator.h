// The generator behind program_generator.h: a pool of values it knows bounds of, and one step per op. Private to this
// folder.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "tests/property/program_generator.h"

namespace hir::testing {

using Exprs = std::vector<const ir::Expr*>;
using Ints = std::vector<int64_t>;

// A value and what is known of it.
struct Item {
  ir::Value* value = nullptr;
  double bound = 0;  // No element is larger in magnitude.
  double error = 0;  // No two correct evaluations are further apart.
  DType dtype() const { return value->type->dtype; }
  bool exact() const { return error == 0; }
};

// What an input's elements are drawn from; floats are multiples of 1/8, exact in every type.
enum class Draw {
  kSigned /* [-2, 2], integers [-5, 5] */,
  kNonzero /* +-0.5, +-1, +-2 */,
  kExponent /* 0 .. 3 */
};

class Generator {
 public:
  Generator(uint64_t seed, const GeneratorOptions& options);
  GeneratedProgram Run();

 private:
  // generator.cc
  Item NewParam(DType dtype, const std::vector<ir::Axis>& axes, Draw draw = Draw::kSigned);
  Item NewScalar(DType dtype, double value);  // A constant, or a scalar parameter.
  Item NewConstant(DType dtype, double value);
  std::vector<ir::Axis> RandomAxes();
  const ir::Expr* RandomExtent(int64_t limit);
  const ir::Expr* ExtentOfSize(int64_t size);  // Constant, or a symbol of that value; for inputs.
  const ir::Expr* KnownExtent(int64_t limit);  // Constant, or a symbol of some input.
  DType RandomDType();
  DType RandomFloat();
  using Accept = std::function<bool(const Item&)>;
  Item Pick(const Accept& accept, DType dtype);  // From the pool, or a new input of `dtype`.
  Item PickAny() {
    return Pick([](const Item&) { return true; }, RandomDType());
  }
  Item PickNumber();
  ir::Value* Emit(std::string_view name, std::vector<ir::Value*> operands, std::vector<ir::Attr> attrs = {});
  // Into the pool: the result of an op. `error` comes from the operands' errors; rounding of a float is added.
  Item Add(ir::Value* value, double bound, double error);
  Item AddExact(ir::Value* value, double bound,
                double error);  // No rounding: the op moves or compares.
  void Step(fusion::FusionOp op);
  void Finish(GeneratedProgram& program);
  void OrderMemory();  // Gives inputs and outputs a stride order each, or not.
  void Annotate(ir::Value& value);

  std::vector<int64_t> ShapeOf(const ir::Value* value) const;
  std::vector<ir::Axis> AxesOf(const ir::Value* value) const { return ir::ValueAxes(*value->type); }
  int64_t ElementsOf(const ir::Value* value) const;
  std::span<const int64_t> Copy(const Ints& values) { return graph_->Copy(values); }
  std::span<const ir::Expr* const> Copy(const Exprs& values) { return graph_->Copy(values); }
  bool Chance(int percent) { return rng_.Below(100) < percent; }
  template <typename T>
  const T& OneOf(const std::vector<T>& values) {
    return values[static_cast<size_t>(rng_.Below(std::ssize(values)))];
  }

  // generator_pointwise.cc
  void Pointwise(fusion::FusionOp op);
  void Unary(std::string_view name);
  void Binary(std::string_view name);
  void Compare(std::string_view name, int operands);
  void Remainder(std::string_view name);
  void Power();
  void Where();
  void Clamp();
  void Lerp();
  void Threshold();
  void Addcmul();
  void Integers(std::string_view name);
  void NextAfter();
  void Cast();
  void Constants();
  Item AsNumber(Item x);            // Bools cast to a float.
  Item Tame(Item x, double limit);  // |x| <= limit, through tanh when it must.
  Item Positive(Item x);            // 1 + |x|.
  // Something that broadcasts against x: from the pool, a new input or a host scalar.
  Item Companion(const Item& x, const Accept& accept, DType dtype, Draw draw = Draw::kSigned, bool scalars = true);
  bool Broadcasts(const ir::Value* a, const ir::Value* b) const;

  // generator_shape.cc
  void Move(fusion::FusionOp op);
  void Broadcast();
  void BroadcastInDim();
  void Expand();
  void Squeeze();
  void Reshape();
  void Permute();
  void Slice();
  void Pad();
  void Cat();
  void TakeAlongAxis();
  void Gather();
  void IndexSelect();
  Item ComputedIndices(const ir::Expr* count);
  void IndexSum();
  void Scatter();
  void Select();
  void SqueezeExpanded();
  void Triangle(std::string_view name);
  void PlaceOf(std::string_view name);
  void Running(std::string_view name);
  void Argsort();
  void Flip();
  void OneHot();
  // generator_values.cc
  void Full();
  void Iota();
  void Sizes(fusion::FusionOp op);  // size and extent, added to something.
  void Moments(std::string_view name);
  void Random(bool uniform);
  void AnyAll(std::string_view name);
  Item NewIndices(const std::vector<ir::Axis>& axes) {
    return NewParam(Chance(50) ? DType::kInt32 : DType::kInt64, axes);
  }
  // A tensor with something along each axis, and one of its axes.
  struct Along {
    Item x;
    size_t axis = 0;
    int64_t number = 0;  // The axis, perhaps from the end.
  };
  Along PickAlong();
  void Reduce(std::string_view name);
  void Matmul();
  void Linear();
  // An input that the program sees as one of these axes: perhaps after a slice and a permute, of memory in another
  // order and with more around.
  Item ViewedParam(DType dtype, const std::vector<ir::Axis>& axes);
  // The item in another order of its axes, perhaps.
  Item Reordered(const Item& x);
  Item Contract(std::string_view name, std::vector<Item> operands, int64_t length);

  // generator_grouped.cc
  void Grouped(fusion::FusionOp op);
  // generator_attention.cc
  void Attention(fusion::FusionOp op);

  // generator_chains.cc
  Item Cheap(Item x);
  Item IotaChain();
  Item ViewOfInput();
  void AcrossABoundary();
  void JoinedGroups();
  void ProductOfTurnedAxes();
  void SumsOverRanks();
  ir::Value* InputForOutput(const ir::Value* value);

  const uint64_t seed_;
  const GeneratorOptions options_;
  base::Prng rng_;
  base::Prng dealer_;  // What is dealt in turns: of its own, so that the rest is the same with and without it.
  std::unique_ptr<ir::Graph> graph_;
  ir::Builder builder_;
  const ir::Mesh* mesh_ = nullptr;
  std::vector<Item> pool_;  // Tensors.
  fusion::SymbolValues sizes_;
  std::vector<fusion::HostTensor> inputs_;
  int num_symbols_ = 0;
  DType forced_ = DType::kFloat32;  // The type of the first inputs.
};

// The rounding of one op in `dtype`, relative to the bound of what it handles; 0 for integers.
double Epsilon(DType dtype);

}  // namespace hir::testing
