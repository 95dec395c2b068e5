// Which products run in parts beside their communications: on GPUs those that it pays for, by sizes that were
// measured; elsewhere none. Whether keys of attention go round, likewise.
#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

using base::Cat;

std::string Text(std::string_view form, int64_t m, int64_t k, int64_t n) {
  const std::string mesh = "mesh @m = [0, 1]\n";
  // Rows seen as [ranks, rows of a rank], as benchmarks/gpu/overlap.py has them.
  if (form == "gather by rank") {
    return Cat(mesh, "fusion @f(%x: bf16[", m, ", ", k, "] {mesh=@m, shard(0, mesh_x)}, %w: bf16[", k, ", ", n,
               "] {mesh=@m, shard(1, mesh_x)}) {\n  %p: bf16[2, ", m / 2, ", ", k, "] = reshape(%x) {shape=[2, ", m / 2,
               ", ", k, "]}\n  %g: bf16[2, ", m / 2, ", ", k, "] {mesh=@m} = set(%p)\n  %z: bf16[2, ", m / 2, ", ", n,
               ", r:", k, "] {mesh=@m, shard(2, mesh_x)} = matmul(%g, %w)\n  %y: bf16[", m, ", ", n,
               "] = reshape(%z) {shape=[", m, ", ", n, "]}\n  return %y\n}\n");
  }
  if (form == "scatter by rank") {
    return Cat(mesh, "fusion @f(%x: bf16[", m, ", ", n, "] {mesh=@m, shard(1, mesh_x)}, %w: bf16[", n, ", ", k,
               "] {mesh=@m, shard(0, mesh_x)}) {\n  %p: bf16[2, ", m / 2, ", ", n, "] = reshape(%x) {shape=[2, ", m / 2,
               ", ", n, "]}\n  %z: bf16[2, ", m / 2, ", ", k, ", r:", n,
               "] {mesh=@m, shard(0, mesh_x)} = matmul(%p, %w)\n  %y: bf16[", m, ", ", k, "] = reshape(%z) {shape=[", m,
               ", ", k, "]}\n  return %y\n}\n");
  }
  if (form == "gather") {
    return Cat(mesh, "fusion @f(%x: bf16[", m, ", ", k, "] {mesh=@m, shard(0, mesh_x)}, %w: bf16[", k, ", ", n,
               "] {mesh=@m, shard(1, mesh_x)}) {\n  %g: bf16[", m, ", ", k, "] {mesh=@m} = set(%x)\n  %y: bf16[", m,
               ", ", n, ", r:", k, "] {mesh=@m, shard(1, mesh_x)} = matmul(%g, %w)\n  return %y\n}\n");
  }
  return Cat(mesh, "fusion @f(%x: bf16[", m, ", ", n, "] {mesh=@m, shard(1, mesh_x)}, %w: bf16[", n, ", ", k,
             "] {mesh=@m, shard(0, mesh_x)}) {\n  %y: bf16[", m, ", ", k, ", r:", n, "] {mesh=@m",
             form == "scatter" ? ", shard(0, mesh_x)" : "", "} = matmul(%x, %w)\n  return %y\n}\n");
}

// Calls of the program's one product.
int CallsOf(const std::string& text, const PlanOptions& options) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  PlanOptions of_two = options;
  of_two.num_devices = 2;
  const auto plan = PlanProgram(*std::move(graph), of_two);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  int calls = 0;
  for (const LoweredSegment& segment : plan->segments) {
    if (segment.kind == SegmentKind::kLibrary) calls += segment.launches;
  }
  return calls;
}

struct Case {
  int64_t m, k, n;
  bool gathers, scatters, sums;  // In parts.
};

// benchmarks/results/h100x2_overlap.json and h100x2_overlap_grid.json say which were faster.
TEST(Overlap, IsChosenWhereItWasFaster) {
  const PlanOptions on_gpus = {.target = codegen::kHopper};
  for (const Case& c : {Case{8192, 8192, 28672, true, true, true}, Case{8192, 4096, 14336, true, true, true},
                        Case{4096, 4096, 4096, true, true, false}, Case{2048, 4096, 14336, true, true, true},
                        Case{1024, 4096, 14336, true, true, false}, Case{1024, 8192, 8192, true, true, false},
                        Case{512, 8192, 28672, true, false, false}, Case{64, 8192, 28672, false, false, false},
                        // Parts of few rows; sums of few terms.
                        Case{256, 32768, 1024, false, false, false}, Case{8192, 8192, 1024, true, false, false}}) {
    SCOPED_TRACE(Cat(c.m, "x", c.k, "x", c.n));
    EXPECT_EQ(CallsOf(Text("gather", c.m, c.k, c.n), on_gpus), c.gathers ? 2 : 1);
    EXPECT_EQ(CallsOf(Text("gather by rank", c.m, c.k, c.n), on_gpus), c.gathers ? 2 : 1);
    EXPECT_EQ(CallsOf(Text("scatter by rank", c.m, c.k, c.n), on_gpus), c.scatters ? 2 : 1);
    EXPECT_EQ(CallsOf(Text("scatter", c.m, c.k, c.n), on_gpus), c.scatters ? 2 : 1);
    EXPECT_EQ(CallsOf(Text("sum", c.m, c.k, c.n), on_gpus), c.sums ? 2 : 1);
  }
}

std::vector<std::string> NotesOf(const std::string& text, const PlanOptions& options) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  PlanOptions of_two = options;
  of_two.num_devices = 2;
  auto plan = PlanProgram(*std::move(graph), of_two);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan->notes;
}

TEST(Overlap, SaysWhatWasChosenAndWhy) {
  using Notes = std::vector<std::string>;
  const PlanOptions on_gpus = {.target = codegen::kHopper};
  EXPECT_EQ(NotesOf(Text("gather", 8192, 8192, 28672), on_gpus), Notes{"y: 2 parts of 4096 rows beside allgather g.1"});
  EXPECT_EQ(NotesOf(Text("gather", 64, 8192, 28672), on_gpus),
            Notes{"y: whole behind allgather g.1: parts of 32 rows (from 256 on), 512 KiB a rank (from 4096 on)"});
  EXPECT_EQ(NotesOf(Text("scatter", 8192, 8192, 28672), on_gpus),
            Notes{"y.partial: 2 parts of 4096 rows beside all_to_all y.1"});
  EXPECT_EQ(NotesOf(Text("sum", 1024, 4096, 14336), on_gpus),
            Notes{"y.partial: whole before allreduce y: parts of 512 rows (from 1024 on), 4096 KiB a rank (from 8192 "
                  "on)"});
  EXPECT_EQ(NotesOf(Text("sum", 4096, 4096, 4096), on_gpus),
            Notes{"y.partial: whole before allreduce y: sums of 2048 terms (from 4096 on)"});
  EXPECT_EQ(NotesOf(Text("scatter", 512, 8192, 28672), on_gpus),
            Notes{"y.partial: whole before reduce_scatter y: parts of 256 rows (from 512 on)"});
  EXPECT_EQ(NotesOf(Text("gather", 8, 8, 8), {.overlap = OverlapChoice::kAlways}),
            Notes{"y: 2 parts of 4 rows beside allgather g.1"});
  EXPECT_EQ(NotesOf(Text("gather", 8192, 8192, 28672), {}),
            Notes{"y: whole behind allgather g.1: the cores that multiply are those that copy"});
  EXPECT_EQ(NotesOf(Text("gather", 64, 64, 64), {.overlap = OverlapChoice::kNever}), Notes{});
  EXPECT_EQ(NotesOf("fusion @f(%x: f32[8, 8], %w: f32[8, 8]) {\n  %y = matmul(%x, %w)\n  return %y\n}\n", on_gpus),
            Notes{});
}

// On CPUs, too, a link between nodes carries what it does while the cores multiply.
TEST(Overlap, BetweenNodesLinksDecide) {
  const plan::Links two = {.node_of = {0, 1}, .of_node = {{1e-4, 1.25e8}, {1e-4, 1.25e8}}};  // 100 us, 1 Gbit/s.
  const plan::Links slow = {.node_of = {0, 1}, .of_node = {{1e-4, 1.25e8}, {0.1, 1.25e8}}};
  const plan::Links one = {.node_of = {0, 0}, .of_node = {{1e-4, 1.25e8}}};
  for (const char* form : {"gather", "gather by rank"}) {
    const std::string text = Text(form, 1024, 1024, 1024);  // 1 MiB a rank.
    EXPECT_EQ(CallsOf(text, {.links = two}), 2) << form;
    EXPECT_EQ(CallsOf(text, {.links = slow}), 1) << form;  // A message takes as long as 12 MiB do.
    EXPECT_EQ(CallsOf(text, {.links = one}), 1) << form;
    EXPECT_EQ(CallsOf(text, {.links = two, .overlap = OverlapChoice::kNever}), 1) << form;
    EXPECT_EQ(CallsOf(Text(form, 64, 64, 64), {.links = two}), 1) << form;
  }
  EXPECT_EQ(CallsOf(Text("sum", 1024, 1024, 1024), {.links = two}), 1);
  const plan::Links shared = {.node_of = {0, 0, 1, 1}, .of_node = two.of_node};
  auto graph = ir::Parse(
      "mesh @m = [0, 1, 2, 3]\nfusion @f(%x: f32[4096, 1024] {mesh=@m, shard(0, mesh_x)}, %w: f32[1024, 1024]) {\n"
      "  %g: f32[4096, 1024] {mesh=@m} = set(%x)\n  %y: f32[4096, 1024, r:1024] {mesh=@m} = matmul(%g, %w)\n  return "
      "%y\n}\n",
      fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto plan = PlanProgram(*std::move(graph), {.num_devices = 4, .links = shared});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->notes, std::vector<std::string>{"y: whole behind allgather g.1: ranks of a node share its link"});
}

// Causal attention of queries and keys that are split along the sequence, of one head of 64.
std::string Attention(int64_t length, std::string_view dtype, std::string_view more = "return %y") {
  const auto tensor = [&](std::string_view name) {
    return Cat("%", name, ": ", dtype, "[", length, ", 64] {mesh=@m, shard(0, mesh_x)}");
  };
  return Cat("mesh @m = [0, 1]\nfusion @f(", tensor("q"), ", ", tensor("k"), ", ", tensor("v"), ", ", tensor("g"),
             ") {\n  %y = attention(%q, %k, %v) {result=values, causal=true, offset=[0, 0], scale=1.0}\n",
             "  %l = attention(%q, %k, %v) {result=lse, causal=true, offset=[0], scale=1.0}\n  ", more, "\n}\n");
}

// Where that was faster (benchmarks/gpu/ring.py, also with --device cpu).
TEST(Overlap, SaysWhetherKeysGoRound) {
  using Notes = std::vector<std::string>;
  PlanOptions on_gpus = {.target = codegen::kHopper};
  on_gpus.target.cudnn = true;
  EXPECT_EQ(NotesOf(Attention(8192, "f32"), {}), Notes{"y: keys and values of 2048 KiB a rank go round 2 ranks"});
  EXPECT_EQ(NotesOf(Attention(8190, "f32"), {}),
            Notes{"y: keys and values are gathered: 2047 KiB a rank (from 2048 on)"});
  EXPECT_EQ(NotesOf(Attention(131072, "bf16"), on_gpus),
            Notes{"y: keys and values of 16384 KiB a rank go round 2 ranks"});
  EXPECT_EQ(NotesOf(Attention(65536, "bf16"), on_gpus),
            Notes{"y: keys and values are gathered: 8192 KiB a rank (from 16384 on)"});
  EXPECT_EQ(NotesOf(Attention(4, "f32"), {.overlap = OverlapChoice::kAlways}),
            Notes{"y: keys and values of 1 KiB a rank go round 2 ranks"});
  EXPECT_EQ(NotesOf(Attention(8192, "f32"), {.overlap = OverlapChoice::kNever}), Notes{});
  EXPECT_EQ(NotesOf(Attention(8192, "f32", "%w {mesh=@m} = set(%v)\n  return %y, %w"), {}),
            Notes{"y: keys and values are gathered: all ranks want them"});
  EXPECT_EQ(NotesOf(Attention(8192, "f32", "%w {mesh=@m} = set(%v)\n  %z = neg(%w)\n  return %y, %z"), {}),
            Notes{"y: keys and values are gathered: z reads them whole"});
  // Gradients of keys that all want whole need all keys, and so do the values then.
  EXPECT_EQ(NotesOf(Attention(8192, "f32",
                              "%d {mesh=@m} = attention_grad(%q, %k, %v, %g, %l, %y) {result=k, causal=true, "
                              "offset=[0, 0, 0], scale=1.0}\n  return %y, %d"),
                    {}),
            (Notes{"d: keys and values are gathered: its result is not scattered as they are",
                   "y: keys and values are gathered: d reads them whole"}));
}

// Between nodes the time of a message decides, as for products.
TEST(Overlap, KeysGoRoundNodes) {
  const plan::Links two = {.node_of = {0, 1}, .of_node = {{1e-4, 1.25e8}, {1e-4, 1.25e8}}};  // 100 us, 1 Gbit/s.
  const plan::Links slow = {.node_of = {0, 1}, .of_node = {{1e-2, 1.25e8}, {1e-2, 1.25e8}}};
  EXPECT_EQ(NotesOf(Attention(4096, "f32"), {.links = two}),
            std::vector<std::string>{"y: keys and values of 1024 KiB a rank go round 2 ranks"});
  EXPECT_EQ(NotesOf(Attention(4096, "f32"), {.links = slow}),
            std::vector<std::string>{"y: keys and values are gathered: 1024 KiB a rank (from 19531 on)"});
}

TEST(Overlap, IsAsOneAsks) {
  for (const char* form : {"gather", "gather by rank", "scatter", "scatter by rank", "sum"}) {
    const std::string large = Text(form, 8192, 8192, 28672), small = Text(form, 4, 8, 6);
    EXPECT_EQ(CallsOf(large, {}), 1) << form;  // On CPUs.
    EXPECT_EQ(CallsOf(large, {.target = codegen::kHopper, .overlap = OverlapChoice::kNever}), 1) << form;
    EXPECT_EQ(CallsOf(small, {.overlap = OverlapChoice::kAlways}), 2) << form;
    EXPECT_EQ(CallsOf(small, {.target = codegen::kHopper}), 1) << form;
  }
}

}  // namespace
}  // namespace hir::host
