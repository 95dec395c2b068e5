// Pointwise kernels against the interpreter: every element type and way of indexing, at sizes around those of
// vectors.
#include "tests/csrc/codegen/every_pointwise.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

TEST(Pointwise, ChainWithSpecialValues) {
  for (const int64_t n : {0, 1, 5, 16, 17, 100, 4097, 40000}) {
    CheckProgram(R"(fusion @f(%x: f32[i0], %y: f32[i0]) {
      %a: f32[i0] = mul(%x, %y)
      %b: f32[i0] = sub(%a, %x)
      %c: f32[i0] = abs(%b)
      %m: f32[i0] = maximum(%x, %y)
      %r: f32[i0] = relu(%x)
      %t: f32[i0] = tanh(%x)
      %n: bool[i0] = isnan(%b)
      return %c, %a, %m, %r, %t, %n
    })",
                 {{"i0", n}}, 1, true);
  }
}

TEST(Pointwise, EveryOp) {
  for (const auto& [real, whole] : {std::pair("f32", "i32"), {"f64", "i64"}, {"bf16", "i32"}, {"f16", "i64"}}) {
    for (const PointwiseProgram& program : EveryPointwiseOp(real, whole)) {
      for (const int64_t n : {0, 1, 67}) CheckProgram(program.text, {{"i0", n}}, 12, program.unary);
    }
  }
}

TEST(Pointwise, EveryPairOfTypesConverts) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      CheckProgram(Cat("fusion @f(%x: ", DTypeName(from), "[i0]) {\n  %y: ", DTypeName(to),
                       "[i0] = cast(%x) {dtype=", DTypeName(to), "}\n  %z = add(%y, %y)\n  return %y, %z\n}"),
                   {{"i0", 37}}, 2);
    }
  }
}

TEST(Pointwise, BroadcastsAndPermutes) {
  for (const auto& [n, m] : {std::pair{3, 7}, {1, 1}, {0, 5}, {33, 18}, {64, 32}}) {
    CheckProgram(R"(fusion @f(%x: bf16[i0, i1], %w: bf16[i1]) {
      %a: bf16[i0, i1] = add(%x, %w)
      %t: bf16[i1, i0] = permute(%a) {dims=[1, 0]}
      %e: f32[i1, i0] = cast(%t) {dtype=f32}
      %g: f32[i1, i0] = gelu(%e)
      return %g, %a
    })",
                 {{"i0", n}, {"i1", m}}, 3);
    CheckProgram(R"(fusion @f(%x: f32[i0, b:i1], %y: f32[i0, 1], %z: f32[b, i1]) {
      %a = add(%x, %y)
      %b = mul(%y, %z)
      %c = add(%a, %b)
      %d = expand(%y) {shape=[-1, 5]}
      return %a, %c, %d
    })",
                 {{"i0", n}, {"i1", m}}, 4);
  }
}

// Each reads its operand across axes: what an index is made of grows threefold, and beyond 32 terms kernels are cut.
std::string Reshapes(int count) {
  std::string text = "fusion @f(%x: f32[i0, i1, i2]) {\n  %r0 = neg(%x)\n";
  for (int i = 0; i < count; ++i) {
    base::Append(text, "  %p", i, " = permute(%r", i, ") {dims=[2, 0, 1]}\n  %r", i + 1, " = reshape(%p", i,
                 ") {shape=[i0, i1, i2]}\n");
  }
  return Cat(text, "  %y = neg(%r", count, ")\n  return %y\n}");
}

TEST(Pointwise, ReshapesOneBehindAnother) {
  const SymbolValues symbols = {{"i0", 4}, {"i1", 6}, {"i2", 5}};
  for (const int count : {1, 2}) CheckProgram(Reshapes(count), symbols, 21);
  const auto graph = ir::Parse(Reshapes(40), fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(VerdictOf(Reshapes(40)).reason, "an index of %p37 would have 39 terms");
  const std::vector<segment::Group> groups = *segment::Segment(
      **graph, [](const auto&, const auto&, const segment::GroupView& merged) -> std::optional<segment::Gain> {
        if (!Accepts(merged).accepted) return std::nullopt;
        return segment::Gain{.bytes = 0, .launches = 1};
      });
  EXPECT_EQ(groups.size(), 20) << "two reshapes a kernel";
  KernelRunner runner(22);
  const std::vector<HostTensor> inputs = {RandomTensor(runner.prng(), DType::kFloat32, {4, 6, 5})};
  const auto want = fusion::Interpret(**graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  const auto got = runner.Run(**graph, inputs, groups);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ExpectNear((*got)[0], (*want)[0], "40 reshapes");
}

// The longest index that a kernel may have, and one term more.
TEST(Pointwise, SlicesOneBehindAnother) {
  const auto slices = [](int count) {
    std::string text = "fusion @f(%x: f32[40]) {\n  %s0 = neg(%x)\n";
    for (int i = 0; i < count; ++i)
      base::Append(text, "  %s", i + 1, " = slice(%s", i, ") {start=[1], end=[", 40 - i, "], strides=[1]}\n");
    return Cat(text, "  %y = neg(%s", count, ")\n  return %y\n}");
  };
  CheckProgram(slices(32), {}, 23);
  EXPECT_EQ(VerdictOf(slices(33)).reason, "an index of %s0 would have 33 terms");
}

// Tiles of a transposition: whole ones, ends of both axes, tiles smaller than a block of registers, and tiles for
// known sizes.
TEST(Pointwise, Transposes) {
  for (const auto& [n, m] : {std::pair{1, 1}, {1, 300}, {3, 17}, {16, 16}, {17, 1023}, {257, 33}, {300, 515}}) {
    for (const char* type : {"f32", "bf16", "f64", "i32", "bool"}) {
      const std::string text = Cat("fusion @f(%x: ", type, "[i0, i1], %y: ", type, "[i1, i0]) {\n",
                                   "  %t = permute(%x) {dims=[1, 0]}\n  %z = maximum(%t, %y)\n  return %z\n}");
      CheckProgram(text, {{"i0", n}, {"i1", m}}, 14);
      CheckProgram(text, {{"i0", n}, {"i1", m}}, 14, false, {{"i0", n}, {"i1", m}});
    }
  }
  for (const auto& [n, m] : {std::pair{2, 0}, {5, 40}, {40, 5}}) {
    CheckProgram(R"(fusion @f(%x: f32[3, i0, i1], %w: bf16[i1, i0, 3]) {
      %a = permute(%x) {dims=[2, 1, 0]}
      %b = permute(%x) {dims=[0, 2, 1]}
      %wf = cast(%w) {dtype=f32}
      %c = mul(%a, %wf)
      %d = permute(%w) {dims=[1, 0, 2]}
      return %c, %b, %d
    })",
                 {{"i0", n}, {"i1", m}}, 15);
  }
  // Elements that a pad adds are read from nowhere.
  for (const int64_t n : {4, 37}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, 40], %y: f32[44, i0]) {
      %p = pad(%x) {widths=[1, 3, 0, 0], value=2.5}
      %t = permute(%p) {dims=[1, 0]}
      %z = add(%t, %y)
      return %z
    })",
                 {{"i0", n}}, 16);
  }
}

TEST(Pointwise, SlicesPadsAndPieces) {
  for (const int64_t n : {4, 5, 16, 31, 64}) {
    CheckProgram(R"(fusion @f(%x: bf16[3, i0], %y: bf16[3, 7]) {
      %p = pad(%x) {widths=[2, 3, 1, 0], value=1.5}
      %c = cat(%x, %y, %x) {axis=1}
      %s = slice(%c) {start=[0, 3], end=[3, i0 + 7], strides=[2, 3]}
      %q = neg(%s)
      %z = cat(%y, %y) {axis=0}
      %k = pad(%x) {widths=[-1, -2], value=0.0}
      return %p, %c, %q, %z, %k
    })",
                 {{"i0", n}}, 5);
  }
}

TEST(Pointwise, Reshapes) {
  for (const int64_t n : {0, 1, 3, 8}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, 6, 8]) {
      %a = reshape(%x) {shape=[i0, 48]}
      %b = reshape(%a) {shape=[i0, 4, 3, 4]}
      %p = permute(%b) {dims=[2, 0, 3, 1]}
      %q = neg(%p)
      %c = reshape(%q) {shape=[3, i0, 16]}
      %d = reshape(%x) {shape=[i0 * 48]}
      return %c, %q, %d
    })",
                 {{"i0", n}}, 6);
  }
}

// Indices are data: from memory, computed in the kernel, outside of the tensor, under a guard, and indexed themselves.
TEST(Pointwise, TakesAlongAxes) {
  for (const int64_t n : {1, 5, 16, 33}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, 7], %j: i64[i0, 3], %k: i32[1, 7], %p: i32[i0, 7]) {
      %a = take_along_axis(%x, %j) {axis=1}
      %b = take_along_axis(%x, %k) {axis=0}
      %q = mul(%p, %k)
      %c = take_along_axis(%x, %q) {axis=1}
      %t = permute(%c) {dims=[1, 0]}
      %r = reshape(%x) {shape=[7, i0]}
      %s = permute(%p) {dims=[1, 0]}
      %d = take_along_axis(%r, %s) {axis=1}
      %e = take_along_axis(%j, %j) {axis=0}
      %g = take_along_axis(%x, %e) {axis=1}
      return %a, %b, %t, %d, %g
    })",
                 {{"i0", n}}, 11);
    CheckProgram(R"(fusion @f(%x: bf16[i0, 4], %k: i64[i0, 4]) {
      %a = take_along_axis(%x, %k) {axis=0}
      %p = pad(%a) {widths=[1, 2, 2, 1], value=5.0}
      %n = neg(%p)
      %c = cat(%n, %p) {axis=1}
      return %c
    })",
                 {{"i0", n}}, 12);
  }
  CheckProgram(R"(fusion @f(%x: f64[b:5, 3], %k: i64[5, b:3], %e: i32[5, 0]) {
    %a = take_along_axis(%x, %k) {axis=1}
    %b = take_along_axis(%x, %k) {axis=0}
    %c = take_along_axis(%x, %e) {axis=1}
    return %a, %b, %c
  })",
               {}, 13);
}

// Rows of tensors behind each other, and columns longer than a block: what is loaded is decided by the place.
TEST(Pointwise, PiecesThatEndAnywhere) {
  const auto both = [](std::string_view x, std::string_view y, std::string_view widths, int axis) {
    CheckProgram(
        Cat("fusion @f(%x: ", x, ", %y: ", y,
            ") {\n  %a = mul(%x, %x)\n  %b = neg(%y)\n  %c = cat(%a, %b) {axis=", axis,
            "}\n  %d = abs(%c)\n  %p = pad(%d) {widths=[", widths, "], value=3.0}\n  %e = neg(%p)\n  return %e\n}"),
        {}, 71);
  };
  for (const int rows : {1, 2, 7, 301}) {
    for (const int columns : {1, 3, 8, 33}) {
      both(Cat("f32[", rows, ", ", columns, "]"), Cat("f32[5, ", columns, "]"), "2, 1, 0, 0", 0);
      both(Cat("bf16[2, ", rows, ", ", columns, "]"), Cat("bf16[2, 9, ", columns, "]"), "0, 0, 3, 0, 0, 0", 1);
    }
  }
  for (const int first : {1, 63, 16384, 20001, 50000}) {
    both(Cat("f32[", first, "]"), "f32[40000]", "5, 9", 0);
    both(Cat("f32[2, ", first, "]"), "f32[2, 17000]", "0, 0, 0, 17", 1);
    both(Cat("f32[", first, ", 3]"), "f32[7000, 3]", "1, 1, 0, 0", 0);
  }
}

// Data say which piece an element is from, and pieces may be empty (their pointer null).
TEST(Pointwise, TakesFromPieces) {
  for (const int64_t n : {0, 1, 6}) {
    CheckProgram(R"(fusion @f(%x: i32[2, i0, 9], %y: bool[2, 1, 9], %z: i32[2, 2, 9],
                              %j: i64[2, 3, 9], %k: i32[2, 3, b:9]) {
      %c = cat(%x, %y, %z) {axis=1}
      %a = take_along_axis(%c, %j) {axis=1}
      %b = take_along_axis(%c, %k) {axis=1}
      %p = pad(%x) {widths=[0, 0, 2, 1, 0, 0], value=5.0}
      %d = take_along_axis(%p, %j) {axis=1}
      %e = take_along_axis(%d, %k) {axis=2}
      return %a, %b, %d, %e
    })",
                 {{"i0", n}}, 17);
    CheckProgram(R"(fusion @f(%x: bf16[i0, 200], %y: bf16[2, 200], %j: i64[3, 200]) {
      %c = cat(%x, %y) {axis=0}
      %a = take_along_axis(%c, %j) {axis=0}
      return %a
    })",
                 {{"i0", n}}, 18);
  }
}

// Indices that are computed of places and numbers of the host, and are no expressions: a piece is read where an element
// is from it alone. (Inputs lie beside pages that nobody may touch.)
TEST(Pointwise, TakesFromPiecesAtComputedIndices) {
  for (const int64_t n : {1, 5, 33, 130}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      CheckProgram(R"(fusion @f(%x: f32[i0, 9], %y: f32[i0, 24], %k: i64) {
        %zero: i64 = constant() {value=0.0, dtype=i64}
        %one: i64 = constant() {value=1.0, dtype=i64}
        %last: i64 = constant() {value=32.0, dtype=i64}
        %all: i64 = constant() {value=33.0, dtype=i64}
        %at = iota(%zero, %one) {shape=[33], offset=[0], dtype=i64}
        %c = cat(%x, %y) {axis=1}
        %before = add(%at, %last)
        %wrapped = fmod(%before, %all)
        %w = broadcast(%wrapped) {is_broadcast_dim=[1, 0]}
        %a = take_along_axis(%c, %w) {axis=1}
        %moved = add(%at, %k)
        %inside = remainder(%moved, %all)
        %i = broadcast(%inside) {is_broadcast_dim=[1, 0]}
        %b = take_along_axis(%c, %i) {axis=1}
        %p = pad(%x) {widths=[0, 0, 20, 4], value=5.0}
        %d = take_along_axis(%p, %w) {axis=1}
        %bits = bitwise_and(%at, %last)
        %m = broadcast(%bits) {is_broadcast_dim=[1, 0]}
        %e = take_along_axis(%p, %m) {axis=1}
        %s = add(%a, %b)
        return %a, %b, %d, %e, %s
      })",
                   {{"i0", n}}, 40 + seed);
    }
  }
}

TEST(Pointwise, HostScalarsAndNewValues) {
  CheckProgram(R"(fusion @f(%x: f32[i0], %s: f64, %k: i64) {
    %h = constant() {value=0.25, dtype=f64}
    %t = mul(%s, %h)
    %a = mul(%x, %t)
    %b = add(%a, %k)
    %f = full() {shape=[i0, 3], value=7.0, dtype=i32}
    return %b, %f
  })",
               {{"i0", 21}}, 7);
}

TEST(Pointwise, IntegersAndBits) {
  for (const std::string type : {"i32", "i64"}) {
    CheckProgram(Cat("fusion @f(%x: ", type, "[i0], %y: ", type, R"([i0]) {
      %a = div(%x, %y)
      %b = remainder(%x, %y)
      %c = bitwise_xor(%a, %b)
      %d = minimum(%c, %x)
      %e = lt(%d, %y)
      %f = where(%e, %a, %b)
      %g = bitwise_not(%e)
      return %a, %b, %c, %d, %f, %g
    })"),
                 {{"i0", 53}}, 8);
  }
}

// What a program computes of indices is integers, which truncate, divide by 0 and wrap; that it looks like index
// arithmetic changes nothing.
TEST(Pointwise, IntegersMadeOfIndices) {
  const std::string_view head = R"(fusion @f(%x: i64[i0]) {
    %zero = constant() {value=0, dtype=i64}
    %one = constant() {value=1, dtype=i64}
    %minus = constant() {value=-4, dtype=i64}
    %two = constant() {value=2, dtype=i64}
    %three = constant() {value=3, dtype=i64}
    %none = constant() {value=-3, dtype=i64}
    %large = constant() {value=9007199254740992, dtype=i64}
    %k = constant() {value=4096, dtype=i64}
    %i = iota(%zero, %one) {shape=[i0], offset=[0], dtype=i64}
    %m = iota(%minus, %one) {shape=[i0], offset=[0], dtype=i64}
    %n = add(%i, %k)
)";
  const std::vector<std::pair<std::string_view, std::string_view>> pairs = {
      {"m", "two"},  {"m", "three"}, {"i", "none"},  {"i", "i"},     {"m", "m"},   {"m", "i"},
      {"n", "none"}, {"n", "m"},     {"k", "minus"}, {"m", "minus"}, {"i", "two"}, {"n", "three"}};
  for (const auto& [a, b] : pairs) {
    SCOPED_TRACE(Cat("%", a, " by %", b));
    std::string body, results;
    for (const std::string_view op : {"div", "mod", "remainder", "fmod"}) {
      base::Append(body, "    %", op, " = ", op, "(%", a, ", %", b, ")\n    %y", op, " = add(%x, %", op, ")\n    %z",
                   op, " = mul(%", op, ", %m)\n");
      base::Append(results, results.empty() ? "%y" : ", %y", op, ", %z", op);
    }
    for (const int64_t n : {1, 40}) CheckProgram(Cat(head, body, "    return ", results, "\n  }"), {{"i0", n}}, 9);
  }
  // Products that leave 64 bits, also where a condition on them could be thought decided.
  for (const std::string_view product : {"mul(%big, %k)", "mul(%cube, %big)", "add(%big, %far)"}) {
    CheckProgram(Cat(head, R"(    %big = mul(%i, %large)
    %square = mul(%big, %i)
    %cube = mul(%square, %i)
    %far = mul(%large, %k)
    %y = )",
                     product, R"(
    %is_low = lt(%y, %zero)
    %w = where(%is_low, %x, %y)
    return %y, %w
  })"),
                 {{"i0", 700}}, 10);
  }
}

// The program of a rotary position embedding, small.
TEST(Pointwise, Rotation) {
  CheckProgram(R"(fusion @rope(%x: bf16[i0, 5, 96], %cos: bf16[5, 4], %sin: bf16[5, 4]) {
    %v = reshape(%x) {shape=[i0, 5, 2, 6, 8]}
    %p = permute(%v) {dims=[0, 2, 3, 1, 4]}
    %k0 = slice(%p) {start=[0, 0, 4, 0, 0], end=[i0, 2, 5, 5, 8], strides=[1, 1, 1, 1, 1]}
    %ke = expand(%k0) {shape=[i0, 2, 4, 5, 8]}
    %k = reshape(%ke) {shape=[i0, 8, 5, 8]}
    %kr = slice(%k) {start=[0, 0, 0, 0], end=[i0, 8, 5, 4], strides=[1, 1, 1, 1]}
    %k1 = slice(%kr) {start=[0, 0, 0, 0], end=[i0, 8, 5, 2], strides=[1, 1, 1, 1]}
    %k2 = slice(%kr) {start=[0, 0, 0, 2], end=[i0, 8, 5, 4], strides=[1, 1, 1, 1]}
    %n = neg(%k2)
    %rot = cat(%n, %k1) {axis=3}
    %a = mul(%kr, %cos)
    %b = mul(%rot, %sin)
    %r = add(%a, %b)
    %rest = slice(%k) {start=[0, 0, 0, 4], end=[i0, 8, 5, 8], strides=[1, 1, 1, 1]}
    %o = cat(%r, %rest) {axis=3}
    return %o
  })",
               {{"i0", 3}}, 9);
}

}  // namespace
}  // namespace hir::codegen
