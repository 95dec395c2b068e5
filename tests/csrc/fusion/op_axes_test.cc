// Goal: AxesOf says where each result axis comes from. Method: its links as text, one op at a time.
#include "csrc/fusion/axes.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

std::string_view RelationName(AxisRelation relation) {
  switch (relation) {
    case AxisRelation::kSame: return "same";
    case AxisRelation::kBroadcast: return "broadcast";
    case AxisRelation::kReduced: return "reduced";
    case AxisRelation::kContracted: return "contracted";
    case AxisRelation::kSliced: return "sliced";
    case AxisRelation::kPadded: return "padded";
    case AxisRelation::kConcatenated: return "concatenated";
    case AxisRelation::kSplitOuter: return "split_outer";
    case AxisRelation::kSplitInner: return "split_inner";
    case AxisRelation::kMergedOuter: return "merged_outer";
    case AxisRelation::kMergedInner: return "merged_inner";
    case AxisRelation::kGathered: return "gathered";
    case AxisRelation::kOpaque: return "opaque";
  }
  return "?";
}

// "a0>0 same": axis 0 of the first operand becomes axis 0 of the result.
std::string Links(std::string_view params, std::string_view op) {
  const auto graph = ir::Parse(Program(params, std::string("%y = ") + std::string(op)), kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return {};
  std::string text;
  for (const AxisLink& link : AxesOf(*(*graph)->body.last)) {
    text += (text.empty() ? "" : ", ") + std::string(1, static_cast<char>('a' + link.operand)) +
            std::to_string(link.operand_axis) + ">" + std::to_string(link.result_axis) + " ";
    text += RelationName(link.relation);
  }
  return text;
}

TEST(Axes, Pointwise) {
  EXPECT_EQ(Links("%a: f32[i0, i1], %b: f32[i1]", "add(%a, %b)"), "a0>0 same, a1>1 same, b0>1 same");
  EXPECT_EQ(Links("%a: f32[i0, 1], %b: f32[i0, 5]", "add(%a, %b)"), "a0>0 same, b0>0 same, a1>1 broadcast, b1>1 same");
  EXPECT_EQ(Links("%a: f32[b:4], %b: f32[4]", "add(%a, %b)"), "a0>0 broadcast, b0>0 same");
  EXPECT_EQ(Links("%a: f32[b:4], %b: f64", "add(%a, %b)"), "a0>0 same");
  EXPECT_EQ(Links("%a: f32[i0]", "cast(%a) {dtype=bf16}"), "a0>0 same");
}

TEST(Axes, Reductions) {
  EXPECT_EQ(Links("%a: f32[2, 3, 4]", "sum(%a) {axes=[1], keepdim=false, dtype=null}"),
            "a0>0 same, a1>1 reduced, a2>2 same");
  EXPECT_EQ(Links("%a: f32[2, 3]", "max(%a) {axes=[0], keepdim=true, dtype=null}"), "a0>0 reduced, a1>1 same");
}

TEST(Axes, ShapeOps) {
  EXPECT_EQ(Links("%a: f32[i0]", "broadcast(%a) {is_broadcast_dim=[1, 0]}"), "a0>1 same");
  EXPECT_EQ(Links("%a: f32[i0, 1]", "broadcast_in_dim(%a) {shape=[3, i0, 4], dims=[1, 2]}"),
            "a0>1 same, a1>2 broadcast");
  EXPECT_EQ(Links("%a: f32[i0, 1]", "expand(%a) {shape=[-1, 4]}"), "a0>0 same, a1>1 broadcast");
  EXPECT_EQ(Links("%a: f32[1, i0, 1]", "squeeze(%a) {axes=[0]}"), "a1>0 same, a2>1 same");
  EXPECT_EQ(Links("%a: f32[2, 3, 4]", "permute(%a) {dims=[2, 0, 1]}"), "a2>0 same, a0>1 same, a1>2 same");
  EXPECT_EQ(Links("%a: f32[4, 5]", "slice(%a) {start=[0, 1], end=[4, 5], strides=[1, 1]}"), "a0>0 same, a1>1 sliced");
  EXPECT_EQ(Links("%a: f32[4, 5]", "pad(%a) {widths=[1, 0], value=0.0}"), "a0>0 same, a1>1 padded");
  EXPECT_EQ(Links("%a: f32[4, 5], %b: f32[4, 2]", "cat(%a, %b) {axis=1}"),
            "a0>0 same, b0>0 same, a1>1 concatenated, b1>1 concatenated");
  EXPECT_EQ(Links("%a: f32[i0]", "full() {shape=[i0], value=0.0, dtype=f32}"), "");
}

TEST(Axes, TakeAlongAxis) {
  EXPECT_EQ(Links("%a: f32[i0, i1], %b: i64[i0, 3]", "take_along_axis(%a, %b) {axis=1}"),
            "a0>0 same, b0>0 same, a1>1 gathered, b1>1 same");
  EXPECT_EQ(Links("%a: f32[i0, 5], %b: i32[7, 1]", "take_along_axis(%a, %b) {axis=0}"),
            "a0>0 gathered, b0>0 same, a1>1 same, b1>1 broadcast");
}

TEST(Axes, IndexSum) {
  EXPECT_EQ(Links("%a: f32[i0, i1, b:5], %b: i64[i1]", "index_sum(%a, %b) {axis=1, size=i0}"),
            "a0>0 same, b0>1 opaque, a2>2 broadcast, a1>3 contracted, b0>3 contracted");
  EXPECT_EQ(Links("%a: bf16[7], %b: i32[7]", "index_sum(%a, %b) {axis=0, size=3}"),
            "b0>0 opaque, a0>1 contracted, b0>1 contracted");
}

TEST(Axes, Reshape) {
  EXPECT_EQ(Links("%a: f32[i0, 12, i1]", "reshape(%a) {shape=[i0, 3, 4, i1]}"),
            "a0>0 same, a1>1 split_outer, a1>2 split_inner, a2>3 same");
  EXPECT_EQ(Links("%a: f32[i0, i1, 5]", "reshape(%a) {shape=[i0*i1, 5]}"),
            "a0>0 merged_outer, a1>0 merged_inner, a2>1 same");
  EXPECT_EQ(Links("%a: f32[i0, 1, 5]", "reshape(%a) {shape=[1, i0, 5, 1]}"), "a0>1 same, a2>2 same");
  EXPECT_EQ(Links("%a: f32[4, 6]", "reshape(%a) {shape=[6, 4]}"), "a0>0 opaque, a1>0 opaque, a0>1 opaque, a1>1 opaque");
}

TEST(Axes, Contractions) {
  EXPECT_EQ(Links("%a: f32[m, k], %b: f32[k, n]", "matmul(%a, %b)"),
            "a0>0 same, b1>1 same, a1>2 contracted, b0>2 contracted");
  EXPECT_EQ(Links("%a: f32[5, 1, m, k], %b: f32[7, k, n]", "matmul(%a, %b)"),
            "a0>0 same, a1>1 broadcast, b0>1 same, a2>2 same, b2>3 same, a3>4 contracted, b1>4 "
            "contracted");
  EXPECT_EQ(Links("%a: f32[k], %b: f32[k, n]", "matmul(%a, %b)"), "b1>0 same, a0>1 contracted, b0>1 contracted");
  EXPECT_EQ(Links("%a: f32[i, k], %b: f32[n, k], %c: f32[n]", "linear(%a, %b, %c)"),
            "a0>0 same, b0>1 same, c0>1 same, a1>2 contracted, b1>2 contracted");
}

TEST(Axes, Grouped) {
  // Groups are whole on every rank, and a group begins where all before it have ended.
  EXPECT_EQ(Links("%a: f32[s, k], %b: f32[e, k, n], %c: i64[e]", "grouped_matmul(%a, %b, %c) {offset=[0, 0, 0]}"),
            "a0>0 same, b2>1 same, a1>2 contracted, b1>2 contracted");
  EXPECT_EQ(Links("%a: f32[b:3, k], %b: f32[e, n, k], %c: i64[e]",
                  "grouped_matmul(%a, %b, %c) {offset=[0, 0, 0], transposed=y}"),
            "a0>0 broadcast, b1>1 same, a1>2 contracted, b2>2 contracted");
  EXPECT_EQ(Links("%a: f32[s, k], %b: f32[s, n], %c: i32[e]", "grouped_outer(%a, %b, %c) {offset=[0, 0, 0, 0]}"),
            "c0>0 opaque, a1>1 same, b1>2 same, a0>3 contracted, b0>3 contracted");
}

TEST(Axes, Attention) {
  const std::string qkv = "%a: f32[b, h, m, d], %b: f32[h, n, d], %c: f32[5, 1, n, e]";
  // Keys, and the size that queries and keys share, are whole on every rank.
  EXPECT_EQ(Links(qkv, "attention(%a, %b, %c) {result=values, causal=true, offset=[0, 0, 0, 0], scale=1}"),
            "a0>0 broadcast, c0>0 same, a1>1 same, b0>1 same, c1>1 broadcast, a2>2 same, c3>3 same");
  EXPECT_EQ(Links("%a: f32[m, 2], %b: f32[n, 2], %c: f32[n, 3], %d: bool[h, 1, n]",
                  "attention(%a, %b, %c, %d) {result=lse, causal=false, offset=[0, 0], scale=1}"),
            "d0>0 same, a0>1 same, d1>1 broadcast");
  const std::string all =
      "%a: f32[m, d], %b: f32[n, d], %c: f32[n, e], %d: f32[m, e], %e: f32[m], %f: f32[m, e], %g: f32[1, n]";
  const auto gradient = [&](const std::string& of) {
    return Links(
        all, "attention_grad(%a, %b, %c, %d, %e, %f, %g) {result=" + of + ", causal=false, offset=[0, 0, 0], scale=1}");
  };
  EXPECT_EQ(gradient("q"),
            "a0>0 same, d0>0 same, e0>0 same, f0>0 same, g0>0 broadcast, a1>1 opaque, b1>1 opaque, b0>2 contracted, "
            "c0>2 contracted, g1>2 contracted");
  EXPECT_EQ(gradient("k"),
            "b0>0 same, c0>0 same, g1>0 same, a1>1 opaque, b1>1 opaque, a0>2 contracted, d0>2 contracted, "
            "e0>2 contracted, f0>2 contracted, g0>2 broadcast");
  EXPECT_EQ(gradient("v"),
            "b0>0 same, c0>0 same, g1>0 same, c1>1 same, d1>1 same, f1>1 same, a0>2 contracted, d0>2 contracted, "
            "e0>2 contracted, f0>2 contracted, g0>2 broadcast");
}

TEST(Axes, Communications) {
  const auto of = [](const std::string& type, const std::string& op) {
    const std::string text =
        "mesh @m = [0, 1]\nmesh @n = [2, 3]\nmesh @o = [1]\nmesh @p = [1, 0]\n"
        "fusion @f(%x: " +
        type + ") {\n  %y = " + op + "\n  return %y\n}\n";
    const auto graph = ir::Parse(text, kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    std::string links = ir::ToString(*(*graph)->outputs[0].value->type) + ":";
    for (const AxisLink& link : AxesOf(*(*graph)->body.last)) {
      links += " " + std::to_string(link.operand_axis) + ">" + std::to_string(link.result_axis);
    }
    return links;
  };
  EXPECT_EQ(of("f32[i0]", "allgather(%x) {mesh=@m, dim=mesh_x}"), "f32[2, i0]: 0>1");
  EXPECT_EQ(of("f32[2, i0]", "reduce_scatter(%x) {mesh=@m, dim=mesh_x, reduce=sum}"), "f32[i0]: 1>0");
  EXPECT_EQ(of("f32[i0]", "allreduce(%x) {mesh=@m, dim=mesh_x, reduce=sum}"), "f32[i0]: 0>0");
  EXPECT_EQ(of("f32[2, i0]", "all_to_all(%x) {mesh=@m, dim=mesh_x}"), "f32[2, i0]: 0>0 1>1");
  EXPECT_EQ(of("f32[i0]", "broadcast_to(%x) {from=@o, to=@n}"), "f32[i0]: 0>0");
  EXPECT_EQ(of("f32[i0]", "collective_permute(%x) {from=@m, to=@p}"), "f32[i0]: 0>0");
  EXPECT_EQ(of("f32[i0]", "gather_to(%x) {from=@m, to=@o}"), "f32[2, i0]: 0>1");
  EXPECT_EQ(of("f32[i0]", "reduce_to(%x) {from=@m, to=@o, reduce=max}"), "f32[i0]: 0>0");
  EXPECT_EQ(of("f32[2, i0]", "scatter_to(%x) {from=@o, to=@m}"), "f32[i0]: 1>0");
  EXPECT_EQ(of("f32[i0]", "send_recv(%x) {from=@m, to=@n}"), "f32[i0]: 0>0");
}

}  // namespace
}  // namespace hir::fusion
