// Goal: the Builder, Unify, Annotate, LoopDomain and copies do what builder.h and clone.h say.
// Method: small graphs built by hand, compared as text.
#include "csrc/ir/builder.h"

#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"
#include "tests/csrc/ir/test_ops.h"

namespace hir::ir {
namespace {

using mesh::DeviceMesh;
using mesh::ParallelType;

class BuilderTest : public testing::Test {
 protected:
  const Type* F32(std::vector<const Expr*> extents) {
    std::vector<Axis> axes;
    for (const Expr* extent : extents) axes.push_back({AxisKind::kIteration, extent});
    return graph.Tensor(DType::kFloat32, axes);
  }
  const Expr* S(std::string_view name) { return graph.exprs().Symbol(name); }
  const Expr* C(int64_t value) { return graph.exprs().Const(value); }

  Graph graph{kTestOps, "p"};
  Builder build{graph};
};

TEST_F(BuilderTest, TypesAreInterned) {
  EXPECT_EQ(F32({S("i"), C(4)}), F32({S("i"), C(4)}));
  EXPECT_NE(F32({S("i"), C(4)}), F32({S("i"), C(5)}));
}

TEST_F(BuilderTest, NamesVaryAndErasedNamesAreFree) {
  Value* x = graph.AddParam("x", F32({C(4)}));
  Value* a = build.Make("relu", {x}, {}, "y");
  Value* b = build.Make("relu", {a}, {}, "y");
  Value* c = build.Make("relu", {b}, {}, "y.1");
  Value* d = build.Make("relu", {c});
  EXPECT_EQ(a->name, "y");
  EXPECT_EQ(b->name, "y.1");
  EXPECT_EQ(c->name, "y.2");
  EXPECT_EQ(d->name, "v5");
  EXPECT_EQ(graph.FindValue("y.1"), b);
  graph.TakeName(*d, *a);
  EXPECT_EQ(d->name, "y");
  EXPECT_NE(a->name, "y");
  const std::string name(d->name);
  graph.body.Erase(d->def);
  EXPECT_EQ(graph.FindValue(name), nullptr);
  EXPECT_EQ(build.Make("relu", {x}, {}, "y")->name, "y");
}

TEST_F(BuilderTest, AFailedAddLeavesNothing) {
  Value* x = graph.AddParam("x", F32({C(4)}));
  Value* y = graph.AddParam("y", F32({C(5)}));
  Value* operands[] = {x, y};
  const std::string_view names[] = {"z"};
  const auto op =
      build.Add({.name = "add", .operands = operands, .result_names = names, .location = "a.py:1: z = x + y"});
  EXPECT_EQ(op.status().ToString(), "INVALID_ARGUMENT: add: axis 0: 4 is not 5 (a.py:1: z = x + y)");
  EXPECT_EQ(graph.body.first, nullptr);
  EXPECT_EQ(graph.FindValue("z"), nullptr);
  EXPECT_EQ(graph.values().size(), 2u);
}

TEST_F(BuilderTest, InsertsBeforeAPosition) {
  Value* x = graph.AddParam("x", F32({C(4)}));
  Value* last = build.Make("relu", {x}, {}, "last");
  Builder(graph, graph.body, last->def).Make("relu", {x}, {}, "first");
  EXPECT_EQ(graph.body.first->results[0]->name, "first");
  EXPECT_EQ(graph.body.last, last->def);
  ReplaceUses(graph, x, x);
  const auto uses = UsesOf(graph);
  ASSERT_EQ(uses[static_cast<size_t>(x->id)].size(), 2u);
  EXPECT_EQ(uses[static_cast<size_t>(x->id)][1], last->def);
}

TEST_F(BuilderTest, AttributesConvertWhereNothingIsLost) {
  const Mesh* mesh = graph.AddMesh(*DeviceMesh::Make({1}, {0}));
  const std::vector<int64_t> ints = {1, 2};
  const std::span<const int64_t> list = ints;
  build.Make("every", {},
             {{"mesh", mesh},
              {"exprs", list},
              {"expr", int64_t{7}},
              {"ints", list},
              {"string", std::string_view("s")},
              {"name", std::string_view("w")},
              {"bool", true},
              {"float", int64_t{2}},
              {"int", int64_t{1}}});
  const Op& op = *graph.body.first;
  EXPECT_EQ(op.Int("int"), 1);
  EXPECT_EQ(op.Float("float"), 2.0);
  EXPECT_EQ(op.ExprOf("expr"), C(7));
  EXPECT_EQ(op.Exprs("exprs")[1], C(2));
  EXPECT_EQ(op.Ints("ints")[1], 2);
  EXPECT_EQ(op.Name("name"), "w");
  EXPECT_EQ(op.Name("string"), "s");
  EXPECT_TRUE(op.Bool("bool"));
  EXPECT_EQ(op.MeshOf("mesh"), mesh);
  EXPECT_EQ(Print(op),
            "every() {int=1, float=2.0, bool=true, name=w, string=\"s\", ints=[1, 2], expr=7, "
            "exprs=[1, 2], mesh=@m}");
}

using BuilderDeathTest = BuilderTest;

TEST_F(BuilderDeathTest, MisspelledAttributesAbort) {
  Value* x = graph.AddParam("x", F32({C(4)}));
  const Op& op = *build.Make("sum", {x}, {{"axis", int64_t{0}}})->def;
  EXPECT_DEATH(op.Int("axs"), "op sum has an attribute axs that is an integer");
  EXPECT_DEATH(op.Ints("axis"), "op sum has an attribute axis that is a list of integers");
  EXPECT_DEATH(build.Make("sum", {x}), "INVALID_ARGUMENT: sum: missing attribute axis");
}

// --- Unify ---

TEST_F(BuilderTest, UnifyKeepsTheEarlierSymbolEverywhere) {
  graph.AddParam("x", F32({S("i"), S("j")}));
  Value* y = graph.AddParam("y", F32({S("k"), C(4)}));
  build.Make("reshape", {y}, {{"shape", std::span<const Expr* const>(std::vector<const Expr*>{S("k"), C(2), C(2)})}});
  EXPECT_TRUE(Builder::Unify(graph, S("k"), S("i"), "test").ok());
  EXPECT_TRUE(Builder::Unify(graph, S("j"), C(4), "test").ok());
  EXPECT_EQ(Print(graph),
            "test @p(%x: f32[i, 4], %y: f32[i, 4]) {\n  %v3: f32[i, 2, 2] = reshape(%y) {shape=[i, "
            "2, 2]}\n}\n");
  // Extents from before mean the same.
  EXPECT_EQ(F32({S("k"), S("j")}), graph.params[0]->type);
  EXPECT_TRUE(graph.guards.empty());
  EXPECT_EQ(Builder::Unify(graph, S("j"), C(5), "the columns").ToString(), "INVALID_ARGUMENT: the columns: 4 is not 5");
}

TEST_F(BuilderTest, UnifyRecordsGuardsForTheRest) {
  graph.AddParam("x", F32({S("i")}));
  EXPECT_TRUE(Builder::Unify(graph, S("i"), graph.exprs().Mul(C(2), S("unknown")), "why").ok());
  EXPECT_TRUE(Builder::Unify(graph, S("i"), graph.exprs().Mul(C(2), S("unknown")), "again").ok());
  EXPECT_TRUE(Builder::Unify(graph, S("i"), S("%n"), "a loop index").ok());
  EXPECT_TRUE(Builder::Unify(graph, S("i"), graph.exprs().Add(S("i"), S("j")), "itself").ok());
  ASSERT_EQ(graph.guards.size(), 3u);
  EXPECT_EQ(graph.guards[0].reason, "why");
  EXPECT_EQ(ToString(graph.guards[0].right), "2*unknown");
  // Once an input says what `unknown` is, the guard becomes a replacement; a guard that cannot hold is refused.
  EXPECT_EQ(Builder::Unify(graph, S("unknown"), C(3), "now known").ToString(), "OK");
  EXPECT_EQ(ToString(graph.params[0]->type->axes[0].extent), "6");
  EXPECT_EQ(Builder::Unify(graph, S("j"), C(1), "no").ToString(), "INVALID_ARGUMENT: itself: 6 is not 7");
}

TEST_F(BuilderTest, UnifyRefusesNegativeExtentsAndDivisionByZero) {
  graph.AddParam("x", F32({S("i")}));
  graph.AddParam("y", F32({graph.exprs().Sub(S("i"), C(5))}));
  EXPECT_EQ(Builder::Unify(graph, S("i"), C(3), "x").ToString(), "INVALID_ARGUMENT: f32[-2]: extent -2 is negative");
  Graph other(kTestOps, "q");
  const Axis axis = {AxisKind::kIteration,
                     other.exprs().FloorDiv(other.exprs().Symbol("i"), other.exprs().Symbol("j"))};
  other.AddParam("x", other.Tensor(DType::kFloat32, {&axis, 1}));
  EXPECT_EQ(Builder::Unify(other, other.exprs().Symbol("j"), other.exprs().Const(0), "x").ToString(),
            "INVALID_ARGUMENT: an extent divides by zero");
}

// Chains of thousands of sizes: close to linear, and the limit is named.
TEST_F(BuilderTest, ManySizesUnify) {
  std::string text = "test @p(";
  for (int k = 0; k < 2000; ++k) text += base::Cat(k == 0 ? "" : ", ", "%x", k, ": f32[i", k, ", j", k, "]");
  text += ") {\n";
  for (int k = 1; k < 2000; ++k) text += base::Cat("%y", k, " = add(%x", k, ", %x", k - 1, ")\n");
  const auto parsed = Parse(text + "return %y1999\n}\n", kTestOps);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(ToString(*(*parsed)->outputs[0].value->type), "f32[i0, j0]");
}

// --- layouts ---

TEST_F(BuilderTest, LoopDomain) {
  const Type* type = F32({S("i"), C(12), C(5)});
  const LoopTransform steps[] = {{LoopTransform::Kind::kOuterSplit, 1, 4},
                                 {LoopTransform::Kind::kInnerSplit, 0, 8},
                                 {LoopTransform::Kind::kMerge, 3, 1}};
  const std::vector<Leaf> leaves = LoopDomain(graph.exprs(), *type, steps);
  std::string text;
  for (const Leaf& leaf : leaves) {
    base::Append(text, ToString(leaf.extent), " of ", leaf.logical, leaf.outermost ? " outermost; " : "; ");
  }
  EXPECT_EQ(text, "ceildiv(i, 8) of 0 outermost; 8 of 0; 4 of 1 outermost; 15 of -1; ");
}

TEST_F(BuilderTest, AnnotationsApplyInOrderAndLeaveTheLayoutWhenTheyFail) {
  const Mesh* mesh = graph.AddMesh(*DeviceMesh::Make({2, 2}, {0, 1, 2, 3}));
  Value* x = graph.AddParam("x", F32({S("i"), C(8)}));
  EXPECT_TRUE(Annotate(graph, *x, {.kind = Annotation::Kind::kMesh, .mesh = mesh}).ok());
  EXPECT_TRUE(Annotate(graph, *x, {.kind = Annotation::Kind::kShard, .axis = -1, .type = ParallelType::kMeshY}).ok());
  EXPECT_TRUE(Annotate(graph, *x, {.kind = Annotation::Kind::kShard, .axis = 1, .type = ParallelType::kMeshX}).ok());
  const std::string text =
      "mesh=@m, outer_split(1, 2), outer_split(2, 2), parallelize(1, mesh_y), parallelize(2, "
      "mesh_x)";
  EXPECT_EQ(ToString(*x->layout), text);
  const Layout* before = x->layout;
  EXPECT_FALSE(Annotate(graph, *x, {.kind = Annotation::Kind::kMerge, .axis = 0}).ok());
  EXPECT_EQ(x->layout, before);
  EXPECT_TRUE(Verify(graph).ok());
}

TEST_F(BuilderTest, AParallelAxisHasTheMeshsSize) {
  const Mesh* mesh = graph.AddMesh(*DeviceMesh::Make({4}, {0, 1, 2, 3}));
  Value* x = graph.AddParam("x", F32({S("d"), S("i")}));
  const Annotation commands[] = {{.kind = Annotation::Kind::kMesh, .mesh = mesh},
                                 {.kind = Annotation::Kind::kParallelize, .axis = 0, .type = ParallelType::kMeshX}};
  EXPECT_TRUE(AnnotateAll(graph, *x, commands).ok());
  EXPECT_EQ(ToString(*x->type), "f32[4, i]");
}

// --- copies ---

TEST_F(BuilderTest, CloneIsTheSameProgram) {
  const auto parsed = Parse(R"(mesh @m = [0, 1]
test @p(%x: f32[i, 8] {mesh=@m, shard(1, mesh_x)}, %y: f32[j, 8] {stride_order(0, 1)}) {
  %r = reshape(%x) {shape=[2*i, 4]}
  for() {end=i} { |%n: index|
    use(%y) {at=%n*j} at "a.py:5: use"
  }
  return %r alias %x
})",
                            kTestOps);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  (*parsed)->body.first->location = "kept";
  const auto copy = Clone(**parsed);
  EXPECT_EQ(Print(*copy), Print(**parsed));
  EXPECT_EQ(copy->body.first->location, "kept");
  EXPECT_TRUE(Verify(*copy).ok());
  // The copy lives alone.
  EXPECT_TRUE(Builder::Unify(*copy, copy->exprs().Symbol("i"), copy->exprs().Const(3), "test").ok());
  EXPECT_NE(Print(*copy), Print(**parsed));
}

TEST_F(BuilderTest, CloneOpFollowsItsNewOperandsAndLoopIndices) {
  const auto from =
      Parse("test @p(%x: f32[i, 8]) { for() {end=i} { |%n: index| %y = relu(%x) use(%y) {at=2*%n} } }", kTestOps);
  ASSERT_TRUE(from.ok()) << from.status().ToString();
  Value* x = graph.AddParam("n", F32({C(3)}));  // Takes the index's name.
  std::unordered_map<const Value*, Value*> values = {{(*from)->params[0], x}};
  ASSERT_TRUE(CloneOp(*(*from)->body.first, build, values).ok());
  EXPECT_EQ(Print(graph),
            "test @p(%n: f32[3]) {\n  for() {end=i} { |%n.1: index|\n    %y: f32[3] = relu(%n)\n   "
            " use(%y) {at=2*%n.1}\n  }\n}\n");
  EXPECT_TRUE(Verify(graph).ok());
}

TEST_F(BuilderTest, VerifyFindsWhatAPassBroke) {
  Value* x = graph.AddParam("x", F32({C(4)}));
  Value* y = build.Make("relu", {x}, {}, "y");
  Value* z = build.Make("relu", {y}, {}, "z");
  z->def->line = 7;
  graph.body.Erase(y->def);
  EXPECT_EQ(Verify(graph).ToString(), "INVALID_ARGUMENT: line 7: relu: %y is not defined there");
  z->def->operands[0] = x;
  EXPECT_TRUE(Verify(graph).ok());
  const Mesh other = {.name = "m", .mesh = *DeviceMesh::Make({1}, {0})};
  z->layout = graph.New(Layout{.mesh = &other, .parallel = {}});
  EXPECT_EQ(Verify(graph).ToString(), "INVALID_ARGUMENT: line 7: relu: z: its layout is on a mesh of another graph");
  const ParallelType twice[] = {ParallelType::kMeshX, ParallelType::kMeshX};
  const LoopTransform split[] = {{LoopTransform::Kind::kOuterSplit, 0, 2}};
  z->layout = graph.New(Layout{.mesh = graph.AddMesh(*DeviceMesh::Make({2}, {0, 1})),
                               .transforms = graph.Copy(std::span<const LoopTransform>(split)),
                               .parallel = graph.Copy(std::span<const ParallelType>(twice))});
  EXPECT_EQ(Verify(graph).ToString(), "INVALID_ARGUMENT: line 7: relu: z: mesh_x is on 2 loop axes");
}

}  // namespace
}  // namespace hir::ir
