// Which communications whole programs need, and that their localized form computes the same: the three example
// programs, small, on meshes of 1, 2 and 4 ranks. Also what explain and the daemon read of a plan: records, boundaries,
// guards, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/pass.h"
#include "csrc/ir/print.h"
#include "multidevice/plan/localize.h"
#include "tests/multidevice/plan/spmd_evaluator.h"

namespace hir::plan {
namespace {

using base::Cat;
using testing::ElementsAre;

struct Planned {
  std::unique_ptr<ir::Graph> global;
  LocalProgram local;

  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    for (const Communication& c : local.communications) types.emplace_back(c.type);
    return types;
  }
};

Result<Planned> Plan(std::string_view text, const LocalizeOptions& options = {}) {
  Planned planned;
  HIR_ASSIGN(planned.global, ir::Parse(text, fusion::kFusionOps));
  HIR_TRY(ir::RunPasses(*planned.global, fusion::kFusionPasses, fusion::kSimplify));
  HIR_TRY(ir::RunPasses(*planned.global, fusion::kFusionPasses, fusion::kShard));
  HIR_ASSIGN(planned.local, Localize(*planned.global, options));
  return planned;
}

// Replaces each "MESH" by the mesh of `ranks` devices and each "SHARD(a)" by a split of axis a over them.
std::string OnRanks(std::string text, int64_t ranks) {
  std::vector<int64_t> devices;
  for (int64_t i = 0; i < ranks; ++i) devices.push_back(i);
  text.replace(text.find("MESH"), 4, Cat("[", base::JoinInts(devices, ", "), "]"));
  for (size_t at; (at = text.find("SHARD(")) != std::string::npos;) {
    const char axis = text[at + 6];
    text.replace(at, 8, Cat("mesh=@m, outer_split(", axis, ", ", ranks, "), parallelize(", axis, ", mesh_x)"));
  }
  return text;
}

// The same along axes that are stored once.
HostTensor RandomTensor(base::Prng& prng, const ir::Type& type, const std::vector<int64_t>& shape) {
  std::vector<int64_t> stored = shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (type.axes[i].kind == ir::AxisKind::kBroadcast) stored[i] = 1;
  }
  std::vector<double> values(static_cast<size_t>(fusion::ZeroTensor(type.dtype, stored).num_elements()));
  for (double& value : values) value = prng.Unit() - 0.5;
  return fusion::WrittenOut(fusion::TensorOf(type.dtype, stored, values), shape);
}

double RelativeError(const HostTensor& got, const HostTensor& want) {
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

// Whole inputs of these shapes, by the interpreter and on all ranks.
void ExpectSameValues(const Planned& planned, const std::vector<std::vector<int64_t>>& shapes, double tolerance) {
  base::Prng prng(7);
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(RandomTensor(prng, *planned.global->params[i]->type, shapes[i]));
  }
  const auto want = fusion::Interpret(*planned.global, inputs);
  const auto symbols = fusion::BindSymbols(*planned.global, inputs);
  ASSERT_TRUE(want.ok() && symbols.ok()) << want.status().ToString();
  const auto got = SpmdEvaluator(planned.local, *symbols).Run(inputs);
  ASSERT_TRUE(got.ok()) << got.status().ToString() << "\n" << ir::Print(*planned.local.graph);
  for (size_t i = 0; i < (*want).size(); ++i)
    EXPECT_LE(RelativeError((*got)[i], (*want)[i]), tolerance) << "output " << i;
}

constexpr std::string_view kLayerNormBackward = R"(
mesh @m = MESH
fusion @layer_norm_backward(%weight: bf16[b:8, b:6, 10] {mesh=@m}, %bias: bf16[b:8, b:6, 10] {mesh=@m},
    %scale: bf16[i0, 1, 10] {SHARD(0)}, %grad: bf16[i0, 6, 10] {SHARD(0)}, %mean: f32[i0, 6] {SHARD(0)},
    %rstd: f32[i0, 6, 1] {SHARD(0)}, %x: bf16[i0, 6, 10] {SHARD(0)}) {
  %x_f = cast(%x) {dtype=f32}
  %mean_column = broadcast_in_dim(%mean) {shape=[8, 6, 1], dims=[0, 1]}
  %mean_full = broadcast_in_dim(%mean_column) {shape=[8, 6, 10], dims=[0, 1, 2]}
  %centered = sub(%x_f, %mean_full)
  %rstd_full = broadcast_in_dim(%rstd) {shape=[8, 6, 10], dims=[0, 1, 2]}
  %xhat = mul(%centered, %rstd_full)
  %weight_f = cast(%weight) {dtype=f32}
  %bias_f = cast(%bias) {dtype=f32}
  %weighted = mul(%xhat, %weight_f)
  %normed = add(%weighted, %bias_f)
  %scale_f = cast(%scale) {dtype=f32}
  %one = constant() {value=1.0, dtype=f64}
  %gain = add(%one, %scale_f)
  %gain_b = cast(%gain) {dtype=bf16}
  %gain_full = broadcast_in_dim(%gain_b) {shape=[8, 6, 10], dims=[0, 1, 2]}
  %gain_f = cast(%gain_full) {dtype=f32}
  %g = cast(%grad) {dtype=f32}
  %shift = sum(%g) {axes=[1], keepdim=false, dtype=null}
  %shift_row = broadcast_in_dim(%shift) {shape=[8, 1, 10], dims=[0, 2]}
  %shift_sum = sum(%shift_row) {axes=[1], keepdim=false, dtype=null}
  %grad_shift = cast(%shift_sum) {dtype=bf16}
  %normed_g = mul(%normed, %g)
  %gains = sum(%normed_g) {axes=[1], keepdim=false, dtype=null}
  %grad_gain = cast(%gains) {dtype=bf16}
  %g_normed = mul(%gain_f, %g)
  %bias_sum = sum(%g_normed) {axes=[0, 1], keepdim=false, dtype=null}
  %grad_bias: bf16[10] {mesh=@m} = cast(%bias_sum) {dtype=bf16}
  %g_xhat_hat = mul(%xhat, %g_normed)
  %weight_sum = sum(%g_xhat_hat) {axes=[0, 1], keepdim=false, dtype=null}
  %grad_weight: bf16[10] {mesh=@m} = cast(%weight_sum) {dtype=bf16}
  %g_xhat = mul(%weight_f, %g_normed)
  %direct = mul(%rstd_full, %g_xhat)
  %cg = mul(%centered, %g_xhat)
  %rows = sum(%cg) {axes=[2], keepdim=false, dtype=null}
  %by_rstd = broadcast_in_dim(%rows) {shape=[8, 6, 1], dims=[0, 1]}
  %negative = neg(%direct)
  %mean_rows = sum(%negative) {axes=[2], keepdim=false, dtype=null}
  %by_mean = broadcast_in_dim(%mean_rows) {shape=[8, 6, 10], dims=[0, 1]}
  %variance = mul(%by_rstd, %rstd)
  %variance_sum = sum(%variance) {axes=[2], keepdim=false, dtype=null}
  %variance_full = broadcast_in_dim(%variance_sum) {shape=[8, 6, 10], dims=[0, 1]}
  %variance_part = mul(%variance_full, %centered)
  %parts = add(%by_mean, %variance_part)
  %total = add(%direct, %parts)
  %grad_x = cast(%total) {dtype=bf16}
  return %grad_shift, %grad_gain, %grad_bias, %grad_weight, %grad_x
}
)";

TEST(Communications, LayerNormBackwardReducesItsBatchWideSumsAlone) {
  for (const int64_t ranks : {1, 2, 4}) {
    Result<Planned> planned = Plan(OnRanks(std::string(kLayerNormBackward), ranks));
    ASSERT_TRUE(planned.ok()) << planned.status().ToString();
    if (ranks == 1) {
      EXPECT_THAT((*planned).Types(), ElementsAre());
    } else {
      EXPECT_THAT((*planned).Types(), ElementsAre("Allreduce", "Allreduce"));
    }
    for (const Communication& c : (*planned).local.communications) EXPECT_EQ(ir::ToString(c.bytes), "40");
    ExpectSameValues(*planned, {{8, 6, 10}, {8, 6, 10}, {8, 1, 10}, {8, 6, 10}, {8, 6}, {8, 6, 1}, {8, 6, 10}}, 4e-3);
  }
}

constexpr std::string_view kRope = R"(
mesh @m = MESH
fusion @rope(%cos: bf16[6, 4] {mesh=@m}, %sin: bf16[6, 4] {mesh=@m}, %qkv: bf16[2, 6, 192] {SHARD(2)}) {
  %split = reshape(%qkv) {shape=[2, 6, 4, 6, 8]}
  %heads = permute(%split) {dims=[0, 2, 3, 1, 4]}
  %q_part = slice(%heads) {start=[0, 0, 0, 0, 0], end=[2, 4, 4, 6, 8], strides=[1, 1, 1, 1, 1]}
  %q = reshape(%q_part) {shape=[2, 16, 6, 8]}
  %k_part = slice(%heads) {start=[0, 0, 4, 0, 0], end=[2, 4, 5, 6, 8], strides=[1, 1, 1, 1, 1]}
  %k_full = expand(%k_part) {shape=[2, 4, 4, 6, 8]}
  %k = reshape(%k_full) {shape=[2, 16, 6, 8]}
  %head = slice(%q) {start=[0, 0, 0, 0], end=[2, 16, 6, 4], strides=[1, 1, 1, 1]}
  %first = slice(%head) {start=[0, 0, 0, 0], end=[2, 16, 6, 2], strides=[1, 1, 1, 1]}
  %second = slice(%head) {start=[0, 0, 0, 2], end=[2, 16, 6, 4], strides=[1, 1, 1, 1]}
  %minus = neg(%second)
  %turned = cat(%minus, %first) {axis=3}
  %cos_full = broadcast_in_dim(%cos) {shape=[2, 16, 6, 4], dims=[2, 3]}
  %sin_full = broadcast_in_dim(%sin) {shape=[2, 16, 6, 4], dims=[2, 3]}
  %straight = mul(%head, %cos_full)
  %cross = mul(%turned, %sin_full)
  %mixed = add(%straight, %cross)
  %rest = slice(%q) {start=[0, 0, 0, 4], end=[2, 16, 6, 8], strides=[1, 1, 1, 1]}
  %rotated: bf16[2, 16, 6, 8] {SHARD(1)} = cat(%mixed, %rest) {axis=3}
  %keys: bf16[2, 16, 6, 8] {SHARD(1)} = set(%k)
  return %rotated, %keys
}
)";

TEST(Communications, RopeNeedsNone) {
  for (const int64_t ranks : {1, 2, 4}) {
    Result<Planned> planned = Plan(OnRanks(std::string(kRope), ranks));
    ASSERT_TRUE(planned.ok()) << planned.status().ToString();
    EXPECT_THAT((*planned).Types(), ElementsAre()) << ir::Print(*(*planned).local.graph);
    ExpectSameValues(*planned, {{6, 4}, {6, 4}, {2, 6, 192}}, 0);
  }
}

constexpr std::string_view kMlp = R"(
mesh @m = MESH
fusion @mlp(%x: bf16[i0, 12] {mesh=@m}, %w1: bf16[24, 12] {SHARD(0)}, %b1: bf16[24] {SHARD(0)},
            %w2: bf16[12, 24] {SHARD(1)}, %b2: bf16[12] {mesh=@m}) {
  %h = linear(%x, %w1, %b1)
  %a = gelu(%h)
  %y: bf16[i0, 12, r:24] {mesh=@m} = linear(%a, %w2, %b2)
  return %y
}
)";

TEST(Communications, TensorParallelMlpReducesOnce) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    Result<Planned> planned = Plan(OnRanks(std::string(kMlp), ranks));
    ASSERT_TRUE(planned.ok()) << planned.status().ToString();
    ExpectSameValues(*planned, {{7, 12}, {24, 12}, {24}, {12, 24}, {12}}, 2e-2);
    if (ranks == 1) {
      EXPECT_THAT((*planned).Types(), ElementsAre());
      continue;
    }
    ASSERT_THAT((*planned).Types(), ElementsAre("Allreduce"));
    const Communication& c = (*planned).local.communications[0];
    EXPECT_EQ(c.tensor, "y");
    EXPECT_EQ(c.reason, "partial over mesh_x -> replicated");
    EXPECT_EQ(ir::ToString(c.bytes), "24*i0");
    EXPECT_EQ(c.teams.size(), 1u);
    EXPECT_EQ(std::ssize(c.teams[0]), ranks);
  }
}

TEST(Communications, SequenceParallelMlpScattersAndGathers) {
  std::string text(kMlp);
  text.replace(text.find("{mesh=@m}"), 9, "{SHARD(0)}");
  text.replace(text.find("%h ="), 4, "%h: bf16[i0, 24, r:12] {SHARD(1)} =");
  text.replace(text.find("r:24] {mesh=@m}"), 15, "r:24] {SHARD(0)}");
  Result<Planned> planned = Plan(OnRanks(text, 4));
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  EXPECT_THAT((*planned).Types(), ElementsAre("Allgather", "ReduceScatter")) << ir::Print(*(*planned).local.graph);
  ExpectSameValues(*planned, {{8, 12}, {24, 12}, {24}, {12, 24}, {12}}, 2e-2);
}

TEST(Communications, TwoDimensionsReduceAlongOne) {
  Result<Planned> planned = Plan(R"(
mesh @m = [[3, 1], [0, 2]]
fusion @sums(%x: f64[i0, i1] {mesh=@m, outer_split(0, 2), outer_split(2, 2),
                              parallelize(0, mesh_y), parallelize(2, mesh_x)}) {
  %s: f64[i0, r:i1] {mesh=@m, outer_split(0, 2), parallelize(0, mesh_y)} = sum(%x) {axes=[1], keepdim=false, dtype=null}
  return %s
}
)");
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  ASSERT_THAT((*planned).Types(), ElementsAre("Allreduce"));
  EXPECT_THAT((*planned).local.communications[0].teams, ElementsAre(ElementsAre(3, 1), ElementsAre(0, 2)));
  ExpectSameValues(*planned, {{6, 8}}, 1e-12);
}

TEST(Communications, GuardsNameTensorAxisAndFactor) {
  Result<Planned> planned = Plan(R"(
mesh @m = [0, 1, 2, 3]
fusion @rows(%x: f32[i0, i1] {mesh=@m, outer_split(0, 4), parallelize(0, mesh_x)}) {
  %y = exp(%x)
  %z = reshape(%y) {shape=[i0*i1]}
  return %z
}
)");
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  ASSERT_EQ((*planned).local.graph->guards.size(), 1u);
  const ir::Guard& guard = (*planned).local.graph->guards[0];
  EXPECT_EQ(ir::ToString(guard.left), "i0 mod 4");
  EXPECT_EQ(ir::ToString(guard.right), "0");
  EXPECT_EQ(guard.reason, "x: axis 0 split 4 ways over mesh_x");
  EXPECT_THAT((*planned).Types(), ElementsAre());
  ExpectSameValues(*planned, {{8, 3}}, 1e-6);
}

// The copy of %x that %y is computed from is dealt, too, and comes first; the user knows of %y.
TEST(Communications, DealtSizesAreRefusedByTheNameOfTheUser) {
  constexpr std::string_view kDealt = R"(
mesh @m = [0, 1]
fusion @deal(%x: f32[i0] {mesh=@m}) {
  %y {mesh=@m, inner_split(0, 2), parallelize(1, mesh_x)} = neg(%x)
  return %y
}
)";
  EXPECT_THAT(Plan(kDealt, {.sizes = {{"i0", 7}}}).status().ToString(),
              testing::StartsWith("INVALID_ARGUMENT: y: axis 0 dealt 2 ways over mesh_x has 7 elements, "));
  const Result<Planned> any = Plan(kDealt);
  ASSERT_TRUE(any.ok()) << any.status().ToString();
  ASSERT_EQ((*any).local.graph->guards.size(), 1u);
  EXPECT_EQ((*any).local.graph->guards[0].reason, "y: axis 0 dealt 2 ways over mesh_x");
}

TEST(Communications, BoundariesAreGlobal) {
  Result<Planned> planned = Plan(OnRanks(std::string(kMlp), 4));
  ASSERT_TRUE(planned.ok());
  const LocalProgram& local = (*planned).local;
  ASSERT_EQ(local.inputs.size(), 5u);
  EXPECT_EQ(local.inputs[3].name, "w2");
  EXPECT_EQ(ir::ToString(*local.inputs[3].global), "bf16[12, 24]");
  EXPECT_EQ(ir::ToString(*local.inputs[3].local->type), "bf16[12, 6]");
  EXPECT_EQ(local.inputs[3].sharding->ToString(), "axis 1 split 4 ways over mesh_x");
  EXPECT_EQ(ir::ToString(*local.outputs[0].global), "bf16[i0, 12]");
  EXPECT_EQ(local.outputs[0].sharding->ToString(), "replicated");
}

// Ranks 2 and 3 have a block of one element, which is padding: it is not the greatest of anything.
TEST(Communications, BlocksOfOneElementMayBePadding) {
  Result<Planned> planned = Plan(R"(
mesh @m = [0, 1, 2, 3]
fusion @greatest(%x: f32[5, 2] {mesh=@m, shard(1, mesh_x)}) {
  %abs = abs(%x)
  %below = neg(%abs)
  %rows: f32[5, 2] {mesh=@m, shard(0, mesh_x)} = set(%below)
  %columns: f32[5, 2] {mesh=@m, shard(1, mesh_x)} = set(%rows)
  %y = max(%columns) {axes=[1], keepdim=false, dtype=null}
  %z = sum(%columns) {axes=[1], keepdim=false, dtype=null}
  return %y, %z
}
)");
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  ExpectSameValues(*planned, {{5, 2}}, 1e-6);
}

// 4 * i0 bytes, gathered from two halves: a rank holds its own and all, 6 * i0 bytes.
TEST(Communications, MemoryOfAReshardingIsBounded) {
  constexpr std::string_view kGather = R"(
mesh @m = [0, 1]
fusion @gather(%x: f32[i0] {mesh=@m, outer_split(0, 2), parallelize(0, mesh_x)}) {
  %y: f32[i0] {mesh=@m} = set(%x)
  return %y
}
)";
  const auto bounded = [&](int64_t bytes, SymbolSizes sizes) {
    return Plan(kGather, {.sizes = std::move(sizes), .resharding_bytes_max = bytes});
  };
  EXPECT_TRUE(bounded(6 * 1000, {{"i0", 1000}}).ok());
  EXPECT_EQ(bounded(6 * 1000 - 1, {{"i0", 1000}}).status().ToString(),
            "RESOURCE_EXHAUSTED: %y: resharding from axis 0 split 2 ways over mesh_x to replicated: "
            "every sequence of steps holds more than resharding_bytes_max = 5999 bytes on a rank at "
            "once (at least 6000); raise it, or split the tensor further");
  // Without sizes a guard says up to which the plan serves; beyond, one for the sizes is asked for, and refused.
  const Result<Planned> any = bounded(6 * 1000, {});
  ASSERT_TRUE(any.ok()) << any.status().ToString();
  const std::vector<ir::Guard>& guards = (*any).local.evenness;
  ASSERT_EQ(guards.size(), 2u);
  EXPECT_EQ(ir::ToString(guards[0].left), "i0 mod 2");
  EXPECT_EQ(Cat(ir::ToString(guards[1].left), " <= ", ir::ToString(guards[1].right)), "i0 <= 1000");
  EXPECT_EQ(guards[1].reason, "x: resharded within resharding_bytes_max = 6000 bytes");
  EXPECT_THAT((*any).local.graph->guards, testing::SizeIs(2));
  // Blocks of 501 and 500 are padded: what holds for 1,001 says nothing of 1,002.
  const Result<Planned> uneven = bounded(1 << 20, {{"i0", 1001}});
  ASSERT_TRUE(uneven.ok()) << uneven.status().ToString();
  EXPECT_EQ(ir::ToString((*uneven).local.evenness.back().right), "1001");
  EXPECT_THAT(Plan(kGather)->local.evenness, testing::SizeIs(1)) << "no bound, no guard";
}

// What only a library would store must not come out stored once: 4 rows of 2, each two equal.
TEST(Communications, PartsStoreWhatTheWholeStores) {
  Result<Planned> planned = Plan(R"(
mesh @m = [0, 1, 2, 3]
fusion @pairs(%x: f32[4] {mesh=@m, outer_split(0, 4), parallelize(0, mesh_x)}) {
  %column = broadcast_in_dim(%x) {shape=[4, 2], dims=[0]}
  %flat: f32[8] {mesh=@m, outer_split(0, 4), parallelize(0, mesh_x)} = reshape(%column) {shape=[8]}
  return %flat
}
)");
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  ExpectSameValues(*planned, {{4}}, 0);
}

// Extents of parts may look like extent 1, which broadcasts, where those of the whole do not.
TEST(Communications, PartsOfOneElementDoNotBroadcast) {
  Result<Planned> planned = Plan(R"(
mesh @m = [0, 1, 2, 3]
fusion @ones(%x: f32[4, 3] {mesh=@m, outer_split(0, 4), parallelize(0, mesh_x)}, %y: f32[4, 1] {mesh=@m}) {
  %s = sum(%x) {axes=[0], keepdim=true, dtype=null}
  %t = mul(%x, %y)
  %u = sub(%t, %s)
  return %u
}
)");
  ASSERT_TRUE(planned.ok()) << planned.status().ToString();
  EXPECT_THAT((*planned).Types(), ElementsAre("Allreduce"));
  ExpectSameValues(*planned, {{4, 3}, {4, 1}}, 1e-6);
}

}  // namespace
}  // namespace hir::plan
