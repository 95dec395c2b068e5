// Goal: what is computed of concatenated tensors is computed of each alone, where they lie behind each other along an
// axis that is not the innermost. Method: regions are counted; results are compared with the interpreter's, of tensors
// without elements, too, of known and of any sizes.
#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

// exp(%a), tanh(%b) and %c behind each other along `axis`, and what is made of them.
std::string Three(const std::string& a, const std::string& b, const std::string& c, int axis,
                  const std::string& first = "exp", const std::string& second = "tanh") {
  return Cat("fusion @f(%a: f32[", a, "], %b: f32[", b, "], %c: f32[", c, "]) {\n  %p = ", first,
             "(%a)\n  %q = ", second, "(%b)\n  %y = cat(%p, %q, %c) {axis=", axis,
             "}\n  %z = mul(%y, %y)\n  return %y, %z\n}");
}

size_t Regions(const std::string& text, const Target& target = {}) { return CountsOf(text, target).regions; }

TEST(Pieces, EachTensorHasARegion) {
  EXPECT_EQ(Regions(Three("2, 300", "5, 300", "3, 300", 0)), 3u);
  EXPECT_EQ(Regions(Three("i0, i1", "i2, i1", "i3, i1", 0)), 3u);
  EXPECT_EQ(Regions(Three("7, i0, 40", "7, i1, 40", "7, i2, 40", 1)), 3u);
  // The innermost axis; nothing but copies; a GPU, whose kernels branch.
  EXPECT_EQ(Regions(Three("7, 20", "7, 30", "7, 40", 1)), 1u);
  EXPECT_EQ(Regions(Three("2, 300", "5, 300", "3, 300", 0, "neg", "abs")), 1u);
  EXPECT_EQ(Regions(Three("2, 300", "5, 300", "3, 300", 0), kHopper), 1u);
}

TEST(Pieces, AreWhatTheInterpreterMakes) {
  for (const auto& [a, b, c] : {std::tuple{2, 5, 3}, {0, 4, 1}, {3, 0, 0}, {1, 1, 1}, {40, 1, 33}}) {
    const SymbolValues symbols = {{"i0", a}, {"i1", b}, {"i2", c}, {"i3", 17}};
    Sizes sizes;
    for (const auto& [name, extent] : symbols) sizes[std::string(name)] = extent;
    for (const Sizes& known : {Sizes(), sizes}) {
      CheckProgram(Three("i0, i3", "i1, i3", "i2, i3", 0), symbols, 1, false, known);
      CheckProgram(Three("5, i0, i3", "5, i1, i3", "5, i2, i3", 1), symbols, 2, true, known);
      CheckProgram(Three("i0, 3, i3", "i1, 3, i3", "i2, 3, i3", 0), symbols, 3, false, known);
    }
  }
}

// A condition of another kind beside it, and a slice across the bounds.
TEST(Pieces, OfSlicesAndPads) {
  CheckProgram(R"(fusion @f(%a: f32[6, 33], %b: f32[9, 33]) {
    %p = exp(%a)
    %q = sigmoid(%b)
    %y = cat(%p, %q) {axis=0}
    %s = slice(%y) {start=[4, 1], end=[13, 33], strides=[1, 1]}
    %w = pad(%s) {widths=[1, 2, 2, 0], value=3.0}
    %z = tanh(%w)
    return %z
  })",
               {}, 4);
  CheckProgram(R"(fusion @f(%a: f32[6, 33], %b: f32[9, 33]) {
    %p = exp(%a)
    %y = cat(%p, %b) {axis=0}
    %t = permute(%y) {dims=[1, 0]}
    %n = sqrt(%y)
    return %t, %n
  })",
               {}, 5);
}

}  // namespace
}  // namespace hir::codegen
