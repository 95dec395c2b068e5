// Goal: the text form holds every program, and says whole what is wrong with a bad one. Method:
// round trips of programs that use each part of the grammar, and one program for each message.
#include "csrc/ir/parse.h"

#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "csrc/ir/print.h"
#include "tests/csrc/ir/test_ops.h"

namespace hir::ir {
namespace {

using base::Cat;

// The text after parsing and printing, or the error.
std::string Again(std::string_view text) {
  const auto graph = Parse(text, kTestOps);
  return graph.ok() ? Print(**graph) : graph.status().ToString();
}

TEST(RoundTrip, EveryPartOfTheGrammar) {
  const std::string_view text = R"(mesh @m = [0, 1, 2, 3]
mesh @g = [[0, 1], [2, 3]]
test @all(
    %x: bf16[i0, 8192] {mesh=@m, outer_split(1, 4), parallelize(1, mesh_x)},
    %y: f32[i0, b, b:4096, r:i1],
    %s: f64,
    %e: event[4]) {
  %p: bf16[i0, r:8192] {mesh=@m, outer_split(1, 4), parallelize(1, mesh_x)} = sum(%x) {axis=1}
  every() {int=-3, float=-0.5, bool=true, name=x, string="\"\\\n", ints=[1, -2], expr=4*i0 + 3, exprs=[i0 / 4], mesh=@g}
  %a: f32[i0], %b: f64 = make(%x, %y, %s)
  for() {end=ceildiv(i0, 4)} { |%i: index|
    use(%x, %e) {at=4*%i + @g.y}
    choose() {
      use(%a) {at=min(i0, i1)}
    } {
    }
  }
  return %a, %x, %p alias %x
}
)";
  EXPECT_EQ(Again(text), text);
}

TEST(RoundTrip, EmptyProgram) { EXPECT_EQ(Again("test @empty() {}"), "test @empty() {\n}\n"); }

TEST(RoundTrip, TextInAnyOrderBecomesCanonical) {
  const std::string_view loose = R"hir(
// Two names of one mesh, shards counted in value axes, attributes in any order, an inferred result.
mesh @m = [0, 1] mesh @n = [0, 1]
test @p(%x: f32[4*2, 6 + i0] {mesh=@n, shard(0, mesh_x), stride_order(1, 0)}) {
  %y = relu(%x) at "mlp.py:3: y = relu(x)"  %z: f32[k, j] = relu(%y)
  return %z
}
)hir";
  const std::string_view canonical = R"(mesh @m = [0, 1]
test @p(
    %x: f32[8, i0 + 6] {mesh=@m, outer_split(0, 2), parallelize(0, mesh_x), stride_order(1, 0)}) {
  %y: f32[8, i0 + 6] = relu(%x)
  %z: f32[8, i0 + 6] = relu(%y)
  return %z
}
)";
  EXPECT_EQ(Again(loose), canonical);
}

TEST(RoundTrip, AStrideOrderNeedsNoMesh) {
  const std::string_view text = R"(mesh @m = [0, 1]
test @p(%x: f32[i0, 6] {stride_order(0, 1)}) {
  %y: f32[i0, 6] {mesh=@m, stride_order(0, 1)} = relu(%x)
  %z: f32[i0, 6] = relu(%y)
  return %z
}
)";
  EXPECT_EQ(Again(text), text);
}

TEST(RoundTrip, SizesUnify) {
  EXPECT_EQ(Again("test @p(%x: f32[i, j], %y: f32[k, 4]) { %z = add(%y, %x) %w: f32[k, j] = "
                  "relu(%z) return %w }"),
            "test @p(%x: f32[i, 4], %y: f32[i, 4]) {\n  %z: f32[i, 4] = add(%y, %x)\n  %w: f32[i, "
            "4] = relu(%z)\n"
            "  return %w\n}\n");
}

TEST(RoundTrip, FloatsReadBack) {
  for (const char* value : {"0.0", "-0.0", "1e+300", "-inf", "inf", "nan", "0.1", "5e-324"}) {
    const std::string text = Cat("mesh @m = [0]\ntest @f() {\n  every() {int=0, float=", value,
                                 ", bool=false, name=a, string=\"\", ints=[], expr=0, exprs=[], mesh=@m}\n}\n");
    EXPECT_EQ(Again(text), text);
  }
}

struct Bad {
  std::string text;
  std::string error;
};
void PrintTo(const Bad& c, std::ostream* out) { *out << testing::PrintToString(c.text); }

class Errors : public testing::TestWithParam<Bad> {};

TEST_P(Errors, AreWhole) { EXPECT_EQ(Again(GetParam().text), "INVALID_ARGUMENT: " + GetParam().error); }

std::string InBody(std::string_view body) { return Cat("test @p(%x: f32[4, i0]) {\n", body, "\n}\n"); }

INSTANTIATE_TEST_SUITE_P(
    Programs, Errors,
    testing::Values(
        Bad{"", "line 1: expected 'test', the first word of a test program, got the end of the text"},
        Bad{"fusion @p() {}", "line 1: expected 'test', the first word of a test program, got 'fusion'"},
        Bad{"test p() {}", "line 1: expected the program's @name, got 'p'"},
        Bad{"test @p() {\n", "line 2: expected an op, got the end of the text"},
        Bad{"test @p() {} }", "line 1: expected the end of the text, got '}'"},
        Bad{"test @p(%x: f32[4], %x: f32[4]) {}", "line 1: %x is defined twice"},
        Bad{"test @p(%x: f31[4]) {}",
            "line 1: expected a type (bool, u8, i8, i32, i64, f16, bf16, f32, f64, index or event), got "
            "'f31'"},
        Bad{"test @p(%x: f32[4) {}", "line 1: expected ',', got ')'"},
        Bad{"test @p(%x: f32[-1]) {}", "line 1: f32[-1]: extent -1 is negative"},
        Bad{"test @p(%x: f32[mod]) {}", "line 1: 'mod' is a word of the syntax and cannot name a size"},
        Bad{"test @p(%x: f32[a.b]) {}", "line 1: 'a.b' is no name of a size: letters, digits and _, at most 256"},
        Bad{"test @p(%x: f32[i / 0]) {}", "line 1: an extent divides by zero"},
        Bad{"test @p(%x: f32[9223372036854775807 + 1]) {}", "line 1: an extent overflows 64 bits"},
        Bad{"test @p(%x: f32[99999999999999999999]) {}",
            "line 1: expected an extent, got an integer does not fit in 64 bits"},
        Bad{"test @p(%x: f32[4294967296, 2147483648]) {}",
            "line 1: f32[4294967296, 2147483648] has more than 2^60 - 1 elements"},
        Bad{"test @p(%x: event[0]) {}", "line 1: event[0]: an event array holds 1 to 65536 events"},
        Bad{"test @p(%x: f32[%x]) {}", "line 1: undefined value '%x'"},
        Bad{"test @p(%s: f64, %x: f32[%s]) {}", "line 1: %s in an extent is f64; only a loop index may be there"},
        Bad{"test @p(%x: f32[@m.x]) {}", "line 1: undefined mesh @m"},
        Bad{"test @p(%x: f32[@m.w]) {}",
            "line 1: expected a mesh coordinate like @m.x, @m.y, @m.z or @m.in, got '@m.w'"},
        Bad{"test @p(\x01) {}", "line 1: expected a value like %x, got a character that has no meaning here"},
        Bad{InBody("%y = add(%x)"), "line 2: add: takes 2 operands, got 1"},
        Bad{InBody("%y, %z = add(%x, %x)"), "line 2: add: makes 1 result, got 2 names"},
        Bad{InBody("add(%x, %x)"), "line 2: add: makes 1 result, got 0 names"},
        Bad{InBody("%y = ad(%x, %x)"), "line 2: ad: no such op in the test op set; did you mean add?"},
        Bad{InBody("%y = convolution(%x, %x)"), "line 2: convolution: no such op in the test op set"},
        Bad{InBody("%x = relu(%x)"), "line 2: %x is defined twice"},
        Bad{InBody("%y, %y = make()"), "line 2: %y is defined twice"},
        Bad{InBody("%y = relu(%xx)"), "line 2: undefined value '%xx'; did you mean %x?"},
        Bad{InBody("%y = make()"), "line 2: make: the type of result 0 must be given"},
        Bad{InBody("%y: f32[4, 5] = relu(%x)\n%z: f32[3, 5] = relu(%y)"),
            "line 3: relu: declared f32[3, 5] but inferred f32[4, 5]"},
        Bad{InBody("%y: bf16[4, i0] = relu(%x)"), "line 2: relu: declared bf16[4, i0] but inferred f32[4, i0]"},
        Bad{InBody("%y: f32[4, b:i0] = relu(%x)"), "line 2: relu: declared f32[4, b:i0] but inferred f32[4, i0]"},
        Bad{InBody("%y: f64 = relu(%x)"), "line 2: relu: declared f64 but inferred f32[4, i0]"},
        Bad{InBody("%y = reshape(%x) {shape=[8, 2]} %z = add(%x, %y)"), "line 2: add: axis 0: 4 is not 8"},
        Bad{InBody("%y = reshape(%x) {shape=[8]} %z = add(%x, %y) at \"mlp.py:7: z = x + y\""),
            "line 2: add: the operands differ in rank (mlp.py:7: z = x + y)"},
        Bad{InBody("%y = reshape(%x) {shape=[-1]}"), "line 2: reshape: f32[-1]: extent -1 is negative"},
        Bad{InBody("%y = sum(%x)"), "line 2: sum: missing attribute axis"},
        Bad{InBody("%y = sum(%x) {}"), "line 2: sum: missing attribute axis"},
        Bad{InBody("%y = sum(%x) {axes=0}"), "line 2: sum: no attribute axes; did you mean axis?"},
        Bad{InBody("%y = sum(%x) {keep_dimensions=0}"), "line 2: sum: no attribute keep_dimensions; it has axis"},
        Bad{InBody("%y = sum(%x) {axis=0, axis=0}"), "line 2: sum: attribute axis is given twice"},
        Bad{InBody("%y = sum(%x) {axis=mesh_x}"), "line 2: expected an integer for axis, got 'mesh_x'"},
        Bad{InBody("%y = relu(%x) {axis=0}"), "line 2: relu: takes no attributes, got axis"},
        Bad{InBody("for() {end=4}"), "line 3: expected '{', got '}'"},
        Bad{InBody("for() {end=4} { |%i: index| %y = relu(%x) }\nuse(%y) {at=0}"),
            "line 3: use: %y is not defined there"},
        Bad{InBody("for() {end=4} { |%i: index| }\nuse(%x) {at=%i}"), "line 3: use: %i is no loop index here"},
        Bad{InBody("for() {end=4} { |%i: index| %y = relu(%x) }\nreturn %y"), "return: %y is not defined there"},
        Bad{InBody("%y = relu(%x) return %x alias %y"), "return: %x alias %y: only an input's memory can be taken"},
        Bad{InBody("return %x alias %x, %x alias %x"), "return: %x alias %x: another output takes that memory"},
        Bad{"test @p(%x: f32[6, b:i0]) { return %x alias %x }",
            "return: %x alias %x: axis 1 of the input, b:i0, is stored once, so it has less memory "
            "than elements; return without alias, or declare the axis i0, stored in full"},
        Bad{InBody("return"), "line 3: expected a value like %x, got '}'"}));

std::string WithLayout(std::string_view layout) {
  return Cat("mesh @m = [0, 1]\nmesh @n = [2, 3]\ntest @p(%x: f32[6, i0, r:5] {", layout, "}) {}");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Errors,
    testing::Values(
        Bad{"mesh @m = [0, 0]\ntest @p() {}", "line 1: mesh @m: mesh names device 0 twice"},
        Bad{"mesh @m = [-1]\ntest @p() {}", "line 1: mesh @m: mesh device -1 is negative"},
        Bad{"mesh @m = []\ntest @p() {}", "line 1: mesh @m: mesh dimension of extent 0; each must be at least 1"},
        Bad{"mesh @m = [[0, 1], [2]]\ntest @p() {}", "line 1: a row of the mesh has 1 entries, another 2"},
        Bad{"mesh @m = [[0, 1], 2]\ntest @p() {}", "line 1: expected '[', got '2'"},
        Bad{"mesh @m = [[[[0]]]]\ntest @p() {}", "line 1: a mesh has 1 to 3 dimensions"},
        Bad{"mesh @m = [0] mesh @m = [1]\ntest @p() {}", "line 1: mesh @m is defined twice"},
        Bad{WithLayout("mesh=@q"), "line 3: undefined mesh '@q'"},
        Bad{WithLayout("mesh=@m, mesh=@n"), "line 3: x: mesh: the value is on @m = [0, 1] already, got @n = [2, 3]"},
        Bad{WithLayout("outer_split(0, 2), parallelize(0, mesh_x)"),
            "line 3: x: parallelize: the value has no mesh yet; set it first"},
        Bad{WithLayout("parallelize(0, stream), outer_split(0, 2)"),
            "line 3: x: outer_split: axis 0 is parallel on stream already"},
        Bad{WithLayout("mesh=@m, shard(0, stream)"),
            "line 3: x: shard: axis 0: stream is no mesh dimension; use outer_split and parallelize"},
        Bad{WithLayout("mesh=@m, outer_split(3, 2)"),
            "line 3: x: outer_split: axis 3 is out of range: the loop domain [6, i0, 5] has 3 "
            "axes"},
        Bad{WithLayout("mesh=@m, outer_split(-4, 2)"),
            "line 3: x: outer_split: axis -4 is out of range: the loop domain [6, i0, 5] has 3 "
            "axes"},
        Bad{WithLayout("mesh=@m, inner_split(0, 0)"), "line 3: x: inner_split: factor 0; it must be at least 1"},
        Bad{WithLayout("mesh=@m, merge(2)"),
            "line 3: x: merge: axis 2 is the last of [6, i0, 5]; there is none to merge it with"},
        Bad{WithLayout("mesh=@m, shard(2, mesh_x)"), "line 3: x: shard: axis 2 is out of range: the value has 2 axes"},
        Bad{WithLayout("mesh=@m, shard(0, mesh_y)"), "line 3: x: shard: @m = [0, 1] has no mesh_y"},
        Bad{WithLayout("mesh=@m, shard(0, serial)"), "line 3: x: shard: axis 0: serial is no mesh dimension"},
        Bad{WithLayout("mesh=@m, shard(0, mesh_x), shard(1, mesh_x)"), "line 3: x: shard: mesh_x is on axis 0 already"},
        Bad{WithLayout("mesh=@m, merge(0), shard(1, mesh_x)"),
            "line 3: x: shard: axis 1 was merged with another in [6*i0, 5]"},
        Bad{WithLayout("mesh=@m, shard(0, mesh_x), outer_split(0, 2)"),
            "line 3: x: outer_split: axis 0 is parallel on mesh_x already"},
        Bad{WithLayout("mesh=@m, parallelize(0, mesh_x)"),
            "line 3: x: parallelize: axis 0 of [6, i0, 5] has extent 6, but mesh_x of @m has 2 "
            "devices"},
        Bad{WithLayout("mesh=@m, outer_split(0, 4), parallelize(0, mesh_x)"),
            "line 3: x: parallelize: axis 0 of [4, 2, i0, 5] has extent 4, but mesh_x of @m has 2 "
            "devices"},
        Bad{WithLayout("mesh=@m, parallelize(0, mesh_w)"),
            "line 3: expected a parallel type (mesh_x, mesh_y, mesh_z, stream or serial), got "
            "'mesh_w'"},
        Bad{WithLayout("mesh=@m, stride_order(0, 0)"),
            "line 3: x: stride_order: [0, 0] is not a permutation of the 2 axes"},
        Bad{WithLayout("split(0, 2)"),
            "line 3: expected mesh=, outer_split, inner_split, merge, parallelize, shard or "
            "stride_order, got 'split'"},
        Bad{"mesh @m = [0]\ntest @p(%s: f64 {mesh=@m}) {}",
            "line 2: s: mesh: only a tensor has a layout, this is f64"}));

TEST(Layouts, StreamAxesNeedNoMesh) {
  for (const std::string_view layout :
       {"parallelize(1, stream)", "mesh=@m, parallelize(1, stream)", "outer_split(0, 2), parallelize(0, stream)",
        "merge(0), parallelize(0, stream)",
        "mesh=@m, outer_split(0, 2), inner_split(1, 3), parallelize(0, mesh_x), parallelize(1, stream)"}) {
    const std::string again = Again(WithLayout(layout));
    EXPECT_NE(again.find(base::Cat("{", layout, "}")), std::string::npos) << again;
  }
}

// --- limits, each at its boundary ---

std::string Limit(std::string_view text) {
  const auto graph = Parse(text, kTestOps);
  return graph.ok() ? "OK" : graph.status().ToString();
}

TEST(Limits, Ops) {
  const auto ops = [](int64_t n) {
    std::string text = "test @p(%x: f32[4]) {\n";
    for (int64_t i = 0; i < n; ++i) text += "use(%x) {at=0}\n";
    return text + "}";
  };
  EXPECT_EQ(Limit(ops(kOpsMax)), "OK");
  EXPECT_EQ(Limit(ops(kOpsMax + 1)), "RESOURCE_EXHAUSTED: line 65538: the program has more than 65536 ops");
  EXPECT_EQ(Limit(ops(1000000)), "RESOURCE_EXHAUSTED: line 65538: the program has more than 65536 ops");
}

TEST(Limits, Operands) {
  const auto operands = [](int64_t n) {
    std::string text = "test @p(%x: f32[4]) { use(%x";
    for (int64_t i = 1; i < n; ++i) text += ", %x";
    return text + ") {at=0} }";
  };
  EXPECT_EQ(Limit(operands(kOperandsMax)), "OK");
  EXPECT_EQ(Limit(operands(kOperandsMax + 1)), "RESOURCE_EXHAUSTED: line 1: an op has more than 1024 operands");
}

TEST(Limits, Inputs) {
  const auto inputs = [](int64_t n) {
    std::string text = "test @p(";
    for (int64_t i = 0; i < n; ++i) text += Cat(i == 0 ? "" : ", ", "%x", i, ": f64");
    return text + ") {}";
  };
  EXPECT_EQ(Limit(inputs(kParamsMax)), "OK");
  EXPECT_EQ(Limit(inputs(kParamsMax + 1)), "RESOURCE_EXHAUSTED: line 1: the program has more than 4096 inputs");
}

TEST(Limits, Axes) {
  const auto axes = [](int64_t n) {
    std::string text = "test @p(%x: f32[1";
    for (int64_t i = 1; i < n; ++i) text += ", 1";
    return text + "]) {}";
  };
  EXPECT_EQ(Limit(axes(kAxesMax)), "OK");
  EXPECT_EQ(Limit(axes(kAxesMax + 1)), "RESOURCE_EXHAUSTED: line 1: a tensor has more than 16 axes");
}

TEST(Limits, Blocks) {
  const auto blocks = [](int n) {
    std::string text = "test @p() {";
    for (int i = 0; i < n; ++i) text += "for() {end=4} {";
    text.append(static_cast<size_t>(n), '}');
    return text + "}";
  };
  EXPECT_EQ(Limit(blocks(kNestingMax)), "OK");
  EXPECT_EQ(Limit(blocks(kNestingMax + 1)), "RESOURCE_EXHAUSTED: line 1: blocks are nested deeper than 32");
}

TEST(Limits, Parentheses) {
  const auto nested = [](int n) {
    return Cat("test @p(%x: f32[", std::string(static_cast<size_t>(n), '('), "4",
               std::string(static_cast<size_t>(n), ')'), "]) {}");
  };
  EXPECT_EQ(Limit(nested(kExprDepthMax - 1)), "OK");
  EXPECT_EQ(Limit(nested(kExprDepthMax)), "RESOURCE_EXHAUSTED: line 1: an extent is nested deeper than 128");
  EXPECT_EQ(Limit(nested(1 << 20)), "RESOURCE_EXHAUSTED: line 1: an extent is nested deeper than 128");
}

TEST(Limits, ExtentTerms) {
  const auto terms = [](int n) {
    std::string text = "test @p(%x: f32[1";
    for (int i = 0; i < n; ++i) text += Cat(" + i", i);
    return text + "]) {}";
  };
  EXPECT_EQ(Limit(terms(kExprNodesMax - 1)), "OK");
  EXPECT_EQ(Limit(terms(kExprNodesMax)), "RESOURCE_EXHAUSTED: line 1: an extent has more than 4096 terms and factors");
  // A short text whose product would have 2^60 terms.
  std::string power = "test @p(%x: f32[(i + j + 1)";
  for (int i = 0; i < 60; ++i) power += Cat("*(a", i, " + b", i, ")");
  EXPECT_EQ(Limit(power + "]) {}"), "RESOURCE_EXHAUSTED: line 1: an extent has more than 4096 terms and factors");
}

// Extents are shared in memory, so a short text can stand for a long one: neither may take long.
TEST(Limits, TermsAltogether) {
  const auto program = [](int terms, int ops) {
    std::string text = "test @p(%x: f32[0";
    for (int i = 0; i < terms; ++i) text += Cat(" + i", i);
    text += "], %y: f32[j]) {\n";
    for (int i = 0; i < ops; ++i) text += Cat("%v", i, " = ", i == ops / 2 ? "add(%y, %x)" : "relu(%x)", "\n");
    return text + "}";
  };
  EXPECT_EQ(Limit(program(1000, 4000)), "OK");
  EXPECT_EQ(Limit(program(4000, 60000)),
            "RESOURCE_EXHAUSTED: the extents of this program have 240060002 terms and factors; the "
            "limit is 4194304");
}

TEST(Limits, MatchingSizes) {
  std::string text = "test @p(%a: f32[i]";
  for (int i = 0; i < 4000; ++i) text += Cat(", %x", i, ": f32[a", i, ", b", i, ", c", i, ", d", i, ", 2*a", i, "]");
  text += ") {\n";
  for (int i = 1; i < 4000; ++i) text += Cat("%v", i, " = add(%x", i - 1, ", %x", i, ")\n");
  EXPECT_EQ(Limit(text + "}"),
            "RESOURCE_EXHAUSTED: line 1050: add: matching the sizes of this program takes more than "
            "134217728 steps");
}

TEST(Limits, ListElements) {
  const auto list = [](int64_t n) {
    std::string text =
        "mesh @m = [0] test @p() { every() {int=0, float=0.0, bool=true, name=a, string=\"\", "
        "ints=[0";
    for (int64_t i = 1; i < n; ++i) text += ", 0";
    return text + "], expr=0, exprs=[], mesh=@m} }";
  };
  EXPECT_EQ(Limit(list(kListMax)), "OK");
  EXPECT_EQ(Limit(list(kListMax + 1)), "RESOURCE_EXHAUSTED: line 1: attribute ints has more than 65536 elements");
}

TEST(Limits, Names) {
  const auto name = [](size_t n) { return Cat("test @p(%", std::string(n, 'x'), ": f64) {}"); };
  EXPECT_EQ(Limit(name(kNameBytesMax)), "OK");
  EXPECT_EQ(Limit(name(kNameBytesMax + 1)), "INVALID_ARGUMENT: line 1: a value's name has at most 256 letters");
}

TEST(Limits, Meshes) {
  const auto meshes = [](int64_t n) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += Cat("mesh @m", i, " = [", i, "]\n");
    return text + "test @p() {}";
  };
  EXPECT_EQ(Limit(meshes(kMeshesMax)), "OK");
  EXPECT_EQ(Limit(meshes(kMeshesMax + 1)), "RESOURCE_EXHAUSTED: line 257: the program has more than 256 meshes");
}

TEST(Limits, LayoutSteps) {
  const auto splits = [](int64_t n) {
    std::string text = "mesh @m = [0] test @p(%x: f32[i] {mesh=@m";
    for (int64_t i = 0; i < n; ++i) text += ", outer_split(0, 1)";
    return text + "}) {}";
  };
  EXPECT_EQ(Limit(splits(kTransformsMax)), "OK");
  EXPECT_EQ(Limit(splits(kTransformsMax + 1)),
            "RESOURCE_EXHAUSTED: line 1: x: outer_split: the layout has 64 splits and merges, "
            "which is the limit");
}

TEST(Limits, TextBytes) {
  std::string text = "test @p() {}";
  text.resize(kTextBytesMax, ' ');
  EXPECT_EQ(Limit(text), "OK");
  text += ' ';
  EXPECT_EQ(Limit(text), "RESOURCE_EXHAUSTED: the text has 67108865 bytes; the limit is 67108864");
}

}  // namespace
}  // namespace hir::ir
