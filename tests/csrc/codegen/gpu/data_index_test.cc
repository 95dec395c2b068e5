// Goal: loads at data (take_along_axis) read what the interpreter does, and only where their guards allow it.
// Method: the text runs on the CPU (emulator.h); what is guarded is read off the text.
#include <gtest/gtest.h>

#include "tests/csrc/codegen/gpu/emulated_programs.h"

namespace hir::codegen::gpu {
namespace {

TEST(DataIndex, TakesAlongAxes) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(1);
  for (const int64_t n : {1, 5, 33, 128}) {
    programs.Add(R"(fusion @f(%x: f32[i0, 7], %j: i64[i0, 3], %k: i32[1, 7], %p: i32[i0, 7]) {
      %a = take_along_axis(%x, %j) {axis=1}
      %b = take_along_axis(%x, %k) {axis=0}
      %q = mul(%p, %k)
      %c = take_along_axis(%x, %q) {axis=1}
      %t = permute(%c) {dims=[1, 0]}
      %e = take_along_axis(%j, %j) {axis=0}
      %g = take_along_axis(%x, %e) {axis=1}
      return %a, %b, %t, %g
    })",
                 {{"i0", n}});
    programs.Add(R"(fusion @f(%x: bf16[i0, 64], %k: i64[i0, 64]) {
      %a = take_along_axis(%x, %k) {axis=0}
      %p = pad(%a) {widths=[8, 8, 2, 1], value=5.0}
      %n = neg(%p)
      %c = cat(%n, %p) {axis=1}
      return %c
    })",
                 {{"i0", n}});
    programs.Add(R"(fusion @f(%x: f32[i0, 64], %k: i64[i0, 1]) {
      %a = take_along_axis(%x, %k) {axis=0}
      return %a
    })",
                 {{"i0", n}});
  }
  programs.Check();
}

// Pieces are read at indices that are computed of places; inputs lie beside pages that nobody may touch.
TEST(DataIndex, TakesFromPiecesAtComputedIndices) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(6);
  for (const int64_t n : {1, 5, 33}) {
    for (int times = 0; times < 4; ++times) {
      programs.Add(R"(fusion @f(%x: f32[i0, 9], %y: f32[i0, 24], %k: i64) {
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
        return %a, %b
      })",
                   {{"i0", n}});
    }
  }
  programs.Check();
}

// Indices that are a reduction of the columns whose lanes read at them: each lane has its own.
TEST(DataIndex, TakesWhereColumnsSay) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(5);
  for (const int64_t n : {1, 6, 300}) {
    for (const std::string dtype : {"f16", "f32", "f64"}) {
      programs.Add("fusion @f(%k: i64[i0, 128], %x: " + dtype + R"([32, 128]) {
        %m = max(%k) {axes=[0], keepdim=true, dtype=null}
        %a = take_along_axis(%x, %m) {axis=0}
        return %a
      })",
                   {{"i0", n}});
    }
  }
  programs.Check();
}

// What was read at an index is read at one again, and so on: code for each step, not twice as much at each.
TEST(DataIndex, StepsAddUp) {
  const auto bytes_of = [](int steps) -> size_t {
    std::string text = "fusion @f(%x0: f32[64], %i: i64[64]) {\n";
    for (int step = 0; step < steps; ++step)
      text += "  %x" + std::to_string(step + 1) + " = take_along_axis(%x" + std::to_string(step) + ", %i) {axis=0}\n";
    text += "  return %x" + std::to_string(steps) + "\n}";
    const auto graph = ir::Parse(text, fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<ir::Op*> ops;
    ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
    const auto plan = Plan(segment::MakeGroup(**graph, ops).View(**graph), "g", kHopper, {});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const auto emitted = EmitKernels(*plan);
    EXPECT_TRUE(emitted.ok()) << emitted.status().ToString();
    return emitted.ok() ? emitted->size() : 0;
  };
  const size_t one = bytes_of(1), two = bytes_of(2), three = bytes_of(3);
  EXPECT_GT(two, one);
  EXPECT_LE(three - two, 2 * (two - one));
}

// Data say which piece an element is from, and pieces may be empty (their pointer null).
TEST(DataIndex, TakesFromPieces) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(3);
  for (const int64_t n : {0, 1, 6}) {
    programs.Add(R"(fusion @f(%x: i32[2, i0, 16], %y: bool[2, 1, 16], %z: i32[2, 2, 16], %k: i32[5],
                              %j: i64[2, 3, 16]) {
      %c = cat(%x, %y, %z) {axis=1}
      %a = index_select(%c, %k) {axis=1}
      %b = take_along_axis(%c, %j) {axis=1}
      %p = pad(%x) {widths=[1, 2, 0, 3, 1, 0], value=5.0}
      %d = index_select(%p, %k) {axis=1}
      %e = index_select(%d, %k) {axis=2}
      return %a, %b, %d, %e
    })",
                 {{"i0", n}});
  }
  programs.Check();
}

// Which column an update goes to is a reduction over the updates, with a result for each lane of a vector: what it
// decides is decided lane by lane.
TEST(DataIndex, ScattersBesideVectors) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(4);
  for (const int64_t n : {1, 3, 8}) {
    programs.Add(R"(fusion @f(%x: f16[3, 8], %s: f16[3, i0], %i: i64[1, i0]) {
      %a = abs(%x)
      %n = neg(%x)
      %y = scatter(%a, %i, %s) {axis=1}
      return %n, %y
    })",
                 {{"i0", n}});
  }
  programs.Check();
}

TEST(DataIndex, CrossEntropy) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  EmulatedPrograms programs(2);
  for (const auto& [n, m] : {std::pair{3, 7}, {33, 96}, {4, 4096}, {2, 40000}}) {
    programs.Add(R"(fusion @f(%x: bf16[i0, i1], %k: i32[i0]) {
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
                 {{"i0", n}, {"i1", m}});
  }
  programs.Check();
}

// Outside of the padded part there is no index to read.
TEST(DataIndex, IndicesAreReadUnderTheirGuards) {
  const auto graph = ir::Parse(R"(fusion @f(%x: f32[9, 5], %k: i64[9, 5]) {
    %a = take_along_axis(%x, %k) {axis=0}
    %p = pad(%a) {widths=[1, 2, 2, 1], value=5.0}
    return %p
  })",
                               fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const auto plan = Plan(segment::MakeGroup(**graph, ops).View(**graph), "g", kHopper, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto text = EmitKernels(*plan);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  int loads = 0;
  for (size_t at = text->find("ld_i64(a.t1"); at != std::string::npos; at = text->find("ld_i64(a.t1", at + 1)) {
    ++loads;
    EXPECT_EQ(text->substr(at - 2, 2), "? ") << *text;
  }
  EXPECT_GT(loads, 0) << *text;
}

}  // namespace
}  // namespace hir::codegen::gpu
