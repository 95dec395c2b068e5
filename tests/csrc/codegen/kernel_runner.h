// Runs kernels of fusion programs in tests: plans groups, compiles, launches in pieces, and compares with the
// interpreter.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/device/host/host_kernel.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "csrc/segment/segment.h"
#include "tests/csrc/codegen/guarded_memory.h"

namespace hir::codegen {

using fusion::HostTensor;
using fusion::SymbolValues;

// A number of `dtype`, as a test of arithmetic wants it: mostly small, some special.
inline double RandomNumber(base::Prng& prng, DType dtype, bool special) {
  if (dtype == DType::kBool) return static_cast<double>(prng.Below(2));
  if (!IsFloat(dtype)) return static_cast<double>(prng.Between(-9, 9));
  if (special && prng.OneIn(12)) {
    constexpr double kValues[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1e-40, 3e38, 1};
    return kValues[prng.Below(8)];
  }
  return 4 * prng.Unit() - 2;
}

inline HostTensor RandomTensor(base::Prng& prng, DType dtype, std::vector<int64_t> shape, bool special = false) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = RandomNumber(prng, dtype, special);
  return fusion::TensorOf(dtype, std::move(shape), values);
}

// All ops of `graph` as one group.
inline segment::Group WholeOf(const ir::Graph& graph) {
  std::vector<ir::Op*> ops;
  ir::ForEachOp(graph.body, [&](ir::Op* op) { ops.push_back(op); });
  return segment::MakeGroup(graph, ops);
}

class KernelRunner {
 public:
  // Plans are made for `sizes`, whatever they then run on.
  explicit KernelRunner(uint64_t seed, Sizes sizes = {}) : prng_(seed), sizes_(std::move(sizes)) {}

  cpu::Compiler& compiler() { return compiler_; }
  base::Prng& prng() { return prng_; }

  // Every output of `graph` on `inputs`, written out, with the ops split into `groups`; library ops run in the
  // interpreter.
  // Failures are reported to GoogleTest as well.
  Result<std::vector<HostTensor>> Run(const ir::Graph& graph, std::span<const HostTensor> inputs,
                                      const std::vector<segment::Group>& groups) {
    HIR_ASSIGN(symbols_, fusion::BindSymbols(graph, inputs));
    whole_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) whole_[graph.params[i]] = inputs[i];
    int number = 0;
    for (const segment::Group& group : groups) {
      const bool is_library = (group.ops[0]->info->effects & ir::kLibrary) != 0;
      if (is_library || !Accepts(group.View(graph)).accepted) {
        for (const ir::Op* op : group.ops) HIR_TRY(InterpretOne(*op));
        continue;
      }
      HIR_TRY(RunGroup(group.View(graph), base::Cat("g", number++)));
    }
    std::vector<HostTensor> outputs;
    for (const ir::Output& output : graph.outputs) outputs.push_back(whole_.at(output.value));
    return outputs;
  }

  int num_kernels() const { return num_kernels_; }

 private:
  Status InterpretOne(const ir::Op& op) {
    HIR_ASSIGN(whole_[op.results[0]],
               fusion::InterpretOp(op, symbols_,
                                   [this](const ir::Value* value) -> const HostTensor& { return whole_.at(value); }));
    return {};
  }

  Status RunGroup(const segment::GroupView& group, const std::string& name) {
    HIR_ASSIGN(const KernelPlan plan, Plan(group, name, {}, sizes_));
    HIR_ASSIGN(const Artifact artifact, compiler_.Compile(plan));
    HIR_ASSIGN(const auto kernels, cpu::Load(artifact));
    std::vector<std::vector<std::byte>> workspaces;
    for (const Workspace& workspace : plan.workspaces) {
      HIR_ASSIGN(const int64_t bytes, fusion::ValueOf(workspace.bytes, symbols_));
      workspaces.emplace_back(static_cast<size_t>(bytes), std::byte{0xa5});
    }
    std::map<const ir::Value*, HostTensor> stored;
    std::map<const ir::Value*, GuardedMemory> inputs;
    for (const Launch& launch : plan.launches) {
      for (const ir::Value* input : launch.inputs) {
        if (!inputs.contains(input))
          inputs.emplace(input, GuardedMemory(fusion::Stored(*input->type, whole_.at(input)).bytes, prng_.OneIn(2)));
      }
      for (const ir::Value* output : launch.outputs) {
        HIR_ASSIGN(std::vector<int64_t> shape, fusion::ShapeOf(*output->type, symbols_));
        const std::vector<ir::Axis> axes = ir::ValueAxes(*output->type);
        for (size_t i = 0; i < shape.size(); ++i) {
          if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
        }
        HostTensor& tensor = stored[output] = fusion::ZeroTensor(output->type->dtype, shape);
        std::ranges::fill(tensor.bytes, std::byte{0x7b});  // A kernel writes every byte.
        tensor.bytes.resize(tensor.bytes.size() + kRedZone, std::byte{0x5a});
      }
      std::vector<int64_t> args;
      for (const ir::Value* input : launch.inputs) args.push_back(reinterpret_cast<int64_t>(inputs.at(input).data()));
      for (const ir::Value* output : launch.outputs) args.push_back(AddressOf(stored[output].bytes));
      for (const int workspace : launch.workspaces)
        args.push_back(AddressOf(workspaces[static_cast<size_t>(workspace)]));
      for (const ir::Expr* extent : launch.extents) {
        HIR_ASSIGN(const int64_t value, fusion::ValueOf(extent, symbols_));
        args.push_back(value);
      }
      for (const ir::Value* scalar : launch.scalars) {
        const HostTensor& value = whole_.at(scalar);
        args.push_back(IsFloat(value.dtype) ? std::bit_cast<int64_t>(fusion::ToDoubles(value)[0])
                                            : fusion::ToInts(value)[0]);
      }
      HIR_ASSIGN(const int64_t grid, fusion::ValueOf(launch.grid, symbols_));
      HIR_ASSIGN(const device::Kernel* kernel, kernels->Get(launch.kernel));
      const device::HostFunction function = static_cast<const device::HostKernel*>(kernel)->function();
      for (int64_t at = 0; at < grid;) {  // In pieces of random lengths.
        const int64_t length = std::min(grid - at, prng_.OneIn(3) ? prng_.Between(1, 3) : prng_.Between(1, grid));
        function(args.data(), at, at + length);
        at += length;
      }
      ++num_kernels_;
    }
    for (const ir::Value* output : group.outputs) {
      if (output->type->kind != ir::TypeKind::kTensor) continue;
      HostTensor tensor = stored.at(output);
      const size_t bytes = tensor.bytes.size() - kRedZone;
      for (size_t i = bytes; i < tensor.bytes.size(); ++i)
        EXPECT_EQ(tensor.bytes[i], std::byte{0x5a}) << "written past its end";
      tensor.bytes.resize(bytes);
      HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*output->type, symbols_));
      whole_[output] = fusion::WrittenOut(tensor, shape);
    }
    return {};
  }

  static int64_t AddressOf(std::vector<std::byte>& bytes) { return reinterpret_cast<int64_t>(bytes.data()); }
  static constexpr size_t kRedZone = 64;

  base::Prng prng_;
  const Sizes sizes_;
  cpu::Compiler compiler_{{}};
  SymbolValues symbols_;
  std::map<const ir::Value*, HostTensor> whole_;
  int num_kernels_ = 0;
};

// How far `got` may be from `want`, relative to the largest finite magnitude of `want` and to `scale`.
inline double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 1e-12;
    case DType::kFloat32: return 2e-5;
    case DType::kFloat16: return 4e-3;
    case DType::kBFloat16: return 3e-2;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: return 0;
  }
  return 0;
}

inline void ExpectNear(const HostTensor& got, const HostTensor& want, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  ASSERT_EQ(got.dtype, want.dtype) << what;
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  double magnitude = 1;
  for (const double value : b) magnitude = std::isfinite(value) ? std::max(magnitude, std::fabs(value)) : magnitude;
  magnitude = std::min(magnitude, 1e30);
  int faults = 0;
  for (size_t i = 0; i < a.size() && faults < 5; ++i) {
    const bool same =
        a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
        std::fabs(a[i] - b[i]) <= ToleranceOf(got.dtype) * std::max(std::fabs(b[i]), std::min(magnitude, 16.0));
    if (!same) {
      ++faults;
      ADD_FAILURE() << what << ": element " << i << " of " << a.size() << " is " << a[i] << ", not " << b[i];
    }
  }
}

// Of one kernel for all of a program.
inline Verdict VerdictOf(const std::string& text) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  return Accepts(segment::MakeGroup(**graph, ops).View(**graph));
}

// How many launches a plan for all ops of `text` has, and how many regions the first of them.
struct Counts {
  size_t launches = 0, regions = 0;
};
inline Counts CountsOf(const std::string& text, const Target& target = {}) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return {};
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k", target, {});
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? Counts{plan->launches.size(), plan->nests[0]->regions.size()} : Counts();
}

// `text`, all its ops as one kernel and as one kernel an op, on inputs of the parameters' shapes under `symbols`, by
// plans for `sizes`.
inline void CheckProgram(const std::string& text, const SymbolValues& symbols, uint64_t seed, bool special = false,
                         const Sizes& sizes = {}) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  KernelRunner runner(seed, sizes);
  std::vector<HostTensor> inputs;
  for (const ir::Value* param : (*graph)->params) {
    const auto shape = fusion::ShapeOf(*param->type, symbols);
    ASSERT_TRUE(shape.ok()) << shape.status().ToString();
    std::vector<int64_t> stored = *shape;
    const std::vector<ir::Axis> axes = ir::ValueAxes(*param->type);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].kind == ir::AxisKind::kBroadcast) stored[i] = 1;
    }
    inputs.push_back(fusion::WrittenOut(RandomTensor(runner.prng(), param->type->dtype, stored, special), *shape));
  }
  const auto want = fusion::Interpret(**graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  std::vector<segment::Group> apart;
  for (ir::Op* op : ops) apart.push_back(segment::MakeGroup(**graph, {op}));
  const segment::Group together = segment::MakeGroup(**graph, ops);
  const Verdict verdict = Accepts(together.View(**graph));
  EXPECT_TRUE(verdict.accepted) << verdict.reason << "\n" << text;
  for (const std::vector<segment::Group>& groups : {std::vector<segment::Group>{together}, apart}) {
    const auto got = runner.Run(**graph, inputs, groups);
    ASSERT_TRUE(got.ok()) << got.status().ToString() << "\n" << text;
    for (size_t i = 0; i < (*got).size(); ++i) {
      ExpectNear((*got)[i], (*want)[i],
                 base::Cat("output ", i, groups.size() == 1 ? " (one kernel)" : " (one an op)", "\n", text));
    }
  }
}

}  // namespace hir::codegen
