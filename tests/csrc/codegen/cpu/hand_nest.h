// Loop nests built by hand, and a way to run them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/device/host/host_kernel.h"

namespace hir::codegen::cpu {

struct HandNest {
  std::shared_ptr<LoopNest> nest = std::make_shared<LoopNest>();

  // A tensor of the nest's, with a slot; extents may be symbols.
  const ir::Value* Add(Tensor::Role role, DType dtype, const std::vector<const ir::Expr*>& extents) {
    std::vector<ir::Axis>& axes = nest->axes.emplace_back();
    for (const ir::Expr* extent : extents) axes.push_back({ir::AxisKind::kIteration, extent});
    const ir::Type& type = nest->types.emplace_back(ir::Type{.dtype = dtype, .axes = axes});
    const ir::Value* value = &nest->values.emplace_back(ir::Value{.type = &type});
    Tensor tensor = {role, value, dtype, std::vector<const ir::Expr*>(extents.size())};
    const ir::Expr* stride = nest->exprs.Const(1);
    for (size_t i = extents.size(); i-- > 0;) {
      tensor.strides[i] = stride;
      stride = nest->exprs.Mul(stride, extents[i]);
    }
    nest->tensors.push_back(std::move(tensor));
    return value;
  }
  const ir::Expr* Const(int64_t value) { return nest->exprs.Const(value); }
  const fusion::Element* At(int variable) { return nest->elements.Index(variable); }
  Loop To(int variable, const ir::Expr* end) {
    nest->num_variables = std::max(nest->num_variables, variable + 1);
    return {variable, Const(0), end};
  }
  KernelPlan Plan(const std::string& name = "k") const {
    KernelPlan plan;
    plan.launches.emplace_back().kernel = name;
    plan.nests.push_back(nest);
    return plan;
  }
};

// Compiles, loads, and runs the only kernel of `plan` over [0, grid) with `args`, in pieces of `piece` items.
inline void RunPlan(const KernelPlan& plan, std::vector<int64_t> args, int64_t grid, int64_t piece = 1 << 30) {
  Compiler compiler({});
  const auto artifact = compiler.Compile(plan);
  ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
  const auto kernels = Load(*artifact);
  ASSERT_TRUE(kernels.ok()) << kernels.status().ToString();
  const auto kernel = (*kernels)->Get(plan.launches[0].kernel);
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  const device::HostFunction function = static_cast<const device::HostKernel*>(*kernel)->function();
  for (int64_t at = 0; at < grid; at += piece) function(args.data(), at, std::min(grid, at + piece));
}

template <typename T>
int64_t Address(std::vector<T>& values) {
  return reinterpret_cast<int64_t>(values.data());
}

// y[i] = f(x[i]) for every i, in one vector loop; x and y may have different types.
template <typename X, typename Y>
std::vector<Y> Map(DType from, DType to, std::vector<X> x,
                   const std::function<const fusion::Element*(fusion::ElementBuilder&, const fusion::Element*)>& f) {
  HandNest hand;
  const ir::Expr* count = hand.nest->exprs.Symbol("i0");
  const ir::Value* in = hand.Add(Tensor::Role::kInput, from, {count});
  hand.Add(Tensor::Role::kOutput, to, {count});
  hand.nest->symbols = {"i0"};
  const fusion::Element* at = hand.At(0);
  Region region;
  region.columns = hand.To(0, count);
  region.columns_max = 1;
  Phase phase;
  phase.stores.push_back({1, {at}, f(hand.nest->elements, hand.nest->elements.MakeLoad(in, std::span(&at, 1)))});
  region.phases.push_back(std::move(phase));
  hand.nest->regions.push_back(std::move(region));
  std::vector<Y> y(x.size());
  RunPlan(hand.Plan(), {Address(x), Address(y), static_cast<int64_t>(x.size())}, 1);
  return y;
}

}  // namespace hir::codegen::cpu
