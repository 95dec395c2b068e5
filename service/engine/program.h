// Program: a plan as the daemon uses it: which tensors fit its inputs, and what its outputs will be.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"
#include "hostir/v1/plan.pb.h"
#include "service/store/spec.h"

namespace hir::service {

// Values of a program's symbols: {"i0", 8}.
using Sizes = std::map<std::string, int64_t, std::less<>>;

// Immutable, thread-safe.
class Program {
 public:
  // Errors: kInternal: the plan is not one; it came from our planner.
  static Result<std::shared_ptr<const Program>> Make(std::string id, int64_t number, ::hostir::v1::Plan plan);

  const std::string& id() const { return id_; }  // For clients.
  int64_t number() const { return number_; }     // For workers.
  const ::hostir::v1::Plan& plan() const { return plan_; }

  struct Param {
    DType dtype = DType::kFloat32;
    std::vector<const ir::Expr*> shape = {};
    std::vector<bool> stored_once = {};
    mesh::Sharding sharding = mesh::Sharding::OnDevice0(0);
    std::vector<int64_t> memory_order = {};  // As of TensorSpec.
  };
  std::span<const Param> inputs() const { return inputs_; }
  std::span<const Param> outputs() const { return outputs_; }

  // Whether a tensor of `spec` can be the input `index`; the sizes that follow from its shape are added to `sizes`.
  // Errors: kInvalidArgument "input 1 (w): ...", with both sides.
  Status Fits(int index, const TensorSpec& spec, Sizes& sizes) const;
  // What the tensor for input `index` must be when its elements come as `shape`.
  Result<TensorSpec> InputSpec(int index, DType dtype, const std::vector<int64_t>& shape) const;
  // Whether the bytes of each input and output fit in 63 bits, as far as `sizes` say: they may be some of its sizes.
  // Errors: kInvalidArgument naming the tensor and its shape.
  Status CheckBytes(const Sizes& sizes) const;
  // Checks what must hold of sizes: CheckBytes, and the guards of the program, whatever its plan.
  Status CheckSizes(const Sizes& sizes) const;
  // Whether this plan is the one to run with `sizes`, which CheckSizes: it was made for such, and its guards hold.
  // Errors: kInvalidArgument naming the guard; kFailedPrecondition when it is provisional.
  Status Serves(const Sizes& sizes) const;
  // Whether this plan serves all sizes that CheckSizes.
  bool ServesAll() const { return serves_all_; }
  Result<std::shared_ptr<const TensorSpec>> OutputSpec(int index, const Sizes& sizes) const;

  // The symbols that its inputs bind, and those that are constants of this plan.
  std::set<std::string, std::less<>> Symbols() const;
  // The value of an expression of the plan's text.
  Result<int64_t> Evaluate(const std::string& expression, const Sizes& sizes) const;

 private:
  struct Guard {
    const ir::Expr* left = nullptr;
    const ir::Expr* right = nullptr;
  };
  Status CheckGuards(const Sizes& sizes, bool replans) const;
  Program(std::string id, int64_t number, ::hostir::v1::Plan plan);
  Status Parse();
  Result<std::vector<Param>> ParseParams(const google::protobuf::RepeatedPtrField<::hostir::v1::PlanParam>& params);
  Status CheckInput(int index, DType dtype, const std::vector<int64_t>& shape) const;
  std::string NameOf(int index) const;        // "input 1 (w)"
  std::string NameOfOutput(int index) const;  // "output 0 (y)"

  const std::string id_;
  const int64_t number_;
  const ::hostir::v1::Plan plan_;
  std::unique_ptr<ir::Graph> graph_;  // Owns the expressions.
  std::vector<Param> inputs_;
  std::vector<Param> outputs_;
  std::vector<std::shared_ptr<const TensorSpec>> constant_outputs_;  // Null: of one whose shape has symbols.
  std::vector<Guard> guards_;                                        // As in plan_.guards().
  bool serves_all_ = true;
};

}  // namespace hir::service
