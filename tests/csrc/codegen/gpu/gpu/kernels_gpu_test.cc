// Goal: compiled kernels compute on a GPU what the interpreter does, whatever ops run together, at every size.
// Method: random programs, one op a kernel and merged as far as Accepts allows; and reductions, norms, transposes,
// pointwise and indexed programs with each axis at 1, 3, 17, 1023 and 4097. Outputs hold garbage first, bytes around
// them are watched, every fourth time operands lie off their vectors' boundaries.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <tuple>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "csrc/ir/parse.h"
#include "tests/csrc/codegen/gpu/gpu/device_runner.h"
#include "tests/csrc/codegen/kernel_runner.h"
#include "tests/property/program_generator.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

// As far as kernels can hold the ops; no two of them where `apart`.
std::vector<segment::Group> Merged(const ir::Graph& graph, bool apart = false) {
  return *segment::Segment(graph,
                           [&](const segment::GroupView&, const segment::GroupView&,
                               const segment::GroupView& merged) -> std::optional<segment::Gain> {
                             if (apart || !Accepts(merged).accepted) return std::nullopt;
                             return segment::Gain{.bytes = 1, .launches = 1};
                           },
                           {.merge_siblings = true});
}

class GpuKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto count = device::NumCudaDevices();
    if (!count.ok()) {
      std::cerr << "SKIPPED, no GPU: " << count.status().ToString() << "\n";
      GTEST_SKIP() << count.status().ToString();
    }
    auto device = device::OpenCudaDevice({});
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    device_ = std::move(*device);
    const auto facts = device::FactsOf(*device_);
    ASSERT_TRUE(facts.ok());
    target_ = {.kind = Target::Kind::kGpu,
               .architecture = facts->architecture,
               .multiprocessors = facts->multiprocessors,
               .shared_bytes = facts->shared_bytes_per_block};
    runner_ = std::make_unique<DeviceRunner>(*device_);
    ASSERT_TRUE(runner_->Start().ok());
  }
  void TearDown() override {
    runner_.reset();
    device_.reset();
  }

  // Every output, with the ops split into `groups`.
  Result<std::vector<HostTensor>> Run(const ir::Graph& graph, std::span<const HostTensor> inputs,
                                      const std::vector<segment::Group>& groups) {
    HIR_ASSIGN(const SymbolValues symbols, fusion::BindSymbols(graph, inputs));
    std::map<const ir::Value*, HostTensor> whole;
    for (size_t i = 0; i < inputs.size(); ++i) whole[graph.params[i]] = inputs[i];
    Sizes sizes;
    if (!prng_.OneIn(3)) {
      for (const auto& [symbol, value] : symbols) sizes[std::string(symbol)] = value;
    }
    for (const segment::Group& group : groups) {
      const segment::GroupView view = group.View(graph);
      const bool is_library = (group.ops[0]->info->effects & ir::kLibrary) != 0;
      if (is_library || !Accepts(view).accepted) {
        for (const ir::Op* op : group.ops) {
          HIR_ASSIGN(whole[op->results[0]],
                     fusion::InterpretOp(*op, symbols,
                                         [&](const ir::Value* value) -> const HostTensor& { return whole.at(value); }));
        }
        continue;
      }
      HIR_TRY(RunGroup(view, symbols, sizes, whole));
    }
    std::vector<HostTensor> outputs;
    for (const ir::Output& output : graph.outputs) outputs.push_back(whole.at(output.value));
    return outputs;
  }

  Status RunGroup(const segment::GroupView& view, const SymbolValues& symbols, const Sizes& sizes,
                  std::map<const ir::Value*, HostTensor>& whole) {
    HIR_ASSIGN(const KernelPlan plan, Plan(view, "g", target_, sizes));
    HIR_ASSIGN(const Artifact artifact, compiler_.Compile(plan));
    const bool shifted = prng_.OneIn(4);
    std::map<const ir::Value*, device::Buffer> buffers;
    std::map<const ir::Value*, int64_t> scalars;
    std::map<const ir::Value*, HostTensor> shapes;
    for (const codegen::Launch& launch : plan.launches) {
      for (const ir::Value* input : launch.inputs) {
        if (buffers.contains(input)) continue;
        const HostTensor tensor = fusion::Stored(*input->type, whole.at(input));
        HIR_ASSIGN(buffers[input], runner_->Allocate(static_cast<int64_t>(tensor.bytes.size()),
                                                     shifted ? DTypeBytes(tensor.dtype) : 0, 0x5a));
        HIR_TRY(runner_->Upload(buffers[input], tensor.bytes));
      }
      for (const ir::Value* output : launch.outputs) {
        if (buffers.contains(output)) continue;
        HIR_ASSIGN(std::vector<int64_t> shape, fusion::ShapeOf(*output->type, symbols));
        const std::vector<ir::Axis> axes = ir::ValueAxes(*output->type);
        for (size_t i = 0; i < shape.size(); ++i) {
          if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
        }
        shapes[output] = fusion::ZeroTensor(output->type->dtype, shape);
        HIR_ASSIGN(buffers[output], runner_->Allocate(static_cast<int64_t>(shapes[output].bytes.size()),
                                                      shifted ? DTypeBytes(output->type->dtype) : 0, 0x5a));
        runner_->stream().Fill(buffers[output], 0x7b, 1);  // A kernel writes every byte.
      }
      for (const ir::Value* scalar : launch.scalars) {
        const HostTensor& value = whole.at(scalar);
        scalars[scalar] =
            IsFloat(value.dtype) ? std::bit_cast<int64_t>(fusion::ToDoubles(value)[0]) : fusion::ToInts(value)[0];
      }
    }
    HIR_ASSIGN(const DeviceRunner::Ready ready, runner_->Prepare(plan, artifact, buffers, symbols, scalars));
    runner_->Launch(ready);
    for (const ir::Value* output : view.outputs) {
      if (output->type->kind != ir::TypeKind::kTensor) continue;
      HostTensor tensor = shapes.at(output);
      constexpr auto kAround = static_cast<size_t>(DeviceRunner::kRedZone);
      HIR_ASSIGN(const std::vector<std::byte> bytes, runner_->Download(buffers.at(output), DeviceRunner::kRedZone));
      std::memcpy(tensor.bytes.data(), bytes.data() + kAround, tensor.bytes.size());
      for (size_t i = 0; i < bytes.size(); ++i) {
        const bool is_own = i >= kAround && i < kAround + tensor.bytes.size();
        EXPECT_TRUE(is_own || bytes[i] == std::byte{0x5a}) << "written outside of it";
        if (::testing::Test::HasFailure()) break;
      }
      HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*output->type, symbols));
      whole[output] = fusion::WrittenOut(tensor, shape);
    }
    HIR_TRY(runner_->stream().Synchronize(std::chrono::seconds(60)));
    runner_->Forget();
    return {};
  }

  void CheckText(const std::string& text, const SymbolValues& symbols) {
    const auto graph = ir::Parse(text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<HostTensor> inputs;
    for (const ir::Value* param : (*graph)->params) {
      const auto shape = fusion::ShapeOf(*param->type, symbols);
      ASSERT_TRUE(shape.ok()) << shape.status().ToString();
      inputs.push_back(RandomTensor(prng_, param->type->dtype, *shape));
      if (param->type->dtype != DType::kInt64) continue;  // Indices along the last axis.
      std::vector<double> indices(static_cast<size_t>(inputs.back().num_elements()));
      for (double& index : indices) index = static_cast<double>(prng_.Below(symbols.at("i1")));
      inputs.back() = fusion::TensorOf(DType::kInt64, *shape, indices);
    }
    const auto want = fusion::Interpret(**graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    ASSERT_TRUE(fusion::DecomposeOps(**graph).ok());
    std::vector<ir::Op*> ops;
    ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
    std::vector<segment::Group> groups = {segment::MakeGroup(**graph, ops)};
    if (!Accepts(groups[0].View(**graph)).accepted) groups = Merged(**graph);
    const auto got = Run(**graph, inputs, groups);
    ASSERT_TRUE(got.ok()) << got.status().ToString() << "\n" << text;
    for (size_t i = 0; i < got->size(); ++i) {
      const std::vector<double> a = fusion::ToDoubles((*got)[i]), b = fusion::ToDoubles((*want)[i]);
      ASSERT_EQ(a.size(), b.size());
      double difference = 0, norm = 0;
      for (size_t k = 0; k < a.size(); ++k) {
        difference += (a[k] - b[k]) * (a[k] - b[k]);
        norm += b[k] * b[k];
      }
      const double limit = (*got)[i].dtype == DType::kFloat32 ? 1e-5 : 8e-3;
      EXPECT_LE(std::sqrt(difference), limit * std::sqrt(norm) + 1e-30)  // NaN fails.
          << "output " << i << " at " << symbols.begin()->second << "\n"
          << text;
    }
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceRunner> runner_;
  Target target_;
  Compiler compiler_{{}};
  base::Prng prng_{7};
};

TEST_F(GpuKernels, RandomProgramsEqualTheInterpreter) {
  const char* count = std::getenv("HIR_PROGRAMS");
  const uint64_t programs = count != nullptr ? std::strtoull(count, nullptr, 10) : 60;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    const testing::GeneratedProgram program = testing::Generate(seed);
    SCOPED_TRACE(program.Describe());
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    ASSERT_TRUE(fusion::DecomposeOps(*program.graph).ok());
    const auto groups = Merged(*program.graph, seed % 4 == 0);
    const auto got = Run(*program.graph, program.inputs, groups);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    for (size_t k = 0; k < want->size(); ++k)
      EXPECT_EQ(testing::Difference((*got)[k], (*want)[k], program.tolerances[k]), "") << "output " << k;
    if (::testing::Test::HasFailure()) return;  // One program is enough to read.
  }
}

// A rotary embedding of whole rows of 2 m, whose halves lie at any offset.
std::string RopeText(int64_t n, int64_t m) {
  const std::string whole = Cat("[", n, ", ", 2 * m, "]");
  return Cat("fusion @f(%x: bf16", whole, ", %c: f32", whole, ", %s: f32", whole,
             ") {\n  %a = slice(%x) {start=[0, 0], end=[", n, ", ", m, "], strides=[]}\n  %b = slice(%x) {start=[0, ",
             m, "], end=[", n, ", ", 2 * m, "], strides=[]}\n", R"(  %n = neg(%b)
  %t = cat(%n, %a) {axis=1}
  %xf = cast(%x) {dtype=f32}
  %tf = cast(%t) {dtype=f32}
  %p = mul(%xf, %c)
  %q = mul(%tf, %s)
  %r = add(%p, %q)
  %y = cast(%r) {dtype=bf16}
  return %y
})");
}

std::string CrossEntropyText(int64_t n, int64_t m) {
  return Cat("fusion @f(%x: bf16[", n, ", ", m, "], %target: i64[", n, "]) {\n",
             R"(  %xf = cast(%x) {dtype=f32}
  %top = max(%xf) {axes=[1], keepdim=true, dtype=null}
  %below = sub(%xf, %top)
  %e = exp(%below)
  %total = sum(%e) {axes=[1], keepdim=false, dtype=null}
  %log_total = log(%total)
  %top_flat = squeeze(%top) {axes=[1]}
  %log_sum = add(%log_total, %top_flat)
  %column = broadcast_in_dim(%target) {shape=[)",
             n, R"(, 1], dims=[0]}
  %chosen = take_along_axis(%xf, %column) {axis=1}
  %chosen_flat = squeeze(%chosen) {axes=[1]}
  %loss = sub(%log_sum, %chosen_flat)
  return %loss
})");
}

// Sums over tokens, over batch and tokens, and over features: of 2 x n x m.
std::string AdaptiveLayerNormBackwardText(int64_t n, int64_t m) {
  const std::string all = Cat("[2, ", n, ", ", m, "]");
  return Cat("fusion @f(%weight: bf16[", m, "], %gain: f32[2, 1, ", m, "], %grad: bf16", all, ", %mean: f32[2, ", n,
             ", 1], %rstd: f32[2, ", n, ", 1], %x: bf16", all, ") {\n",
             R"(  %xf = cast(%x) {dtype=f32}
  %centered = sub(%xf, %mean)
  %xhat = mul(%centered, %rstd)
  %weight_f = cast(%weight) {dtype=f32}
  %weight_row = broadcast_in_dim(%weight_f) {shape=[1, 1, )",
             m, R"(], dims=[2]}
  %g = cast(%grad) {dtype=f32}
  %grad_shift = sum(%g) {axes=[1], keepdim=false, dtype=null}
  %g_normed = mul(%gain, %g)
  %grad_bias = sum(%g_normed) {axes=[0, 1], keepdim=false, dtype=null}
  %xhat_g = mul(%xhat, %g_normed)
  %grad_weight = sum(%xhat_g) {axes=[0, 1], keepdim=false, dtype=null}
  %g_xhat = mul(%weight_row, %g_normed)
  %centered_g = mul(%centered, %g_xhat)
  %by_rstd = sum(%centered_g) {axes=[2], keepdim=true, dtype=null}
  %direct = mul(%rstd, %g_xhat)
  %indirect = mul(%centered, %by_rstd)
  %grad_x_f = sub(%direct, %indirect)
  %grad_x = cast(%grad_x_f) {dtype=bf16}
  return %grad_shift, %grad_bias, %grad_weight, %grad_x
})");
}

TEST_F(GpuKernels, EverySize) {
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {1, 4097},
      {3, 1023},
      {17, 4097},
      {1023, 17},
      {4097, 3},
      {4097, 1},
      {1, 1},
      {17, 17},
      {5, 8192},
      {3, 16384},
      {2, 65536},
      {7, 4104},
      {9, 1000},
      {256, 192},
      {136, 264},
      {4096, 64},
      {64, 4096},
      {1000, 1000},
      // Small, and in whole vectors: what tests/gpu/sanitize.py has time for.
      {8, 512},
      {72, 64},
      {2, 2048}};
  const char* limit = std::getenv("HIR_ELEMENTS_MAX");
  const int64_t elements_max = limit != nullptr ? std::strtoll(limit, nullptr, 10) : INT64_MAX;
  for (const auto& [n, m] : sizes) {
    if (n * m > elements_max) continue;
    const SymbolValues symbols = {{"i0", n}, {"i1", m}};
    for (const int axis : {1, 0}) {
      CheckText(Cat("fusion @f(%x: bf16[i0, i1]) {\n  %f = cast(%x) {dtype=f32}\n  %m = max(%f) {axes=[", axis,
                    "], keepdim=true, dtype=null}\n  %d = sub(%f, %m)\n  %e = exp(%d)\n  %s = sum(%e) "
                    "{axes=[",
                    axis,
                    "], keepdim=true, dtype=null}\n  %y = div(%e, %s)\n  %z = cast(%y) {dtype=bf16}\n  "
                    "return %z\n}"),
                symbols);
      CheckText(Cat("fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[", axis,
                    "], keepdim=false, dtype=null}\n  return %s\n}"),
                symbols);
    }
    CheckText(R"(fusion @f(%x: bf16[i0, i1], %w: bf16[i1], %b: bf16[i1]) {
      %f = cast(%x) {dtype=f32}
      %s = sum(%f) {axes=[1], keepdim=true, dtype=null}
      %k = constant() {value=0.0009765625, dtype=f64}
      %m = mul(%s, %k)
      %d = sub(%f, %m)
      %q = mul(%d, %d)
      %v = sum(%q) {axes=[1], keepdim=true, dtype=null}
      %z = constant() {value=1.0, dtype=f64}
      %e = add(%v, %z)
      %r = rsqrt(%e)
      %n = mul(%d, %r)
      %nw = mul(%n, %w)
      %o = add(%nw, %b)
      %y = cast(%o) {dtype=bf16}
      return %y
    })",
              symbols);
    CheckText(R"(fusion @f(%x: bf16[i0, i1], %b: bf16[i0, i1]) {
      %a = add(%x, %b)
      %t = permute(%a) {dims=[1, 0]}
      return %t
    })",
              symbols);
    CheckText(R"(fusion @f(%g: bf16[i0, i1], %x: bf16[i0, i1], %w: bf16[i1], %r: f32[i0, 1]) {
      %gf = cast(%g) {dtype=f32}
      %xf = cast(%x) {dtype=f32}
      %xh = mul(%xf, %r)
      %gw = mul(%gf, %w)
      %p = mul(%gw, %xh)
      %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
      %k = constant() {value=0.0009765625, dtype=f64}
      %sk = mul(%s, %k)
      %xs = mul(%xh, %sk)
      %d = sub(%gw, %xs)
      %dx = cast(%d) {dtype=bf16}
      %q = mul(%gf, %xh)
      %dw = sum(%q) {axes=[0], keepdim=false, dtype=null}
      return %dx, %dw
    })",
              symbols);
    CheckText(R"(fusion @f(%x: bf16[i0, i1], %b: bf16[i1]) {
      %a = add(%x, %b)
      %g = gelu(%a)
      return %g
    })",
              symbols);
    CheckText(R"(fusion @f(%x: bf16[i0, i1], %y: bf16[i0, i1]) {
      %s = silu(%x)
      %p = mul(%s, %y)
      return %p
    })",
              symbols);
    CheckText(RopeText(n, m), symbols);
    CheckText(CrossEntropyText(n, m), symbols);
    CheckText(AdaptiveLayerNormBackwardText(n, m), symbols);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hir::codegen::gpu
