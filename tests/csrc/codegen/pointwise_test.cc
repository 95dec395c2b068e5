#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

TEST(Pointwise, Chain) {
  for (const int64_t n : {0, 1, 5, 16, 100, 4097, 40000}) {
    CheckProgram(R"(fusion @f(%x: f32[i0], %y: f32[i0]) {
      %a: f32[i0] = mul(%x, %y)
      %b: f32[i0] = sub(%a, %x)
      %c: f32[i0] = abs(%b)
      return %c, %a
    })", {{"i0", n}}, 1, true);
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
    })", {{"i0", n}, {"i1", m}}, 2);
  }
}

TEST(Reduction, RowsAndColumns) {
  for (const auto& [n, m] : {std::pair{3, 7}, {1, 1}, {0, 5}, {5, 0}, {33, 18}, {64, 1024}, {1024, 64}, {300, 1500}}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, i1]) {
      %s: f32[i0, r:i1] = sum(%x) {axes=[1], keepdim=false, dtype=f32}
      return %s
    })", {{"i0", n}, {"i1", m}}, 3);
    CheckProgram(R"(fusion @f(%x: f32[i0, i1]) {
      %s: f32[r:i0, i1] = sum(%x) {axes=[0], keepdim=false, dtype=f32}
      return %s
    })", {{"i0", n}, {"i1", m}}, 4);
    CheckProgram(R"(fusion @f(%x: f32[i0, i1]) {
      %s: f32[r:i0, r:i1] = sum(%x) {axes=[0, 1], keepdim=false, dtype=f32}
      return %s
    })", {{"i0", n}, {"i1", m}}, 4);
  }
}

TEST(Reduction, Softmax) {
  for (const auto& [n, m] : {std::pair{3, 7}, {1, 1}, {33, 18}, {64, 1024}}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, i1]) {
      %m: f32[i0, b] = max(%x) {axes=[1], keepdim=true, dtype=f32}
      %d: f32[i0, i1] = sub(%x, %m)
      %e: f32[i0, i1] = exp(%d)
      %s: f32[i0, b] = sum(%e) {axes=[1], keepdim=true, dtype=f32}
      %y: f32[i0, i1] = div(%e, %s)
      return %y
    })", {{"i0", n}, {"i1", m}}, 5);
  }
}

}  // namespace
}  // namespace hir::codegen
