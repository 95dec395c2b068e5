// Goal: the CUDA C++ of every schedule computes what the interpreter does, vectors and any sizes alike.
// Method: the text runs on the CPU (emulator.h); outputs hold garbage first, bytes around them are watched, every
// fourth time operands lie off their vectors' boundaries.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/csrc/codegen/every_pointwise.h"
#include "tests/csrc/codegen/gpu/emulated_programs.h"
#include "tests/csrc/codegen/nested_programs.h"
#include "tests/property/in_place_programs.h"
#include "tests/property/program_generator.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

#define SKIP_WITHOUT_COMPILER() \
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine"

// Outputs in the memory of inputs, in vectors and element by element.
TEST(Emulated, InPlace) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(12);
  size_t wanted = 0;
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    for (const testing::InPlaceProgram& program : testing::InPlacePrograms(dtype)) {
      if (!program.is_pointwise) continue;
      for (const int64_t rows : {1, 0, 67}) {
        const auto outputs = std::ranges::count(program.in_place, ' ') + (program.in_place.empty() ? 0 : 1);
        wanted += static_cast<size_t>(outputs);
        programs.Add(program.text, {{"i0", rows}, {"i1", rows == 67 ? 136 : 5}});
      }
    }
  }
  EXPECT_EQ(programs.num_in_place(), wanted);
  programs.Check();
}

TEST(Emulated, Pointwise) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(1);
  for (const int64_t n : {0, 1, 5, 17, 128, 4096, 4099, 9001}) {  // With and without a rest behind vectors.
    programs.Add(R"(fusion @f(%x: f32[i0], %y: f32[i0]) {
      %a: f32[i0] = mul(%x, %y)
      %b: f32[i0] = sub(%a, %x)
      %m: f32[i0] = maximum(%x, %y)
      %t: f32[i0] = tanh(%x)
      %n: bool[i0] = isnan(%b)
      return %a, %b, %m, %t, %n
    })",
                 {{"i0", n}}, true);
    programs.Add(R"(fusion @f(%x: bf16[3, i0], %y: bf16[3, 8]) {
      %p = pad(%x) {widths=[2, 3, 1, 0], value=1.5}
      %c = cat(%x, %y, %x) {axis=1}
      %q = neg(%c)
      %z = cat(%y, %y) {axis=0}
      return %p, %q, %z
    })",
                 {{"i0", n}});
  }
  programs.Add(R"(fusion @f(%x: f32[i0], %s: f64, %k: i64) {
    %h = constant() {value=0.25, dtype=f64}
    %t = mul(%s, %h)
    %a = mul(%x, %t)
    %b = add(%a, %k)
    %f = full() {shape=[i0, 3], value=7.0, dtype=i32}
    return %b, %f
  })",
               {{"i0", 21}});
  programs.Add(R"(fusion @rope(%x: bf16[i0, 5, 192], %cos: bf16[5, 8], %sin: bf16[5, 8]) {
    %v = reshape(%x) {shape=[i0, 5, 2, 6, 16]}
    %p = permute(%v) {dims=[0, 2, 3, 1, 4]}
    %k0 = slice(%p) {start=[0, 0, 4, 0, 0], end=[i0, 2, 5, 5, 16], strides=[1, 1, 1, 1, 1]}
    %ke = expand(%k0) {shape=[i0, 2, 4, 5, 16]}
    %k = reshape(%ke) {shape=[i0, 8, 5, 16]}
    %kr = slice(%k) {start=[0, 0, 0, 0], end=[i0, 8, 5, 8], strides=[1, 1, 1, 1]}
    %k1 = slice(%kr) {start=[0, 0, 0, 0], end=[i0, 8, 5, 4], strides=[1, 1, 1, 1]}
    %k2 = slice(%kr) {start=[0, 0, 0, 4], end=[i0, 8, 5, 8], strides=[1, 1, 1, 1]}
    %n = neg(%k2)
    %rot = cat(%n, %k1) {axis=3}
    %a = mul(%kr, %cos)
    %b = mul(%rot, %sin)
    %r = add(%a, %b)
    %rest = slice(%k) {start=[0, 0, 0, 8], end=[i0, 8, 5, 16], strides=[1, 1, 1, 1]}
    %o = cat(%r, %rest) {axis=3}
    return %o
  })",
               {{"i0", 3}});
  programs.Check();
}

TEST(Emulated, EveryPointwiseOp) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(12);
  for (const auto& [real, whole] : {std::pair("f32", "i32"), {"f64", "i64"}, {"bf16", "i32"}}) {
    for (const PointwiseProgram& program : EveryPointwiseOp(real, whole))
      programs.Add(program.text, {{"i0", 67}}, program.unary);
  }
  programs.Check();
}

// Ops made of others, and what only they need.
TEST(Emulated, SequencesAndIndices) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(13);
  for (const auto& [n, m] : {std::pair{5, 7}, {1, 1}, {33, 128}}) {
    const SymbolValues sizes = {{"i0", n}, {"i1", m}, {"i2", 6}};
    programs.Add(R"(fusion @f(%x: f32[i0, i1], %s: i64, %t: f64) {
      %n = size(%x) {axis=0}
      %i = iota(%s, %n) {shape=[i1], offset=[3], dtype=i32}
      %f = iota(%t, %s) {shape=[i1], offset=[0], dtype=f32}
      %y = mul(%x, %i)
      %u = triu(%x) {diagonal=1}
      return %y, %f, %u
    })",
                 sizes);
    programs.Add(R"(fusion @f(%x: bf16[i0, i1], %k: i32[i2], %j: i64[i0, i2], %s: i64) {
      %a = index_select(%x, %k) {axis=1}
      %g = gather(%x, %j) {axis=1}
      return %a, %g
    })",
                 sizes);
    programs.Add(R"(fusion @f(%x: f32[i0, i1], %s: i64) {
      %a = select(%x, %s) {axis=0}
      return %a
    })",
                 sizes);
    programs.Add(R"(fusion @f(%x: f32[i0, i1], %j: i64[i0, i2], %z: f32[i0, i2]) {
      %y = scatter(%x, %j, %z) {axis=1}
      return %y
    })",
                 sizes);
    programs.Add(R"(fusion @f(%x: bf16[i0, i1]) {
      %m = mean(%x) {axes=[1], keepdim=true}
      %v = var(%x) {axes=[1], correction=0, keepdim=true}
      %d = sub(%x, %m)
      %r = rsqrt(%v)
      %y = mul(%d, %r)
      return %m, %v, %y
    })",
                 sizes);
  }
  programs.Check();
}

TEST(Emulated, EveryPairOfTypesConverts) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(2);
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      programs.Add(Cat("fusion @f(%x: ", DTypeName(from), "[i0]) {\n  %y: ", DTypeName(to),
                       "[i0] = cast(%x) {dtype=", DTypeName(to), "}\n  %z = add(%y, %y)\n  return %y, %z\n}"),
                   {{"i0", from == to ? 37 : 64}});
    }
  }
  programs.Check();
}

TEST(Emulated, Transposed) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(3);
  for (const auto& [n, m] : {std::pair{64, 128}, {40, 200}, {33, 18}, {136, 72}, {256, 64}}) {
    for (const std::string type : {"bf16", "f32"}) {
      programs.Add(Cat("fusion @f(%x: ", type, "[2, i0, i1], %b: ", type, R"([2, i0, i1]) {
        %a = add(%x, %b)
        %t = permute(%a) {dims=[0, 2, 1]}
        return %t
      })"),
                   {{"i0", n}, {"i1", m}});
    }
    programs.Add(R"(fusion @f(%x: bf16[i0, i1], %w: bf16[i1]) {
      %a = add(%x, %w)
      %t = permute(%a) {dims=[1, 0]}
      %e = cast(%t) {dtype=f32}
      %g = gelu(%e)
      return %g, %a
    })",
                 {{"i0", n}, {"i1", m}});
  }
  programs.Check();
}

// Pieces of a concatenation that take functions: each is computed for the vectors that lie in it.
TEST(Emulated, PiecesByBranch) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(7);
  for (const auto& [n, m] : {std::pair{64, 128}, {8, 24}, {12, 400}, {7, 9}}) {
    for (const std::string type : {"bf16", "f32"}) {
      programs.Add(Cat("fusion @f(%x: ", type, "[i0], %y: ", type, "[i1], %z: ", type, R"([i1]) {
        %a = sigmoid(%x)
        %b = tanh(%y)
        %c = cat(%a, %b, %z) {axis=0}
        %e = exp(%c)
        return %e
      })"),
                   {{"i0", n}, {"i1", m}});
      programs.Add(Cat("fusion @f(%x: ", type, "[3, ", n, "], %y: ", type, "[3, ", m, R"(]) {
        %a = sigmoid(%x)
        %b = div(%y, %y)
        %c = cat(%a, %b) {axis=1}
        %p = pad(%c) {widths=[8, 4, 0, 0], value=1.0}
        return %p
      })"),
                   {});
    }
  }
  programs.Check();
}

// Extents that no vector divides, and short ones.
TEST(Emulated, Tiled) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(6);
  for (const auto& [n, m] : {std::pair{33, 67}, {17, 300}, {515, 9}, {8, 1001}, {205, 131}}) {
    for (const std::string type : {"bf16", "f32", "f64", "bool", "i32"}) {
      programs.Add(Cat("fusion @f(%x: ", type, "[2, i0, i1], %b: ", type, R"([2, i1, i0]) {
        %t = permute(%x) {dims=[0, 2, 1]}
        %a = maximum(%t, %b)
        return %t, %a
      })"),
                   {{"i0", n}, {"i1", m}});
    }
    // Operands that lie as the result are read behind the barrier; a condition asks for both at once.
    programs.Add(R"(fusion @f(%x: f32[i0, i1], %b: f32[i1, i0], %c: i64[i1, i0]) {
      %e = exp(%x)
      %t = permute(%e) {dims=[1, 0]}
      %s = sigmoid(%b)
      %a = mul(%t, %s)
      %k = constant() {value=1.0, dtype=f64}
      %l = gt(%b, %k)
      %w = where(%l, %t, %a)
      %p = pad(%t) {widths=[1, 2, 0, 0], value=0.5}
      %q = slice(%p) {start=[0, 2], end=[i1, i0 + 2], strides=[1, 1]}
      %r = add(%q, %b)
      return %a, %w, %r
    })",
                 {{"i0", n}, {"i1", m}});
    // More than a tile has room for: the results cross it instead.
    programs.Add(R"(fusion @f(%x: f64[i0, i1], %y: f64[i0, i1], %z: f64[i0, i1], %b: f64[i1, i0]) {
      %s = permute(%x) {dims=[1, 0]}
      %t = permute(%y) {dims=[1, 0]}
      %u = permute(%z) {dims=[1, 0]}
      %p = mul(%s, %b)
      %q = maximum(%t, %p)
      %r = sub(%q, %b)
      %v = mul(%r, %u)
      return %v
    })",
                 {{"i0", n}, {"i1", m}});
    programs.Add(Cat("fusion @f(%x: f32[", n, ", 3, ", m, R"(], %w: f32[)", n, R"(]) {
      %t = permute(%x) {dims=[2, 1, 0]}
      %i = broadcast(%w) {is_broadcast_dim=[1, 1, 0]}
      %y = mul(%t, %i)
      return %y
    })"),
                 {});
  }
  programs.Check();
}

// Long rows that no vector divides: each row's vectors begin where memory's do, and what lies otherwise is read across
// them. Of any size and of one; results of two types lie in two ways.
TEST(Emulated, PointwiseRowsThatBeginAnywhere) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(18);
  for (const auto& [n, m] : {std::pair{5, 4097}, {3, 2051}, {4, 6002}, {1, 3333}, {7, 2048}}) {
    for (const bool is_symbol : {false, true}) {
      const std::string rows = is_symbol ? "i0" : Cat(n), columns = is_symbol ? "i1" : Cat(m);
      for (const std::string type : {"bf16", "f32"}) {
        programs.Add(
            Cat("fusion @f(%x: ", type, "[", rows, ", ", columns, "], %b: ", type, "[", columns, "], %w: f32[", rows,
                R"(, 1]) {
          %a = add(%x, %b)
          %s = sigmoid(%a)
          %y = mul(%s, %w)
          %f = cast(%y) {dtype=f32}
          return %y, %f
        })"),
            {{"i0", n}, {"i1", m}});
      }
      programs.Add(Cat("fusion @f(%x: bf16[", rows, ", ", columns, "], %b: f32[", columns, R"(]) {
        %p = pad(%x) {widths=[3, 0, 0, 0], value=0.5}
        %q = slice(%p) {start=[0, 0], end=[)",
                       rows, ", ", columns, R"(], strides=[1, 1]}
        %a = mul(%q, %x)
        %y = add(%a, %b)
        return %y
      })"),
                   {{"i0", n}, {"i1", m}});
    }
  }
  programs.Check();
}

// Vectors on both sides, on one and on none; short axes that are a side as a whole; results that lie either way.
TEST(Emulated, TiledInVectors) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(16);
  for (const auto& [n, m] : {std::pair{36, 68}, {20, 301}, {515, 12}, {2, 1000}, {1001, 3}, {4, 1028}, {6, 250}}) {
    const std::string turned = Cat("[3, ", m, ", ", n, "]"), straight = Cat("[3, ", n, ", ", m, "]");
    for (const std::string type : {"bf16", "f32", "f64", "bool"}) {
      programs.Add(Cat("fusion @f(%x: ", type, straight, ", %b: ", type, turned, R"() {
        %t = permute(%x) {dims=[0, 2, 1]}
        %a = maximum(%t, %b)
        return %a
      })"),
                   {});
    }
    // The second result lies as the input, which a row of weights and a column of them vary along.
    programs.Add(Cat("fusion @f(%x: bf16", straight, ", %w: f32[", m, "], %v: bf16[", n, R"(, 1]) {
      %s = sigmoid(%x)
      %a = mul(%s, %w)
      %c = add(%a, %v)
      %t = permute(%c) {dims=[0, 2, 1]}
      %e = exp(%t)
      return %e, %a, %t
    })"),
                 {});
    // And with operands that lie as the first does.
    programs.Add(Cat("fusion @f(%x: f32", straight, ", %b: f32", turned, R"() {
      %s = tanh(%x)
      %t = permute(%s) {dims=[0, 2, 1]}
      %a = add(%t, %b)
      return %a, %s
    })"),
                 {});
    // Made of both: no part of it is stored as the input lies.
    programs.Add(Cat("fusion @f(%x: f32", straight, ", %b: f32", turned, R"() {
      %t = permute(%x) {dims=[0, 2, 1]}
      %a = add(%t, %b)
      %u = permute(%a) {dims=[0, 2, 1]}
      return %a, %u
    })"),
                 {});
    programs.Add(R"(fusion @f(%x: bf16[i0, i1]) {
      %n = neg(%x)
      %t = permute(%n) {dims=[1, 0]}
      return %t, %n
    })",
                 {{"i0", n}, {"i1", m}});
  }
  for (const std::string type : {"bf16", "f32"}) {
    programs.Add(Cat("fusion @f(%x: ", type, R"([70, 3, 11, 5]) {
      %n = neg(%x)
      %t = permute(%n) {dims=[3, 1, 2, 0]}
      return %t
    })"),
                 {});
    programs.Add(Cat("fusion @f(%x: ", type, R"([16, 33, 7, 4]) {
      %n = neg(%x)
      %t = permute(%n) {dims=[2, 3, 1, 0]}
      return %t, %n
    })"),
                 {});
  }
  programs.Check();
}

TEST(Emulated, Reductions) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(4);
  for (const auto& [n, m] : {std::pair{3, 7}, {1, 1}, {0, 5}, {5, 0}, {33, 24}, {6, 4096}, {3, 9000}, {1, 20681}}) {
    for (const std::string axes : {"1", "0", "0, 1"}) {
      programs.Add(Cat("fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[", axes,
                       "], keepdim=false, dtype=null}\n  %y = mul(%s, %s)\n  return %s, %y\n}"),
                   {{"i0", n}, {"i1", m}});
      if (n * m == 0) continue;  // The greatest of nothing.
      programs.Add(Cat("fusion @f(%x: bf16[i0, i1]) {\n  %f = cast(%x) {dtype=f32}\n  %s = max(%f) {axes=[", axes,
                       "], keepdim=false, dtype=null}\n  return %s, %f\n}"),
                   {{"i0", n}, {"i1", m}}, true);
    }
  }
  for (const DType dtype : kAllDTypes) {
    for (const std::string kind : {"sum", "min"}) {
      for (const std::string axes : {"1", "0", "0, 2"}) {
        programs.Add(Cat("fusion @f(%x: ", DTypeName(dtype), "[3, 19, i0]) {\n  %s = ", kind, "(%x) {axes=[", axes,
                         "], keepdim=false, dtype=null}\n  return %s\n}"),
                     {{"i0", 24}});
      }
    }
  }
  programs.Check();
}

// Threads go on into the next rows, or are as many as there are columns: with vectors and without, of few trips and of
// many, and read again.
TEST(Emulated, RowsOfFewColumns) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(8);
  for (const auto& [n, k, m] : {std::tuple{3001, 2, 2},
                                {1411, 3, 12},
                                {1, 2, 4},
                                {37, 300, 4},
                                {150, 70, 3},
                                {0, 3, 2},
                                {11, 450, 35},
                                {5, 400, 140},
                                {6, 300, 8}}) {
    for (const std::string type : {"f32", "bf16"}) {
      programs.Add(Cat("fusion @f(%x: ", type, R"([i0, i1, i2], %w: f32[i1, i2]) {
        %f = cast(%x) {dtype=f32}
        %m = max(%f) {axes=[1], keepdim=true, dtype=null}
        %i = broadcast(%w) {is_broadcast_dim=[1, 0, 0]}
        %d = add(%f, %i)
        %e = sub(%d, %m)
        %s = sum(%e) {axes=[1], keepdim=false, dtype=null}
        return %e, %s
      })"),
                   {{"i0", n}, {"i1", k}, {"i2", m}});
      programs.Add(Cat("fusion @f(%x: ", type, "[", n, ", ", k, ", ", m, R"(]) {
        %f = cast(%x) {dtype=f32}
        %s = sum(%f) {axes=[1], keepdim=false, dtype=null}
        return %s
      })"),
                   {});
    }
  }
  programs.Check();
}

// Statistics over outer axes and what they normalise: held in registers, read again, and in several launches.
TEST(Emulated, NormalizationsOverOuterAxes) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(9);
  for (const auto& [n, m] : {std::pair{200, 24}, {700, 64}, {1000, 17}, {4100, 40}, {5000, 9}}) {
    programs.Add(Cat("fusion @f(%x: bf16[", n, ", ", m, "], %w: bf16[", m, "]) {", R"(
      %xf = cast(%x) {dtype=f32}
      %square = mul(%xf, %xf)
      %sum = sum(%xf) {axes=[0], keepdim=true, dtype=null}
      %squares = sum(%square) {axes=[0], keepdim=true, dtype=null}
      %k = constant() {value=0.001, dtype=f64}
      %mean = mul(%sum, %k)
      %mean_square = mul(%squares, %k)
      %above = add(%mean_square, %k)
      %rstd = rsqrt(%above)
      %centered = sub(%xf, %mean)
      %normed = mul(%centered, %rstd)
      %scaled = mul(%normed, %w)
      %y = cast(%scaled) {dtype=bf16}
      return %y, %rstd
    })"),
                 {});
    programs.Add(R"(fusion @f(%x: f32[i0, i1]) {
      %m = max(%x) {axes=[0], keepdim=true, dtype=null}
      %d = sub(%x, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[0], keepdim=true, dtype=null}
      %y = div(%e, %s)
      return %y, %s
    })",
                 {{"i0", n}, {"i1", m}});
  }
  // A middle axis, beside many columns: in one step, and held by wide blocks.
  for (const std::string x :
       {"f32[1, 10, 51200]", "bf16[9, 20, 4096]", "f32[4, 70, 4352]", "f32[9, 40, 2049]", "bf16[5, 100, 4099]"}) {
    programs.Add(Cat("fusion @f(%x: ", x, R"() {
      %f = cast(%x) {dtype=f32}
      %m = max(%f) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%f, %m)
      %e = exp(%d)
      %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
      %y = div(%e, %s)
      return %y, %s
    })"),
                 {});
  }
  // Channels between the axes that are reduced.
  programs.Add(R"(fusion @f(%x: f32[i0, 6, 32]) {
      %s = sum(%x) {axes=[0, 2], keepdim=true, dtype=null}
      %k = constant() {value=0.001, dtype=f64}
      %m = mul(%s, %k)
      %y = sub(%x, %m)
      return %y
    })",
               {{"i0", 150}});
  programs.Check();
}

TEST(Emulated, Normalizations) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(5);
  for (const auto& [n, m] :
       {std::pair{3, 7}, {2, 1}, {33, 24}, {5, 1000}, {3, 4104}, {2, 8192}, {2, 16384}, {1, 40000}}) {
    for (const int axis : {1, 0}) {
      programs.Add(Cat(R"(fusion @f(%x: bf16[i0, i1]) {
        %f = cast(%x) {dtype=f32}
        %m = max(%f) {axes=[)",
                       axis, R"(], keepdim=true, dtype=null}
        %d = sub(%f, %m)
        %e = exp(%d)
        %s = sum(%e) {axes=[)",
                       axis, R"(], keepdim=true, dtype=null}
        %y = div(%e, %s)
        %z = cast(%y) {dtype=bf16}
        return %z
      })"),
                   {{"i0", n}, {"i1", m}}, m == 1000);
    }
    programs.Add(R"(fusion @f(%x: bf16[i0, i1], %w: bf16[i1], %b: bf16[i1]) {
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
                 {{"i0", n}, {"i1", m}});
  }
  programs.Check();
}

// In parts, where conditions on places hold in the head of a part and not behind it.
TEST(Emulated, VariancesInParts) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(15);
  for (const std::string axis : {"0", "1"}) {
    for (const int n : {20000, 20003, 33000}) {
      const std::string type = axis == "0" ? "bf16[i0, 8]" : "f32[3, i0]";
      const std::string widths = axis == "0" ? "0, 0, 70, 5" : "70, 5, 0, 0";  // The last axis first.
      programs.Add(Cat("fusion @f(%x: ", type, ") {\n  %p = pad(%x) {widths=[", widths, "], value=2.0}\n",
                       "  %f = cast(%p) {dtype=f32}\n  %n = extent() {value=i0 + 75}\n  %s = sum(%f) {axes=[", axis,
                       "], keepdim=true, dtype=null}\n  %m = truediv(%s, %n)\n  %d = sub(%f, %m)\n",
                       "  %dd = mul(%d, %d)\n  %q = sum(%dd) {axes=[", axis,
                       "], keepdim=true, dtype=null}\n  %v = truediv(%q, %n)\n  %r = rsqrt(%v)\n  %y = mul(%d, %r)\n",
                       "  return %y, %v\n}"),
                   {{"i0", n}});
    }
  }
  programs.Check();
}

// Reductions of two to four elements that do not lie side by side are part of what reads them.
TEST(Emulated, ShortReductionsOfPlanes) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(19);
  for (const auto& [n, k, m] : {std::tuple{30, 2, 517}, {7, 3, 2048}, {5, 4, 64}, {3, 1, 9}, {40, 2, 2051}}) {
    for (const std::string type : {"f32", "bf16"}) {
      programs.Add(Cat("fusion @f(%x: ", type, "[", n, ", ", k, ", i0], %w: f32[i0]) {", R"(
        %f = cast(%x) {dtype=f32}
        %m = mean(%f) {axes=[1], keepdim=true}
        %d = sub(%f, %m)
        %q = mul(%d, %d)
        %v = sum(%q) {axes=[1], keepdim=false, dtype=null}
        %g = max(%x) {axes=[1], keepdim=false, dtype=null}
        %y = mul(%v, %w)
        return %y, %g
      })"),
                   {{"i0", m}});
      programs.Add(Cat("fusion @f(%x: ", type, "[", n, ", ", k, ", 2, ", m, R"(]) {
        %s = cast(%x) {dtype=f32}
        %y = sum(%s) {axes=[1, 2], keepdim=false, dtype=null}
        %c = cast(%y) {dtype=bf16}
        return %c
      })"),
                   {});
    }
  }
  programs.Check();
}

// Columns too many for parts, and rows too many for registers: sums and squares of deviations from their mean in one
// reading, in vectors and not. The mean is far from 0.
TEST(Emulated, VariancesInOneReading) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(17);
  for (const auto& [n, m] : {std::pair{800, 8704}, {777, 8715}}) {
    programs.Add(Cat("fusion @f(%x: bf16[", n, ", ", m, R"(]) {
      %k = constant() {value=100.0, dtype=f64}
      %f = cast(%x) {dtype=f32}
      %h = add(%f, %k)
      %v = var(%h) {axes=[0], correction=1, keepdim=true}
      %m = mean(%h) {axes=[0], keepdim=true}
      %d = sub(%h, %m)
      %r = rsqrt(%v)
      %y = mul(%d, %r)
      %z = cast(%y) {dtype=bf16}
      return %z, %v, %m
    })"),
                 {});
  }
  // Another result of the same range that no sum is in.
  programs.Add(R"(fusion @f(%x: f32[790, 8576]) {
    %v = var(%x) {axes=[0], correction=0, keepdim=false}
    %g = max(%x) {axes=[0], keepdim=true, dtype=null}
    %d = sub(%x, %g)
    return %v, %d
  })",
               {});
  programs.Check();
}

// Rows of few vectors, a thread for each of them.
TEST(Emulated, ShortRowsInVectors) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(5);
  for (const int m : {2, 4, 6, 8, 10, 12, 16}) {
    for (const std::string type : {"f32", "bf16"}) {
      const std::string x = Cat(type, "[5000, ", m, "]");
      programs.Add(Cat("fusion @f(%x: ", x, ", %g: ", x, ", %w: f32[", m, R"(]) {
        %f = cast(%x) {dtype=f32}
        %h = cast(%g) {dtype=f32}
        %p = mul(%f, %h)
        %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
        %d = sub(%h, %s)
        %y = mul(%d, %f)
        %z = mul(%y, %w)
        return %z
      })"),
                   {});
      programs.Add(Cat("fusion @f(%x: ", x, R"() {
        %f = cast(%x) {dtype=f32}
        %m = max(%f) {axes=[1], keepdim=true, dtype=null}
        %d = sub(%f, %m)
        %e = exp(%d)
        %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
        %l = log(%s)
        %y = sub(%d, %l)
        return %y
      })"),
                   {});
    }
  }
  programs.Check();
}

// Short rows that go through shared memory, with a CTA at the end that is not full: of all that a thread reads and
// stores, beside what all rows read alike, what is one element a row, and rows that others read, too.
TEST(Emulated, StagedRows) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(19);
  for (const auto& [n, m] : {std::pair{70001, 5}, {47003, 6}, {8003, 15}, {5001, 17}, {4300, 47}, {4301, 63}}) {
    const std::string type = n % 2 == 0 || m == 63 ? "bf16" : "f32";
    const std::string x = Cat(type, "[", n, ", ", m, "]");
    programs.Add(Cat("fusion @f(%x: ", x, ", %g: ", x, ", %w: f32[", m, "], %o: f32[", n, R"(, 1]) {
      %f = cast(%x) {dtype=f32}
      %h = cast(%g) {dtype=f32}
      %p = mul(%f, %h)
      %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%h, %s)
      %y = mul(%d, %f)
      %q = mul(%y, %w)
      %r = mul(%q, %o)
      %z = cast(%r) {dtype=)",
                     type, "}\n      return %z, %r, %s\n    }"),
                 {});
  }
  // Of any number of rows, and of two axes; rows of a larger tensor, and one row for all, keep their schedules.
  programs.Add(R"(fusion @f(%x: bf16[i0, i1, 15]) {
    %f = cast(%x) {dtype=f32}
    %m = max(%f) {axes=[2], keepdim=true, dtype=null}
    %d = sub(%f, %m)
    %e = exp(%d)
    %s = sum(%e) {axes=[2], keepdim=true, dtype=null}
    %l = log(%s)
    %y = sub(%d, %l)
    %z = cast(%y) {dtype=bf16}
    return %z
  })",
               {{"i0", 73}, {"i1", 111}});
  programs.Add(R"(fusion @f(%x: f32[9001, 3, 5]) {
    %s = sum(%x) {axes=[1, 2], keepdim=true, dtype=null}
    %y = mul(%x, %s)
    return %y, %s
  })",
               {});
  programs.Add(R"(fusion @f(%x: f32[12001, 13]) {
    %s = sum(%x) {axes=[1], keepdim=false, dtype=null}
    return %s
  })",
               {});
  // Beside another region, whose threads are more.
  for (const std::string type : {"f32", "bf16"}) {
    programs.Add(Cat("fusion @f(%x: ", type, "[8003, 15], %g: ", type, "[8003, 15], %z: f32[70001]", R"() {
      %f = cast(%x) {dtype=f32}
      %h = cast(%g) {dtype=f32}
      %a = add(%f, %h)
      %s = sum(%a) {axes=[1], keepdim=true, dtype=null}
      %d = sub(%a, %s)
      %y = cast(%d) {dtype=)",
                     type, "}\n      %n = neg(%z)\n      return %y, %n\n    }"),
                 {});
  }
  programs.Add(R"(fusion @f(%x: f32[8003, 17], %g: f32[8003, 15]) {
    %c = slice(%x) {start=[0, 1], end=[8003, 16], strides=[1, 1]}
    %p = mul(%c, %g)
    %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
    %y = sub(%c, %s)
    return %y
  })",
               {});
  programs.Add(R"(fusion @f(%x: f32[8003, 15]) {
    %c = slice(%x) {start=[0, 0], end=[1, 15], strides=[1, 1]}
    %b = squeeze(%c) {axes=[0]}
    %w = broadcast(%b) {is_broadcast_dim=[1, 0]}
    %p = mul(%x, %w)
    %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
    %y = sub(%x, %s)
    return %y
  })",
               {});
  programs.Check();
}

// A normalisation over the innermost or a middle axis of 3 to 110 elements, of so many rows or columns that threads
// have them whole, share them or stage them; with what else a kernel may read and store.
std::string DrawnShortNorm(base::Prng& prng, SymbolValues& sizes) {
  const std::string type = prng.OneIn(2) ? "bf16" : "f32";
  const int64_t length = prng.Between(3, 110);
  const bool is_middle = prng.OneIn(2);
  const int64_t columns = is_middle ? prng.Between(20, 3000) : 1;
  const int64_t rows = is_middle ? 1 + prng.Between(4000, 24000) / columns : prng.Between(4300, 9000);
  const bool any_size = prng.OneIn(3);
  if (any_size) sizes["i0"] = rows;
  const std::string behind = is_middle ? Cat(", ", columns) : "", leading = any_size ? "i0" : std::to_string(rows);
  const std::string x = Cat(type, "[", leading, ", ", length, behind, "]");
  const bool weighs = prng.OneIn(2), stores_sums = prng.OneIn(2), has_other = prng.OneIn(3), has_own = prng.OneIn(3);
  std::string text = Cat("fusion @f(%x: ", x, ", %g: ", x);
  if (weighs) text += Cat(", %w: f32[", length, is_middle ? ", b]" : "]");
  if (has_own) text += Cat(", %o: f32[", leading, ", b", behind, "]");
  if (has_other) text += ", %z: f32[70001]";
  text += R"() {
    %f = cast(%x) {dtype=f32}
    %h = cast(%g) {dtype=f32}
    %a = add(%f, %h)
    %m = max(%a) {axes=[1], keepdim=true, dtype=null}
    %d = sub(%a, %m)
    %p = mul(%d, %h)
    %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
    %y0 = sub(%d, %s)
)";
  text += weighs ? "    %y1 = mul(%y0, %w)\n" : "    %y1 = neg(%y0)\n";
  text += has_own ? "    %y2 = mul(%y1, %o)\n" : "    %y2 = abs(%y1)\n";
  text += Cat("    %y = cast(%y2) {dtype=", type, "}\n");
  if (has_other) text += "    %n = neg(%z)\n";
  return text + Cat("    return %y", stores_sums ? ", %s, %m" : "", has_other ? ", %n" : "", "\n  }");
}

TEST(Emulated, DrawnShortNorms) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(21);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    base::Prng prng(seed);
    SymbolValues sizes;
    const std::string text = DrawnShortNorm(prng, sizes);
    SCOPED_TRACE(Cat("seed ", seed));
    programs.Add(text, sizes);
  }
  programs.Check();
}

// Few long rows of which the mean and the deviations are taken in one reading.
TEST(Emulated, VariancesOfLongRows) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(20);
  for (const std::string shape : {"140, 33000", "141, 32999", "139, 11, 3004"}) {
    const bool is_group = std::ranges::count(shape, ',') == 2;
    const std::string axes = is_group ? "[1, 2]" : "[1]";
    programs.Add(Cat("fusion @f(%x: f32[", shape, "]) {\n  %m = mean(%x) {axes=", axes,
                     ", keepdim=true}\n  %v = var(%x) {axes=", axes, R"(, correction=0, keepdim=true}
      %k = constant() {value=1e-05, dtype=f64}
      %a = add(%v, %k)
      %r = rsqrt(%a)
      %d = sub(%x, %m)
      %y = mul(%d, %r)
      return %y, %m, %v
    })"),
                 {});
  }
  programs.Check();
}

// Long rows of odd lengths begin anywhere: vectors of what lies as most do, and elements in front of them and behind.
TEST(Emulated, RowsThatBeginAnywhere) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(6);
  for (const auto& [n, m] :
       {std::pair{5, 257}, {9, 1483}, {3, 2050}, {4, 301}, {40, 43}, {33, 65}, {17, 130}, {9, 255}}) {
    for (const bool is_constant : {false, true}) {
      const std::string rows = is_constant ? std::to_string(n) : "i0", row = is_constant ? std::to_string(m) : "i1";
      const SymbolValues sizes = is_constant ? SymbolValues() : SymbolValues{{"i0", n}, {"i1", m}};
      const std::string x = Cat("[", rows, ", ", row, "]");
      programs.Add(Cat("fusion @f(%x: bf16", x, ", %mask: bf16[", row, R"(]) {
        %f = cast(%x) {dtype=f32}
        %g = cast(%mask) {dtype=f32}
        %h = add(%f, %g)
        %m = max(%h) {axes=[1], keepdim=true, dtype=null}
        %d = sub(%h, %m)
        %e = exp(%d)
        %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
        %y = div(%e, %s)
        %z = cast(%y) {dtype=bf16}
        return %z
      })"),
                   sizes);
      programs.Add(Cat("fusion @f(%x: f32", x, ", %y: bf16", x, ", %w: f32[", row, R"(]) {
        %p = mul(%x, %y)
        %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
        %q = mul(%x, %w)
        %r = sub(%q, %s)
        %t = max(%r) {axes=[1], keepdim=false, dtype=null}
        return %r, %t
      })"),
                   sizes);
    }
    // A row of a larger tensor, and one that is turned around.
    programs.Add(Cat("fusion @f(%x: f32[", n, ", ", m + 7, R"(]) {
      %c = slice(%x) {start=[0, 3], end=[)",
                     n, ", ", m + 3, R"(], strides=[1, 1]}
      %s = sum(%c) {axes=[1], keepdim=true, dtype=null}
      %y = sub(%c, %s)
      return %y
    })"),
                 {});
  }
  programs.Check();
}

TEST(Emulated, RowsInOrder) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(6);
  for (const auto& [b, n, m] : {std::tuple{3, 5, 64},
                                {1, 1, 8},
                                {7, 9, 1000},
                                {2, 40, 256},
                                {5, 3, 4096},
                                {3, 11, 2048},  // Bulk copies; the last part has fewer rows,
                                {1, 13, 4104},  // a thread no second vector,
                                {2, 9, 16384},  // each thread four.
                                {3, 7, 37},
                                {0, 4, 64},
                                {60, 61, 16}}) {
    programs.Add(
        R"(fusion @f(%g: bf16[i0, i1, i2], %x: bf16[i0, i1, i2], %w: bf16[i2], %r: f32[i0, i1, 1]) {
      %gf = cast(%g) {dtype=f32}
      %xf = cast(%x) {dtype=f32}
      %xh = mul(%xf, %r)
      %gw = mul(%gf, %w)
      %p = mul(%gw, %xh)
      %s = sum(%p) {axes=[2], keepdim=true, dtype=null}
      %xs = mul(%xh, %s)
      %d = sub(%gw, %xs)
      %dx = cast(%d) {dtype=bf16}
      %q = mul(%gf, %xh)
      %dw = sum(%q) {axes=[0, 1], keepdim=false, dtype=null}
      %db = sum(%gf) {axes=[1], keepdim=false, dtype=null}
      %dbh = cast(%db) {dtype=bf16}
      return %dx, %dw, %dbh
    })",
        {{"i0", b}, {"i1", n}, {"i2", m}});
  }
  // One axis of rows: each part takes every count'th.
  for (const auto& [n, m] : {std::pair{300, 64}, {37, 1000}, {21, 4096}, {9, 8192}, {1, 24}, {0, 64}}) {
    programs.Add(
        R"(fusion @f(%g: bf16[i0, i1], %x: bf16[i0, i1], %w: bf16[i1], %r: f32[i0, 1]) {
      %gf = cast(%g) {dtype=f32}
      %xf = cast(%x) {dtype=f32}
      %xh = mul(%xf, %r)
      %gw = mul(%gf, %w)
      %p = mul(%gw, %xh)
      %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
      %xs = mul(%xh, %s)
      %d = sub(%gw, %xs)
      %dx = cast(%d) {dtype=bf16}
      %q = mul(%gf, %xh)
      %dw = sum(%q) {axes=[0], keepdim=false, dtype=null}
      return %dx, %dw
    })",
        {{"i0", n}, {"i1", m}});
  }
  // Columns lie the other way round in memory: vectors are not what the sums over rows are stored by.
  for (const auto& [n, a, b] : {std::tuple{40, 8, 256}, {5, 24, 16}, {3, 8, 37}, {70, 16, 8}}) {
    programs.Add(R"(fusion @f(%g: bf16[i0, i1, i2], %x: bf16[i0, i1, i2]) {
      %gp = permute(%g) {dims=[0, 2, 1]}
      %xp = permute(%x) {dims=[0, 2, 1]}
      %gf = cast(%gp) {dtype=f32}
      %xf = cast(%xp) {dtype=f32}
      %p = mul(%gf, %xf)
      %s = sum(%p) {axes=[1, 2], keepdim=true, dtype=null}
      %d = sub(%gf, %s)
      %dp = permute(%d) {dims=[0, 2, 1]}
      %dx = cast(%dp) {dtype=bf16}
      %dw = sum(%p) {axes=[0], keepdim=false, dtype=null}
      return %dx, %dw
    })",
                 {{"i0", n}, {"i1", a}, {"i2", b}});
  }
  programs.Check();
}

// Rows that leave results of their channels, and of all they hold, beside what they compute of themselves.
TEST(Emulated, Nested) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(15);
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& [images, groups, channels, places] :
         {std::tuple{3, 2, 3, 20}, {2, 1, 8, 256}, {1, 1, 40, 16}, {1, 1, 3, 519}, {3, 2, 2, 0}}) {
      programs.Add(GroupNormBackward(dtype, Cat("i0, i1, i2, ", places)),
                   {{"i0", images}, {"i1", groups}, {"i2", channels}});
      programs.Add(GroupNormBackward(dtype, "i0, i1, i2, i3"),
                   {{"i0", images}, {"i1", groups}, {"i2", channels}, {"i3", places}});
    }
  }
  programs.Add(SoftmaxAndChannels("4, 6, 64"), {});
  programs.Add(SoftmaxAndChannels("i0, 6, i1"), {{"i0", 3}, {"i1", 37}});
  size_t held = 0;
  for (uint64_t seed = 100; seed < 116; ++seed) {
    const NestedProgram program(seed, 2000);
    const auto graph = ir::Parse(program.text(), fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    if (!Accepts(WholeOf(**graph).View(**graph)).accepted) continue;
    ++held;
    programs.Add(program.text(), program.symbols);
  }
  EXPECT_GT(held, 8u);
  programs.Check();
}

std::vector<segment::Group> Merged(const ir::Graph& graph, bool merge) {
  return *segment::Segment(graph,
                           [&](const segment::GroupView&, const segment::GroupView&,
                               const segment::GroupView& merged) -> std::optional<segment::Gain> {
                             if (!merge || !Accepts(merged).accepted) return std::nullopt;
                             return segment::Gain{.bytes = 1, .launches = 1};
                           },
                           {.merge_siblings = true});
}

class EmulatedRandom : public ::testing::TestWithParam<int> {};

TEST_P(EmulatedRandom, EqualTheInterpreter) {
  SKIP_WITHOUT_COMPILER();
  EmulatedPrograms programs(static_cast<uint64_t>(GetParam()));
  for (uint64_t i = 0; i < 16; ++i) {
    testing::GeneratedProgram program = testing::Generate(static_cast<uint64_t>(GetParam()) * 16 + i);
    const std::string what = program.Describe();
    ASSERT_TRUE(fusion::DecomposeOps(*program.graph).ok());
    std::vector<segment::Group> groups = Merged(*program.graph, i % 4 != 0);
    programs.AddGroups(what, std::move(program.graph), std::move(program.inputs), program.tolerances,
                       std::move(groups));
  }
  programs.Check();
}

INSTANTIATE_TEST_SUITE_P(Seeds, EmulatedRandom, ::testing::Range(0, 4));

}  // namespace
}  // namespace hir::codegen::gpu
