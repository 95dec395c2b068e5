// Goal: sizes that no vector divides get the schedules made for them, and others keep theirs. Method: the schedules of
// a program's kernels, for sizes that are known; that values are right is emulated_test's part.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

struct Made {
  std::vector<std::string> schedules;  // "pointwise of 4", a kernel each.
  std::string text;                    // Of the first kernel.
  int rows = 0;                        // Of a CTA of it.
};

Made MadeOf(const std::string& program, const Sizes& sizes = {}) {
  auto graph = ir::Parse("fusion @f(" + program + "}", fusion::kFusionOps);
  if (!graph.ok()) return {{graph.status().ToString()}, {}};
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k", kHopper, sizes);
  if (!plan.ok()) return {{plan.status().ToString()}, {}};
  const auto source = EmitCuda(*plan);
  if (!source.ok()) return {{source.status().ToString()}, {}};
  Made made;
  for (const Tuning& tuning : source->tunings)
    made.schedules.push_back(base::Cat(tuning.schedule, " of ", tuning.lanes));
  made.text = source->parts[0];
  made.rows = source->tunings[0].rows;
  return made;
}

using Schedules = std::vector<std::string>;

TEST(Schedules, AFlatLoopHasVectorsAndARest) {
  const std::string program = "%x: f32[i0]) {\n  %y = neg(%x)\n  return %y\n";
  const Made odd = MadeOf(program, {{"i0", 1000003}}), even = MadeOf(program, {{"i0", 1000000}});
  EXPECT_EQ(odd.schedules, Schedules{"pointwise of 4"});
  EXPECT_EQ(odd.text.find("s0 % 4 == 0"), std::string::npos);
  EXPECT_EQ(even.schedules, Schedules{"pointwise of 4"});
  EXPECT_NE(even.text.find("s0 % 4 == 0"), std::string::npos);
}

TEST(Schedules, WholeSumsHaveVectorsAndARest) {
  const std::string program = "%x: f32[i0]) {\n  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}\n  return %y\n";
  EXPECT_EQ(MadeOf(program, {{"i0", 1000003}}).schedules[0], "rows of 4");
}

// Axes that a reshape made one lie as one, whatever quotients and rests its index is made of.
TEST(Schedules, ReshapedRowsAreReadInVectors) {
  for (const char* shape : {"[8, 256, 3136]", "[8, 32, 25088]", "[2048, 3136]"}) {
    const auto axes = std::ranges::count(std::string_view(shape), ',') + 1;
    const Made made =
        MadeOf(base::Cat("%x: f32[8, 256, 56, 56]) {\n  %v = reshape(%x) {shape=", shape, "}\n  %y = sum(%v) {axes=[",
                         axes - 1, "], keepdim=false, dtype=null}\n  return %y\n"));
    EXPECT_EQ(made.schedules[0], "rows of 4") << shape;
    EXPECT_EQ(made.text.find("(ux)56"), std::string::npos) << made.text;
  }
}

TEST(Schedules, TranspositionsOfOddExtentsAreTiled) {
  const std::string program = "%x: f32[i0, i1]) {\n  %y = permute(%x) {dims=[1, 0]}\n  return %y\n";
  EXPECT_EQ(MadeOf(program, {{"i0", 1001}, {"i1", 205}}).schedules, Schedules{"tiled of 1"});
  EXPECT_EQ(MadeOf(program, {{"i0", 2048}, {"i1", 256}}).schedules, Schedules{"transposed of 4"});
  EXPECT_EQ(MadeOf(program, {{"i0", 1001}, {"i1", 3}}).schedules, Schedules{"pointwise of 1"});
}

// An input that lies as the output does stands beside one that does not.
TEST(Schedules, TilesBesideInputsThatLieAsOutputs) {
  EXPECT_EQ(MadeOf("%x: f32[571, 256], %a: f32[256, 571], %b: f32[256, 571]) {\n  %t = permute(%x) {dims=[1, 0]}\n"
                   "  %c = add(%t, %a)\n  %y = add(%c, %b)\n  return %y\n")
                .schedules,
            Schedules{"tiled of 4"});
}

// The result that lies as the input is stored in front of the barrier, and short axes are a side of the tile.
TEST(Schedules, TilesBesideOutputsThatLieAsInputs) {
  EXPECT_EQ(
      MadeOf("%x: f32[24, 100001]) {\n  %n = neg(%x)\n  %t = permute(%n) {dims=[1, 0]}\n  return %t, %n\n").schedules,
      Schedules{"tiled of 1"});
  EXPECT_EQ(
      MadeOf("%x: f32[4, 100000]) {\n  %n = neg(%x)\n  %t = permute(%n) {dims=[1, 0]}\n  return %t, %n\n").schedules,
      Schedules{"tiled of 4"});
}

// Short rows that lie apart: without tiles each is read from memory for each of its elements.
TEST(Schedules, TilesOfShortRowsThatLieApart) {
  const auto made = [](const char* shape, const char* dims) {
    return MadeOf(base::Cat("%x: f32", shape, ") {\n  %t = permute(%x) {dims=", dims, "}\n  return %t\n")).schedules;
  };
  EXPECT_EQ(made("[210, 497, 723, 5]", "[3, 1, 2, 0]"), Schedules{"tiled of 1"});
  EXPECT_EQ(made("[50000, 5]", "[1, 0]"), Schedules{"pointwise of 4"});
}

TEST(Schedules, ShortRowsHaveAThreadEach) {
  const std::string program = "%x: f32[i0, i1]) {\n  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  return %y\n";
  const Made few = MadeOf(program, {{"i0", 1 << 20}, {"i1", 10}});
  EXPECT_EQ(few.schedules, Schedules{"columns of 1"});
  EXPECT_EQ(few.text.find("collect_columns"), std::string::npos);
  EXPECT_EQ(MadeOf(program, {{"i0", 1 << 20}, {"i1", 64}}).schedules, Schedules{"rows of 4"});
}

// Known to be of few vectors: a thread for each of those.
TEST(Schedules, ShortRowsOfVectors) {
  const auto made = [](int columns) {
    return MadeOf(base::Cat("%x: f32[1000000, ", columns,
                            "]) {\n  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  return %y\n"));
  };
  EXPECT_EQ(made(8).schedules, Schedules{"rows of 4"});
  EXPECT_EQ(made(8).rows, 64);
  EXPECT_EQ(made(4).rows, 128);
  EXPECT_EQ(made(6).schedules, Schedules{"columns of 1"});  // A thread of four would have none.
}

// Rows that vectors do not fit, and that something is stored of.
TEST(Schedules, ShortRowsGoThroughSharedMemory) {
  const auto copies = [](const std::string& shape, const std::string& more = {}) {
    const Made made = MadeOf(base::Cat("%x: ", shape, more, R"() {
      %f = cast(%x) {dtype=f32}
      %s = sum(%f) {axes=[1], keepdim=true, dtype=null}
      %y = sub(%f, %s)
      return %y
    )"));
    const bool in = made.text.find("copy_in<") != std::string::npos;
    EXPECT_EQ(in, made.text.find("copy_out<") != std::string::npos);
    return in;
  };
  EXPECT_TRUE(copies("f32[1000000, 15]"));
  EXPECT_TRUE(copies("f32[100000, 6]"));
  EXPECT_TRUE(copies("bf16[500000, 33]"));
  EXPECT_FALSE(copies("f32[1000000, 3]"));   // It is no faster,
  EXPECT_FALSE(copies("f32[20000, 5]"));     // nor where all rows are under way at once.
  EXPECT_FALSE(copies("f32[1000000, 8]"));   // Vectors.
  EXPECT_FALSE(copies("f32[1000000, 63]"));  // A warp has a row.
}

// Sums of few elements between others that are contiguous: a thread has a vector of those.
TEST(Schedules, ShortRowsBesideVectors) {
  const Made made = MadeOf(R"(%x: f32[640961, 4], %y: f32[640961, 5]) {
    %a = broadcast(%x) {is_broadcast_dim=[0, 0, 1]}
    %b = broadcast(%y) {is_broadcast_dim=[0, 1, 0]}
    %g = gt(%a, %b)
    %w = where(%g, %a, %b)
    %s = sum(%w) {axes=[2], keepdim=false, dtype=null}
    return %s
  )");
  EXPECT_EQ(made.schedules, Schedules{"columns of 4"});
}

// All threads have a row, whatever width their vectors fit: of 17 vectors and three rows no thread is left without.
TEST(Schedules, RowsOfThreadsHoldShortColumns) {
  const Made made = MadeOf(R"(%x: f32[40, 3, 136]) {
    %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
    %y = sub(%x, %s)
    return %y
  )");
  EXPECT_NE(made.text.find("collect_columns<Sum, 17, 4, 4>"), std::string::npos) << made.text;
}

// A normalisation over a middle axis, of many columns: blocks of 32 vectors, with as many rows of threads as leave none
// idle; and a thread for each vector where it holds all rows.
TEST(Schedules, MiddleAxesAreHeldByWideBlocks) {
  const auto made = [](const std::string& shape) {
    const Made all = MadeOf(base::Cat("%x: f32[", shape, R"(]) {
      %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
      %y = sub(%x, %s)
      return %y
    )"));
    const size_t at = all.text.find("collect_columns<");
    return at == std::string::npos ? std::string("none") : all.text.substr(at, all.text.find('>', at) - at);
  };
  EXPECT_EQ(made("1500, 20, 512"), "collect_columns<Sum, 32, 4, 4");
  EXPECT_EQ(made("800, 80, 512"), "collect_columns<Sum, 32, 16, 4");
  EXPECT_EQ(made("300, 200, 512"), "collect_columns<Sum, 8, 64, 4");
  EXPECT_EQ(made("1, 10, 131072"), "none");
  // Of odd columns by elements.
  EXPECT_EQ(made("1500, 40, 511"), "collect_columns<Sum, 128, 2, 1");
  EXPECT_EQ(made("300, 200, 511"), "collect_columns<Sum, 32, 16, 1");
}

// A whole sum is cut into parts where its one CTA would take longer than a second launch: by bytes, and by functions.
TEST(Schedules, WholeSumsOfFunctionsAreCutEarlier) {
  const auto launches = [](const std::string& type, int64_t n, const std::string& of) {
    return MadeOf(base::Cat("%x: ", type, "[", n, "]) {\n  %f = cast(%x) {dtype=f32}\n  %g = ", of,
                            "(%f)\n  %y = sum(%g) {axes=[0], keepdim=false, dtype=null}\n  return %y\n"))
        .schedules.size();
  };
  EXPECT_EQ(launches("f32", 40000, "neg"), 1);
  EXPECT_EQ(launches("f32", 120000, "neg"), 2);
  EXPECT_EQ(launches("bf16", 120000, "neg"), 1);
  EXPECT_EQ(launches("f32", 40000, "log"), 2);
}

// Inputs that lie otherwise than outputs, in rows that begin anywhere: a thread has two vectors.
TEST(Schedules, RowsAcrossVectorsHaveTwoInFlight) {
  const auto made = [](int step) {
    const Made all =
        MadeOf(base::Cat("%x: f32[256, 633421]) {\n  %c = slice(%x) {start=[0, 0], end=[256, 633421], strides=[", step,
                         ", 1]}\n  %y = neg(%c)\n  return %y\n"));
    return all.text.substr(0, all.text.find("ANY void")).find("u < 2; ++u") != std::string::npos;
  };
  EXPECT_TRUE(made(2));
  EXPECT_FALSE(made(1));
}

// One row's columns would leave most threads without work.
TEST(Schedules, ThreadsGoOnIntoTheNextRows) {
  const std::string program =
      "%x: f32[i0, i1, i2]) {\n  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  return %y\n";
  const auto is_packed = [](const Made& made) { return made.text.find("const ix place") != std::string::npos; };
  const Made short_rows = MadeOf(program, {{"i0", 1 << 20}, {"i1", 2}, {"i2", 2}});
  EXPECT_TRUE(is_packed(short_rows));
  EXPECT_EQ(short_rows.text.find("collect_columns"), std::string::npos);
  const Made long_rows = MadeOf(program, {{"i0", 1 << 15}, {"i1", 100}, {"i2", 8}});
  EXPECT_TRUE(is_packed(long_rows));
  EXPECT_NE(long_rows.text.find("collect_columns"), std::string::npos);
  EXPECT_FALSE(is_packed(MadeOf(program, {{"i0", 1 << 10}, {"i1", 2}, {"i2", 4096}})));
  // Fifteen CTAs would have them all.
  EXPECT_FALSE(is_packed(MadeOf(program, {{"i0", 120}, {"i1", 2000}, {"i2", 16}})));
}

// A CTA has no threads beside the columns that there are: of one or two vectors all rows of threads.
TEST(Schedules, ThreadsAlongTheColumnsFitThem) {
  const auto width = [](const std::string& shape, const std::map<std::string, int64_t>& sizes) {
    const Made made = MadeOf(
        base::Cat("%x: f32[", shape, "]) {\n  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  return %y\n"),
        sizes);
    const size_t at = made.text.find("collect_columns<");
    if (at == std::string::npos) return std::string("none");
    const size_t begin = made.text.find(", ", at) + 2;
    return made.text.substr(begin, made.text.find(',', begin) - begin);
  };
  EXPECT_EQ(width("40, 5000, 35", {}), "18");
  EXPECT_EQ(width("40, 5000, 8", {}), "2");
  EXPECT_EQ(width("40, 5000, 128", {}), "32");
  EXPECT_EQ(width("i0, i1, i2", {{"i0", 40}, {"i1", 5000}, {"i2", 8}}), "2");
  EXPECT_EQ(width("i0, i1, i2", {{"i0", 40}, {"i1", 5000}, {"i2", 16}}), "8");
}

TEST(Schedules, RowsThatNoVectorDividesHaveAWarpEach) {
  const auto rows = [](int columns) {
    return MadeOf(base::Cat("%x: f32[100000, ", columns,
                            "]) {\n  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  return %y\n"))
        .rows;
  };
  EXPECT_EQ(rows(231), 4);
  EXPECT_EQ(rows(301), 4);
  EXPECT_EQ(rows(501), 1);
}

// A symbol of another size has no condition that would fail.
TEST(Schedules, KnownSizesSayWhichVectorsThereAre) {
  const std::string program = "%x: bf16[i0, i1], %b: bf16[i1]) {\n  %y = add(%x, %b)\n  return %y\n";
  EXPECT_EQ(MadeOf(program, {{"i0", 64}, {"i1", 4096}}).schedules, Schedules{"pointwise of 8"});
  EXPECT_EQ(MadeOf(program, {{"i0", 64}, {"i1", 4100}}).schedules, Schedules{"pointwise of 4"});
  const Made odd = MadeOf(program, {{"i0", 64}, {"i1", 4097}});
  EXPECT_EQ(odd.schedules, Schedules{"pointwise of 8"});
  EXPECT_NE(odd.text.find("ldu<16>"), std::string::npos);
  EXPECT_NE(odd.text.find("const ix block"), std::string::npos);  // Rows, so that nothing is divided for each element.
}

// What reads another value twice, sixty times over, has as many paths as a number of nineteen digits.
TEST(Schedules, SharedValuesAreLookedAtOnce) {
  std::string squares;
  for (int i = 0; i < 60; ++i) squares += base::Cat("  %q", i + 1, " = mul(%q", i, ", %q", i, ")\n");
  const std::string cat =
      "%x: f32[64], %y: f32[64]) {\n  %q0 = neg(%x)\n" + squares + "  %c = cat(%q60, %y) {axis=0}\n  return %c\n";
  EXPECT_EQ(MadeOf(cat).schedules, Schedules{"pointwise of 4"});
  const std::string turned =
      "%x: f32[1001, 205], %b: f32[205, 1001]) {\n  %t = permute(%x) {dims=[1, 0]}\n  %q0 = add(%t, %b)\n" + squares +
      "  return %q60\n";
  EXPECT_EQ(MadeOf(turned).schedules, Schedules{"tiled of 1"});
}

// A sum of concatenations has two cases for each of them: not all are branches.
TEST(Schedules, BranchesAreFew) {
  std::string program = "%x: f32[256], %s: f32[256]) {\n  %e = exp(%x)\n  %t0 = neg(%s)\n";
  for (int i = 0; i < 20; ++i) {
    const int end = 8 * (i + 1);
    base::Append(program, "  %l", i, " = slice(%e) {start=[0], end=[", end, "], strides=[1]}\n  %r", i,
                 " = slice(%x) {start=[", end, "], end=[256], strides=[1]}\n  %c", i, " = cat(%l", i, ", %r", i,
                 ") {axis=0}\n  %t", i + 1, " = add(%t", i, ", %c", i, ")\n");
  }
  const Made made = MadeOf(program + "  return %t20\n");
  ASSERT_EQ(made.schedules, Schedules{"pointwise of 4"});
  size_t branches = 0;
  const std::string_view other = "} else {\n#pragma unroll";
  for (size_t at = made.text.find(other); at != std::string::npos; at = made.text.find(other, at + 1)) ++branches;
  EXPECT_GE(branches, 1U);
  EXPECT_LE(branches, 8U);
}

}  // namespace
}  // namespace hir::codegen::gpu
