// Reductions and what follows them, against the interpreter: kinds, types, axes, phases, and the two-launch form.
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

const std::vector<std::pair<int, int>> kSizes = {{3, 7},   {1, 1},     {0, 5},     {5, 0},
                                                 {33, 18}, {64, 1024}, {1024, 64}, {300, 1500}};

TEST(Reduction, RowsColumnsAndAll) {
  for (const auto& [n, m] : kSizes) {
    for (const std::string axes : {"1", "0", "0, 1"}) {
      for (const std::string keepdim : {"false", "true"}) {
        CheckProgram(Cat("fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[", axes, "], keepdim=", keepdim,
                         ", dtype=null}\n  %y = mul(%s, %s)\n  return %s, %y\n}"),
                     {{"i0", n}, {"i1", m}}, 1);
      }
    }
  }
}

TEST(Reduction, EveryKindAndType) {
  for (const DType dtype : kAllDTypes) {
    for (const std::string kind : {"sum", "max", "min", "prod"}) {
      if (kind == "prod" && dtype == DType::kInt64) continue;  // Wraps; the interpreter too, but order shows nothing.
      for (const std::string axes : {"1", "0", "0, 2"}) {
        CheckProgram(Cat("fusion @f(%x: ", DTypeName(dtype), "[3, 19, i0]) {\n  %s = ", kind, "(%x) {axes=[", axes,
                         "], keepdim=false, dtype=null}\n  return %s\n}"),
                     {{"i0", 21}}, 2);
      }
    }
  }
}

// Long sums of rows of a few columns, several rows abreast: rows that do not fill the last step, plans for other sizes,
// and what is reduced with them.
TEST(Reduction, RowsOfAFewColumnsAbreast) {
  const auto of = [](const std::string& type, const std::string& kind, const std::string& axes) {
    return Cat("fusion @f(%x: ", type, ") {\n  %f = cast(%x) {dtype=f32}\n  %a = sigmoid(%f)\n  %s = ", kind,
               "(%a) {axes=[", axes, "], keepdim=false, dtype=null}\n  %t = sum(%f) {axes=[", axes,
               "], keepdim=false, dtype=null}\n  %y = mul(%s, %s)\n  return %s, %y, %t\n}");
  };
  for (const int n : {16403, 7, 0}) {
    for (const int m : {1, 2, 3, 15}) {
      const SymbolValues symbols = {{"i0", n}, {"i1", m}};
      CheckProgram(of(Cat("bf16[i0, ", m, "]"), "sum", "0"), symbols, 4, false, {{"i0", n}});
      CheckProgram(of("f32[i0, i1]", "prod", "0"), symbols, 5, false, {{"i0", 30000}, {"i1", 3}});
    }
    const SymbolValues symbols = {{"i0", n}};
    if (n > 0) CheckProgram(of("f32[2, i0, 3]", "max", "1"), symbols, 6, true, {{"i0", 30000}});
    if (n > 0) CheckProgram(of("f16[2, i0, 3]", "min", "0, 1"), symbols, 7);
  }
}

// Two axes are reduced as one, and what is computed of their places is so of each row abreast.
TEST(Reduction, RowsAbreastByTheirPlaces) {
  for (const std::string shape : {"200, 300", "i0, 300"}) {
    const std::string rows = shape == "200, 300" ? "60000" : "300 * i0";
    CheckProgram(Cat("fusion @f(%x: f32[", shape, ", 3]) {\n  %one = constant() {value=1.0, dtype=i64}\n",
                     "  %i = iota(%one, %one) {shape=[", rows, "], offset=[0], dtype=i64}\n",
                     "  %p = reshape(%i) {shape=[", shape, ", 1]}\n  %f = cast(%p) {dtype=f32}\n",
                     "  %k = constant() {value=0.0001, dtype=f64}\n  %g = mul(%f, %k)\n  %y = mul(%x, %g)\n",
                     "  %z = sin(%y)\n  %s = sum(%z) {axes=[0, 1], keepdim=false, dtype=null}\n  return %s\n}"),
                 {{"i0", 201}}, 9, false, {{"i0", 201}});
  }
}

TEST(Reduction, NaNAndInfinityGoThrough) {
  for (const std::string kind : {"sum", "max", "min"}) {
    for (const int axis : {0, 1}) {
      CheckProgram(Cat("fusion @f(%x: f32[40, 50]) {\n  %a = ", kind, "(%x) {axes=[", axis,
                       "], keepdim=false, dtype=null}\n  return %a\n}"),
                   {}, 3, true);
    }
  }
}

TEST(Reduction, OfBroadcastAxesWithoutElements) {
  for (const int n : {1, 2, 9}) {  // n - 1 of them: none, one, several.
    for (const std::string kind : {"sum", "prod"}) {
      CheckProgram(base::Cat(R"(fusion @f(%x: f32[b:i0, 19]) {
        %s = slice(%x) {start=[1, 0], end=[i0, 19], strides=[1, 1]}
        %y = )",
                             kind, R"((%s) {axes=[0], keepdim=false, dtype=null}
        return %y
      })"),
                   {{"i0", n}}, 5, true);
    }
  }
}

TEST(Reduction, SeveralAtOnceWithStores) {
  for (const auto& [n, m] : kSizes) {
    CheckProgram(R"(fusion @f(%x: bf16[i0, 6, i1], %w: f32[i1]) {
      %a = cast(%x) {dtype=f32}
      %b = mul(%a, %w)
      %s = sum(%a) {axes=[1], keepdim=false, dtype=null}
      %t = sum(%b) {axes=[1], keepdim=false, dtype=null}
      %u = add(%s, %t)
      %v = cast(%u) {dtype=bf16}
      return %v, %b, %t
    })",
                 {{"i0", n}, {"i1", m}}, 4);
  }
}

TEST(Reduction, InTwoLaunches) {
  CheckProgram(R"(fusion @f(%x: f32[20, 300, 100], %y: f32[100]) {
    %a = mul(%x, %y)
    %s = sum(%a) {axes=[0, 1], keepdim=false, dtype=null}
    %m = max(%x) {axes=[0, 1], keepdim=false, dtype=null}
    %t = add(%s, %m)
    %u = mul(%t, %y)
    return %u, %a
  })",
               {}, 5);
  CheckProgram(R"(fusion @f(%x: f64[i0]) {
    %s = sum(%x) {axes=[0], keepdim=false, dtype=null}
    %t = mul(%s, %s)
    return %t
  })",
               {{"i0", 70001}}, 6);
  for (const int64_t n : {0, 1, 63, 65, 1000}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, 3]) {
      %s = sum(%x) {axes=[0], keepdim=false, dtype=null}
      return %s
    })",
                 {{"i0", n}}, 7);
  }
}

// Columns are carried from row to row, on some CPUs several rows at a time, more of a sum alone than of sums that share
// what they read, one of what depends on the row, and one of what only some rows have.
// Sums of several tensors in launches that they share, read by all of them, and stored.
TEST(Reduction, OfSeveralTensorsInParts) {
  for (const auto& [n, m] : {std::pair{70000, 40001}, {70000, 5}, {0, 40000}, {40003, 1}}) {
    CheckProgram(R"(fusion @f(%a: f32[i0], %b: f32[i1], %c: f64[7, i1]) {
      %aa = mul(%a, %a)
      %sa = sum(%aa) {axes=[0], keepdim=false, dtype=null}
      %mb = max(%b) {axes=[0], keepdim=false, dtype=null}
      %sb = sum(%b) {axes=[0], keepdim=false, dtype=null}
      %norm = add(%sa, %sb)
      %x = mul(%a, %norm)
      %y = mul(%b, %norm)
      %z = sub(%b, %mb)
      return %x, %y, %z, %norm
    })",
                 {{"i0", n}, {"i1", m}}, 6);
  }
}

// Phases of one launch whose rows' axes join in one of them alone.
TEST(Reduction, InPartsOfRowsThatOneReadsAcross) {
  for (const std::string axis : {"2", "0"}) {
    const bool last = axis == "2";
    CheckProgram(
        Cat("fusion @f(%x: f32[", last ? "2, 3, 300000" : "300000, 3, 2", "], %y: f32[",
            last ? "3, 2, 300001" : "2, 300001, 3", "]) {\n  %p = permute(%y) {dims=", last ? "[1, 0, 2]" : "[1, 2, 0]",
            "}\n  %s = sum(%x) {axes=[", axis, "], keepdim=false, dtype=null}\n  %t = sum(%p) {axes=[", axis,
            "], keepdim=false, dtype=null}\n  %m = max(%x) {axes=[", axis,
            "], keepdim=false, dtype=null}\n  %u = add(%s, %t)\n  return %u, %m\n}"),
        {}, 8);
  }
}

// Two or three tensors whose axes lie in any order in memory, reduced along the long one; sums read each other or not.
TEST(Reduction, RandomSumsInParts) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    base::Prng prng(seed);
    const int count = static_cast<int>(prng.Between(2, 3));
    std::string parameters, body, returned;
    for (int i = 0; i < count; ++i) {
      const std::vector<int64_t> shape = {2, 3, 270001 + prng.Between(0, 1) * 3 * i};  // Rows first.
      std::vector<size_t> order = {0, 1, 2};                                           // As they lie.
      for (size_t k = prng.OneIn(3) ? 2 : 1; k > 0; --k)
        std::swap(order[k], order[static_cast<size_t>(prng.Between(0, static_cast<int64_t>(k)))]);
      std::vector<size_t> back(3);
      for (size_t k = 0; k < 3; ++k) back[order[k]] = k;
      base::Append(parameters, i == 0 ? "" : ", ", "%x", i, ": f32[", shape[order[0]], ", ", shape[order[1]], ", ",
                   shape[order[2]], "]");
      base::Append(body, "  %p", i, " = permute(%x", i, ") {dims=[", back[0], ", ", back[1], ", ", back[2], "]}\n");
      std::string read = Cat("p", i);
      if (i > 0 && prng.OneIn(2)) {
        base::Append(body, "  %d", i, " = sub(%p", i, ", %s", i - 1, ")\n");
        read = Cat("d", i);
      }
      base::Append(body, "  %s", i, " = ", prng.OneIn(2) ? "max" : "min", "(%", read,
                   ") {axes=[2], keepdim=true, dtype=null}\n");
      if (i > 0) base::Append(body, "  %t", i, " = add(%s", i, ", %", i == 1 ? "s" : "t", i - 1, ")\n");
      base::Append(returned, i == 0 ? "%s" : ", %s", i);
    }
    const std::string text =
        Cat("fusion @f(", parameters, ") {\n", body, "  return ", returned, ", %t", count - 1, "\n}");
    SCOPED_TRACE(Cat("seed ", seed, "\n", text));
    CheckProgram(text, {}, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

// Each waits for the one before: two launches each, more than any other plan has.
TEST(Reduction, ManyInPartsOneBehindTheOther) {
  std::string body, last = "x";
  for (int i = 0; i < 40; ++i) {
    base::Append(body, "  %m", i, " = max(%", last, ") {axes=[0], keepdim=true, dtype=null}\n  %y", i, " = sub(%x, %m",
                 i, ")\n");
    last = Cat("y", i);
  }
  CheckProgram(Cat("fusion @f(%x: f32[i0]) {\n", body, "  return %", last, "\n}"), {{"i0", 50001}}, 7);
}

TEST(Reduction, ColumnsOfAnyNumberOfRows) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 19, 20, 21, 66, 1003}) {
    for (const int64_t m : {1, 16, 37, 300}) {
      for (const std::string dtype : {"f32", "bf16"}) {
        CheckProgram(Cat("fusion @f(%x: ", dtype, R"([i0, i1]) {
          %s = sum(%x) {axes=[0], keepdim=false, dtype=f32}
          return %s
        })"),
                     {{"i0", n}, {"i1", m}}, static_cast<uint64_t>(200 + n));
        CheckProgram(Cat("fusion @f(%x: ", dtype, R"([i0, i1], %w: f32[i0]) {
          %f = cast(%x) {dtype=f32}
          %wb = broadcast(%w) {is_broadcast_dim=[0, 1]}
          %a = mul(%f, %wb)
          %z = constant() {value=0.0, dtype=f64}
          %p = gt(%wb, %z)
          %k = where(%p, %f, %z)
          %s = sum(%f) {axes=[0], keepdim=false, dtype=null}
          %t = sum(%a) {axes=[0], keepdim=false, dtype=null}
          %u = max(%k) {axes=[0], keepdim=false, dtype=null}
          return %s, %t, %u
        })"),
                     {{"i0", n}, {"i1", m}}, static_cast<uint64_t>(100 + n));
      }
    }
  }
}

TEST(Reduction, ColumnsOfAxesWithoutElements) {
  for (const std::string_view kind : {"sum", "prod", "max"}) {
    for (const std::string_view type : {"f32", "bf16"}) {
      for (const auto& [columns, other] : {std::pair("17, 0", "17, 1"), {"0, 5", "0, 5"}, {"0", "1"}}) {
        CheckProgram(Cat("fusion @f(%x: ", type, "[i0, ", columns, "], %y: ", type, "[i0, ", other,
                         "]) {\n  %t = add(%x, %y)\n  %r = ", kind,
                         "(%t) {axes=[0], keepdim=false, dtype=null}\n  return %r\n}"),
                     {{"i0", 9}}, 13);
      }
    }
  }
}

TEST(Normalization, Softmax) {
  for (const auto& [n, m] : {std::pair{3, 7}, {1, 1}, {33, 18}, {64, 1024}, {5, 40000}}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, i1]) {
      %m = max(%x) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%x, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
      %y = div(%e, %s)
      return %y
    })",
                 {{"i0", n}, {"i1", m}}, 8);
    CheckProgram(R"(fusion @f(%x: bf16[i0, i1]) {
      %m = max(%x) {axes=[0], keepdim=true, dtype=null}
      %d = sub(%x, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[0], keepdim=true, dtype=null}
      %y = div(%e, %s)
      return %y, %m
    })",
                 {{"i0", n}, {"i1", m}}, 9);
  }
}

TEST(Normalization, LayerNorm) {
  for (const auto& [n, m] : {std::pair{3, 7}, {2, 1}, {0, 9}, {17, 300}}) {
    CheckProgram(R"(fusion @f(%x: bf16[i0, 4, i1], %w: f32[i1], %b: f32[i1]) {
      %f = cast(%x) {dtype=f32}
      %s = sum(%f) {axes=[2], keepdim=true, dtype=null}
      %k = constant() {value=0.125, dtype=f64}
      %m = mul(%s, %k)
      %d = sub(%f, %m)
      %q = mul(%d, %d)
      %v = sum(%q) {axes=[2], keepdim=false, dtype=null}
      %z = constant() {value=1.0, dtype=f64}
      %e = add(%v, %z)
      %r = rsqrt(%e)
      %rb = broadcast(%r) {is_broadcast_dim=[0, 0, 1]}
      %n = mul(%d, %rb)
      %nw = mul(%n, %w)
      %o = add(%nw, %b)
      %y = cast(%o) {dtype=bf16}
      return %y, %r, %m
    })",
                 {{"i0", n}, {"i1", m}}, 10);
  }
}

// Cross entropy: the rows' own logits are taken from the input, from what a reduction made, and by column.
TEST(Normalization, CrossEntropy) {
  for (const auto& [n, m] : {std::pair{1, 1}, {3, 7}, {33, 100}, {5, 5000}}) {
    const SymbolValues sizes = {{"i0", n}, {"i1", m}};
    CheckProgram(R"(fusion @f(%x: f32[i0, i1], %k: i64[i0]) {
      %m = max(%x) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%x, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
      %l = log(%s)
      %kb = broadcast(%k) {is_broadcast_dim=[0, 1]}
      %t = take_along_axis(%x, %kb) {axis=1}
      %tm = sub(%t, %m)
      %y = sub(%l, %tm)
      %r = squeeze(%y) {axes=[1]}
      return %r
    })",
                 sizes, 14);
    CheckProgram(R"(fusion @f(%x: bf16[i0, i1], %k: i32[i0]) {
      %f = cast(%x) {dtype=f32}
      %m = max(%f) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%f, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
      %l = log(%s)
      %p = sub(%d, %l)
      %kb = broadcast(%k) {is_broadcast_dim=[0, 1]}
      %t = take_along_axis(%p, %kb) {axis=1}
      %y = neg(%t)
      return %y
    })",
                 sizes, 15);
    CheckProgram(R"(fusion @f(%x: f32[i0, i1], %k: i32[3, i1]) {
      %m = max(%x) {axes=[0], keepdim=true, dtype=null}
      %d = sub(%x, %m)
      %t = take_along_axis(%d, %k) {axis=0}
      return %t, %d
    })",
                 sizes, 16);
  }
}

// A part of what a reduction made, and an index that a reduction made.
TEST(Normalization, ReadsAtOtherPlacesAlongTheReducedAxis) {
  CheckProgram(R"(fusion @f(%x: f32[i0, 24], %k: i64[i0, 3]) {
    %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
    %d = sub(%x, %s)
    %p = slice(%d) {start=[0, 4], end=[i0, 22], strides=[1, 3]}
    %q = reshape(%d) {shape=[i0, 4, 6]}
    %n = neg(%q)
    %z = sum(%k) {axes=[1], keepdim=true, dtype=null}
    %t = take_along_axis(%d, %z) {axis=1}
    return %p, %n, %t
  })",
               {{"i0", 9}}, 17);
}

// Eight elements of 64 bits are two registers without AVX-512; behind a row's ninth the second one has none. LLVM 19
// reads it all the same, of two loads behind one condition, beyond the last row.
TEST(Normalization, ReadsNothingBesideARowBehindACondition) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {  // Memory ends behind the last row, or begins with the first.
    CheckProgram(R"(fusion @f(%x: i64[i0, 9]) {
      %zero = constant() {value=0, dtype=i64}
      %one = constant() {value=1, dtype=i64}
      %i = iota(%zero, %one) {shape=[i0], offset=[0], dtype=i64}
      %row = broadcast(%i) {is_broadcast_dim=[0, 1]}
      %j = iota(%zero, %one) {shape=[9], offset=[0], dtype=i64}
      %column = broadcast(%j) {is_broadcast_dim=[1, 0]}
      %d = sub(%column, %row)
      %least = constant() {value=-2, dtype=i64}
      %in = ge(%d, %least)
      %t = where(%in, %x, %zero)
      %f = cast(%t) {dtype=f32}
      %h = tanh(%f)
      %s = sum(%h) {axes=[1], keepdim=true, dtype=null}
      %u = sub(%h, %s)
      %q = mul(%u, %u)
      %y = sum(%q) {axes=[1], keepdim=false, dtype=null}
      return %y
    })",
                 {{"i0", 8}}, seed);
  }
}

TEST(Accepts, SaysWhyNot) {
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[i0, i1, i2]) {
    %a = sum(%x) {axes=[0], keepdim=false, dtype=null}
    %b = sum(%x) {axes=[1], keepdim=false, dtype=null}
    return %a, %b
  })")
                .reason,
            "%b keeps other axes than %a");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[8, i1]) {
    %a = sum(%x) {axes=[1], keepdim=false, dtype=null}
    %b = reshape(%a) {shape=[2, 4]}
    return %b
  })")
                .reason,
            "reshape %b reads the result of a reduction at another index");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[8, 9], %y: f32[9, 8]) {
    %a = matmul(%x, %y)
    return %a
  })")
                .reason,
            "matmul is a library call");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[8, i1], %k: i64[3]) {
    %a = sum(%x) {axes=[1], keepdim=false, dtype=null}
    %b = take_along_axis(%a, %k) {axis=0}
    return %b
  })")
                .reason,
            "take_along_axis %b reads the result of a reduction at another index");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[i0, i0]) {
    %t = permute(%x) {dims=[1, 0]}
    %a = add(%x, %t)
    %s = sum(%a) {axes=[1], keepdim=false, dtype=null}
    return %s
  })")
                .reason,
            "two axes of %a have one index");
}

TEST(Accepts, NamesTheSchedule) {
  EXPECT_EQ(VerdictOf("fusion @f(%x: f32[i0]) {\n  %a = neg(%x)\n  return %a\n}").schedule, "pointwise");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[i0, i1]) {
    %a = sum(%x) {axes=[1], keepdim=true, dtype=null}
    return %a
  })")
                .schedule,
            "reduction");
  EXPECT_EQ(VerdictOf(R"(fusion @f(%x: f32[i0, i1]) {
    %a = sum(%x) {axes=[1], keepdim=true, dtype=null}
    %b = div(%x, %a)
    return %b
  })")
                .schedule,
            "normalization");
}

}  // namespace
}  // namespace hir::codegen
