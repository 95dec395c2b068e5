// Goal: keys that go round the ranks make what keys that all have make. Method: random attention programs whose queries
// and keys are split along the sequence over 2 to 4 ranks, along either dimension of a mesh, with batches split along
// the other, heads that share keys, causal ones whose queries are ahead of keys or have none, and gradients; planned so
// that keys go round whatever their size, and run on simulated ranks (with random delays) and over UCX; against the
// interpreter. HOSTIR_SEEDS=N runs N programs.
#include <gtest/gtest.h>

#include <iostream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/liveness.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

using base::Cat;
using fusion::HostTensor;

// A program and the shapes of its inputs.
struct Made {
  std::string text = {};
  int64_t num_ranks = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::vector<int64_t>> shapes = {};
  bool has_gradients = false;
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  Made Make() {
    const bool square = random_.OneIn(3);
    const int64_t ways = square ? 2 : random_.Between(2, 4);
    const bool along_y = square && random_.OneIn(2);
    made_.num_ranks = square ? 4 : ways;
    made_.dtype = std::array{DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kBFloat16}[random_.Next() % 4];
    const int64_t rank = random_.Between(2, 4);
    const int64_t batch = random_.Between(1, 2) * (square ? 2 : 1), heads = random_.Between(1, 3);
    const bool splits_batch = square && rank > 2 && random_.OneIn(2), shares = random_.OneIn(2);
    const int64_t m = ways * random_.Between(1, 4);
    const int64_t n = random_.OneIn(3) ? m : ways * random_.Between(1, 4);
    const int64_t d = random_.Between(1, 5), e = random_.OneIn(2) ? d : random_.Between(1, 5);
    made_.has_gradients = random_.OneIn(2);
    // Gathering a few queries would be less than passing on keys of any number.
    const std::string symbol = random_.OneIn(3) && (m == n || !made_.has_gradients) ? "i0" : "";
    const auto param = [&](std::string_view name, int64_t own_heads, int64_t rows, int64_t columns) {
      std::vector<int64_t> shape = {batch, own_heads, rows, columns};
      shape.erase(shape.begin() + (rank - 2), shape.begin() + 2);
      std::vector<std::string> extents;
      for (const int64_t extent : shape) extents.push_back(base::Cat(extent));
      if (!symbol.empty() && rows == n) extents[extents.size() - 2] = symbol;
      const std::string other = splits_batch ? Cat(", shard(0, ", along_y ? "mesh_x" : "mesh_y", ")") : "";
      params_.push_back(Cat("%", name, ": ", DTypeName(made_.dtype), "[", base::Join(extents, ", "),
                            "] {mesh=@m, shard(", rank - 2, ", ", along_y ? "mesh_y" : "mesh_x", ")", other, "}"));
      made_.shapes.push_back(std::move(shape));
    };
    param("q", heads, m, d);
    param("k", shares ? 1 : heads, n, d);
    const bool one_tensor = d == e && random_.OneIn(4);
    if (!one_tensor) param("v", shares ? 1 : heads, n, e);
    if (made_.has_gradients) param("g", heads, m, e);
    attrs_ = Cat("causal=", random_.OneIn(3) ? "false" : "true", ", scale=", random_.OneIn(2) ? "0.5" : "-0.25");
    from_ = random_.OneIn(2) ? 0 : random_.Between(-m, n);
    operands_ = Cat("%q, %k, ", one_tensor ? "%k" : "%v");
    std::vector<std::string> returned;
    const auto line = [&](std::string_view name, std::string_view op, std::string_view more, std::string_view result,
                          int64_t axes, int64_t at) {
      std::vector<int64_t> offset(static_cast<size_t>(axes), 0);
      offset[static_cast<size_t>(at)] = from_;
      base::Append(body_, "  %", name, " = ", op, "(", operands_, more, ") {result=", result, ", offset=[",
                   base::JoinInts(offset, ", "), "], ", attrs_, "}\n");
      returned.push_back(Cat("%", name));
    };
    const bool wants_values = made_.has_gradients || !random_.OneIn(4);
    if (made_.has_gradients || !wants_values || random_.OneIn(2)) line("l", "attention", "", "lse", rank - 1, rank - 2);
    if (wants_values) line("y", "attention", "", "values", rank, rank - 2);
    for (const std::string result : {"q", "k", "v"}) {
      if (!made_.has_gradients || random_.OneIn(4)) continue;
      const int64_t queries = result == "q" ? rank - 2 : rank;
      line("d" + result, "attention_grad", ", %g, %l, %y", result, rank + 1, queries);
      if (result == "q" || rank < 4 || !shares || random_.OneIn(3)) continue;
      base::Append(body_, "  %s", result, " = sum(%d", result,
                   random_.OneIn(3)   ? ") {axes=[1, 3], keepdim="
                   : random_.OneIn(3) ? ") {axes=[3], keepdim="
                                      : ") {axes=[1], keepdim=",
                   random_.OneIn(2) ? "true" : "false", ", dtype=null}\n");
      returned.back() = Cat("%s", result);
    }
    const std::string mesh = square      ? "[[0, 1], [2, 3]]"
                             : ways == 2 ? "[0, 1]"
                             : ways == 3 ? "[2, 0, 1]"
                                         : "[0, 1, 2, 3]";
    made_.text = Cat("mesh @m = ", mesh, "\nfusion @f(", base::Join(params_, ", "), ") {\n", body_, "  return ",
                     base::Join(returned, ", "), "\n}\n");
    return std::move(made_);
  }

 private:
  base::Prng random_;
  Made made_;
  int64_t from_ = 0;
  std::string attrs_, operands_, body_;
  std::vector<std::string> params_;
};

std::vector<HostTensor> InputsOf(const Made& made, uint64_t seed) {
  base::Prng random(seed);
  std::vector<HostTensor> inputs;
  for (const std::vector<int64_t>& shape : made.shapes) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    std::vector<double> values(static_cast<size_t>(elements));
    for (double& value : values) value = 4 * random.Unit() - 2;
    inputs.push_back(fusion::TensorOf(made.dtype, shape, values));
  }
  return inputs;
}

double ToleranceOf(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-12;
  if (dtype == DType::kFloat32) return 1e-4;
  return 0.5;  // Results of up to 50 are rounded, and gradients read rounded values.
}

// `all_ranks`: of UCX; null: simulated ones.
void RunSeeds(uint64_t count, const std::function<Ranks*(int64_t num_ranks)>& ranks) {
  codegen::cpu::Compiler compiler({});
  const Seeds seeds = SeedsFromEnvironment({.first = 70000, .count = count});
  int64_t steps = 0, gradients = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const Made made = Maker(seed).Make();
    SCOPED_TRACE(Cat("HOSTIR_SEED=", seed, "\n", made.text));
    auto graph = ir::Parse(made.text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const std::vector<HostTensor> inputs = InputsOf(made, seed);
    const auto expected = fusion::Interpret(**graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan =
        host::PlanProgram(*std::move(graph), {.num_devices = made.num_ranks, .overlap = host::OverlapChoice::kAlways});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    for (const plan::Communication& each : plan->local.communications)
      EXPECT_EQ(each.type, "CollectivePermute") << each.tensor << ": " << each.reason;
    steps += std::ssize(plan->local.communications);
    gradients += made.has_gradients ? 1 : 0;
    const auto outputs =
        RunOnRanks(*plan, inputs,
                   {.num_ranks = made.num_ranks, .seed = seed, .ranks = ranks(made.num_ranks), .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < expected->size(); ++i)
      ASSERT_EQ(Difference((*outputs)[i], (*expected)[i], ToleranceOf(made.dtype)), "") << i;
  }
  std::cout << seeds.count << " programs equal, seeds from " << seeds.first << ": " << gradients
            << " with gradients, keys passed on or gradients sent " << steps << " times\n";
}

TEST(RingProperty, EqualsKeysThatAllHave) {
  RunSeeds(120, [](int64_t) { return nullptr; });
}

TEST(RingProperty, EqualsKeysThatAllHaveOverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  std::map<int64_t, std::unique_ptr<Ranks>> made;
  RunSeeds(40, [&](int64_t num_ranks) {
    std::unique_ptr<Ranks>& ranks = made[num_ranks];
    if (ranks == nullptr) ranks = *MakeUcxRanks(num_ranks);
    return ranks.get();
  });
}

// Programs by hand. Each is compared with the interpreter and, where `ranks` have copies, those bit by bit.
struct Special {
  std::string_view name, text;
  int64_t ranks = 4;
  std::vector<std::vector<int64_t>> shapes = {};
  bool goes_round = false;
};

const Special kSpecials[] = {
    {"keys that are queries, too",
     R"(mesh @m = [0, 1]
fusion @f(%k: f32[8, 4] {mesh=@m, shard(0, mesh_x)}) {
  %w {mesh=@m} = set(%k)
  %y = attention(%w, %w, %w) {result=values, causal=true, offset=[0, 0], scale=0.5}
  return %y
})",
     2,
     {{8, 4}}},
    {"keys of one call that are queries of another",
     R"(mesh @m = [0, 1, 2, 3]
fusion @f(%q: f32[16, 8] {mesh=@m, shard(0, mesh_x)}, %k: f32[16, 8] {mesh=@m, shard(0, mesh_x)}) {
  %w {mesh=@m} = set(%k)
  %y = attention(%q, %w, %w) {result=values, causal=true, offset=[0, 0], scale=0.5}
  %z = attention(%w, %q, %q) {result=values, causal=true, offset=[0, 0], scale=0.5}
  return %y, %z
})",
     4,
     {{16, 8}, {16, 8}}},
    {"keys that are a gradient, too",
     R"(mesh @m = [0, 1, 2, 3]
fusion @f(%q: f32[16, 8] {mesh=@m, shard(0, mesh_x)}, %k: f32[16, 8] {mesh=@m, shard(0, mesh_x)},
          %l: f32[16] {mesh=@m, shard(0, mesh_x)}) {
  %w {mesh=@m} = set(%k)
  %d {mesh=@m} = attention_grad(%q, %w, %w, %w, %l, %q) {result=q, causal=true, offset=[0, 0, 0], scale=0.5}
  return %d
})",
     4,
     {{16, 8}, {16, 8}, {16}}},
    // Each rank would add up in an order of its own.
    {"queries that all ranks have",
     R"(mesh @m = [0, 1, 2, 3]
fusion @f(%q: f32[16, 8] {mesh=@m}, %k: f32[64, 8] {mesh=@m, shard(0, mesh_x)}) {
  %y {mesh=@m} = attention(%q, %k, %k) {result=values, causal=false, offset=[0, 0], scale=0.5}
  return %y
})",
     4,
     {{16, 8}, {64, 8}}},
    {"queries that are split along another dimension",
     R"(mesh @m = [[0, 1, 2], [3, 4, 5]]
fusion @f(%q: f32[16, 8] {mesh=@m, shard(0, mesh_y)}, %k: f32[12, 8] {mesh=@m, shard(0, mesh_x)}) {
  %y = attention(%q, %k, %k) {result=values, causal=false, offset=[0, 0], scale=0.5}
  return %y
})",
     6,
     {{16, 8}, {12, 8}}},
    {"queries that are split along both",
     R"(mesh @m = [[0, 1, 2], [3, 4, 5]]
fusion @f(%q: f32[12, 8] {mesh=@m, shard(0, mesh_y), shard(0, mesh_x)}, %k: f32[12, 8] {mesh=@m, shard(0, mesh_x)}) {
  %y = attention(%q, %k, %k) {result=values, causal=true, offset=[0, 0], scale=0.5}
  return %y
})",
     6,
     {{12, 8}, {12, 8}},
     true},
    {"permutes that part",
     R"(mesh @a = [0, 1, 2, 3]
mesh @b = [1, 2, 3, 0]
mesh @c = [2, 3, 0, 1]
mesh @d = [3, 0, 1, 2]
mesh @e = [1, 0, 3, 2]
fusion @f(%x: f32[16, 8] {mesh=@a, shard(0, mesh_x)}) {
  %p {mesh=@b, shard(0, mesh_x)} = set(%x)
  %q {mesh=@c, shard(0, mesh_x)} = set(%p)
  %s {mesh=@d, shard(0, mesh_x)} = set(%q)
  %t {mesh=@e, shard(0, mesh_x)} = set(%q)
  %u {mesh=@e, shard(0, mesh_x)} = set(%p)
  %v {mesh=@a, shard(0, mesh_x)} = set(%u)
  %y = neg(%s)
  %z = exp(%t)
  %w = abs(%v)
  return %y, %z, %w
})",
     4,
     {{16, 8}},
     true},
};

TEST(RingProperty, SpecialPrograms) {
  codegen::cpu::Compiler compiler({});
  for (const Special& special : kSpecials) {
    SCOPED_TRACE(special.name);
    auto graph = ir::Parse(special.text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const std::vector<HostTensor> inputs = InputsOf({.shapes = special.shapes}, 1);
    const auto expected = fusion::Interpret(**graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan =
        host::PlanProgram(*std::move(graph), {.num_devices = special.ranks, .overlap = host::OverlapChoice::kAlways});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const bool goes_round = std::ranges::any_of(
        plan->local.communications, [](const plan::Communication& each) { return each.type == "CollectivePermute"; });
    EXPECT_EQ(goes_round, special.goes_round);
    for (const uint64_t seed : {1, 2, 3}) {
      const auto outputs = RunOnRanks(*plan, inputs, {.num_ranks = special.ranks, .seed = seed, .compiler = &compiler});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
      for (size_t i = 0; i < expected->size(); ++i) EXPECT_EQ(Difference((*outputs)[i], (*expected)[i], 1e-5), "") << i;
    }
  }
}

// A part of a gradient may be beyond f16 where the whole is not.
TEST(RingProperty, GradientsOfHalvesAreGathered) {
  auto graph = ir::Parse(
      R"(mesh @m = [0, 1]
fusion @f(%q: f16[2, 1] {mesh=@m, shard(0, mesh_x)}, %k: f16[2, 1] {mesh=@m, shard(0, mesh_x)},
          %v: f16[2, 1] {mesh=@m, shard(0, mesh_x)}, %g: f16[2, 1] {mesh=@m, shard(0, mesh_x)}) {
  %y = attention(%q, %k, %v) {result=values, causal=false, offset=[0, 0], scale=1.0}
  %l = attention(%q, %k, %v) {result=lse, causal=false, offset=[0], scale=1.0}
  %d = attention_grad(%q, %k, %v, %g, %l, %y) {result=q, causal=false, offset=[0, 0, 0], scale=1.0}
  return %y, %d
})",
      fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto column = [](double a, double b) { return fusion::TensorOf(DType::kFloat16, {2, 1}, std::array{a, b}); };
  const std::vector<HostTensor> inputs = {column(0, 0), column(1000, 1000), column(2, -2), column(100, 100)};
  const auto expected = fusion::Interpret(**graph, inputs);
  auto plan = host::PlanProgram(*std::move(graph), {.num_devices = 2, .overlap = host::OverlapChoice::kAlways});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto outputs = RunOnRanks(*plan, inputs, {.num_ranks = 2});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  for (size_t i = 0; i < expected->size(); ++i) EXPECT_EQ(Difference((*outputs)[i], (*expected)[i], 0), "") << i;
}

// However many ranks there are, a rank holds some of their parts at a time.
TEST(RingProperty, MemoryIsThatOfAFewParts) {
  constexpr int64_t kRows = 64, kSize = 16;
  std::vector<int64_t> peaks;
  for (const int64_t ranks : {8, 16, 32}) {
    std::vector<int64_t> all(static_cast<size_t>(ranks));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    const auto tensor = [&](std::string_view name) {
      return Cat("%", name, ": f32[", ranks * kRows, ", ", kSize, "] {mesh=@m, shard(0, mesh_x)}");
    };
    const std::string options = "causal=true, scale=1.0";
    auto graph =
        ir::Parse(Cat("mesh @m = [", base::JoinInts(all, ", "), "]\nfusion @f(", tensor("q"), ", ", tensor("k"), ", ",
                      tensor("v"), ", ", tensor("g"), ", %l: f32[", ranks * kRows, "] {mesh=@m, shard(0, mesh_x)}) {\n",
                      "  %y = attention(%q, %k, %v) {result=values, offset=[0, 0], ", options, "}\n",
                      "  %dq = attention_grad(%q, %k, %v, %g, %l, %q) {result=q, offset=[0, 0, 0], ", options, "}\n",
                      "  %dk = attention_grad(%q, %k, %v, %g, %l, %q) {result=k, offset=[0, 0, 0], ", options, "}\n",
                      "  return %y, %dq, %dk\n}\n"),
                  fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const auto plan =
        host::PlanProgram(*std::move(graph), {.num_devices = ranks, .overlap = host::OverlapChoice::kAlways});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto bounds = BoundPools(*plan->host, ranks, {});
    ASSERT_TRUE(bounds.ok()) << bounds.status().ToString();
    int64_t peak = 0;
    for (const PoolBounds& of_rank : *bounds) peak = std::max(peak, of_rank.peak);
    peaks.push_back(peak / (kRows * kSize * 4));
  }
  std::cout << "in parts of the keys: " << base::JoinInts(peaks, ", ") << "\n";
  EXPECT_EQ(peaks[1], peaks[2]);
  EXPECT_LE(peaks[2], 20);  // Gathered keys and values alone would be 64.
}

}  // namespace
}  // namespace hir::testing
