// Goal: vectors lie along the axis that memory is contiguous along, unless that is short beside another. Method: the
// loops of a CPU's nest, as they are printed; values against the interpreter, at sizes around those of blocks.
#include "csrc/codegen/loop_nest.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

constexpr std::string_view kOuter = "%y = sum(%x) {axes=[1], keepdim=false, dtype=null}";
constexpr std::string_view kRow = "%y = max(%x) {axes=[1], keepdim=false, dtype=null}";
constexpr std::string_view kInner = "%y = sum(%x) {axes=[2], keepdim=false, dtype=null}";

// The variable of the columns of the only launch, with what it runs over; and the plan's guards.
std::string ColumnsOf(const std::string& type, std::string_view ops_to_y, const Sizes& sizes = {}) {
  const auto graph =
      ir::Parse(Cat("fusion @f(%x: f32", type, ") {\n  ", ops_to_y, "\n  return %y\n}"), fusion::kFusionOps);
  if (!graph.ok()) return graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k0", {}, sizes);
  if (!plan.ok()) return plan.status().ToString();
  const std::string text = Print(*plan->nests[0]);
  const size_t at = text.find("columns (");
  std::string found = at == std::string::npos ? "none" : text.substr(at + 9, text.find(" in ", at) - at - 9);
  for (const ir::Guard& guard : plan->guards) found += Cat("; ", guard.reason);
  return found;
}

TEST(RegionAxes, ShortOnesAreNotVectors) {
  const std::string_view permute = "%y = permute(%x) {dims=[0, 2, 1]}";
  EXPECT_EQ(ColumnsOf("[4, 5000, 3]", kInner), "%1");
  EXPECT_EQ(ColumnsOf("[4, 125, 3]", kInner), "none");  // Few rows.
  EXPECT_EQ(ColumnsOf("[5000, 2, 3]", permute), "%0");
  EXPECT_EQ(ColumnsOf("[5000, 2, 2]", permute), "%0");
  EXPECT_EQ(ColumnsOf("[5000, 2, 8]", permute), "%1");
  EXPECT_EQ(ColumnsOf("[8, 3, 600]", permute), "%1");
}

// A power of two is a vector; of a function it is half of one, or a quarter.
TEST(RegionAxes, ShortVectorsThatAreFull) {
  EXPECT_EQ(ColumnsOf("[4, 5000, 4]", kInner), "none");
  EXPECT_EQ(ColumnsOf("[4, 5000, 4]", "%e = exp(%x)\n  %y = sum(%e) {axes=[2], keepdim=false, dtype=null}"), "%1");
  EXPECT_EQ(ColumnsOf("[5000, 3, 6]", kOuter), "%1");  // Columns known to be a vector of four and one of two.
}

TEST(RegionAxes, OfSymbolsAShortOneIsAGuard) {
  EXPECT_EQ(ColumnsOf("[i0, i1]", kRow), "none");
  EXPECT_EQ(ColumnsOf("[i0, i1]", kRow, {{"i0", 5000}, {"i1", 60}}), "none; planned for at least 64");
  // A guard is of what was chosen by it alone.
  EXPECT_EQ(ColumnsOf("[i0, i1]", kRow, {{"i0", 50}, {"i1", 6}}),
            "none; planned for less than 64; planned for less than 16384");
  EXPECT_EQ(ColumnsOf("[i0]", "%y = neg(%x)", {{"i0", 4}}), "%0");
  EXPECT_EQ(ColumnsOf("[i0, i1]", kRow, {{"i0", 5000}, {"i1", 6}}),
            "%0; planned for at least 64; planned for less than 8; planned for at least 512");
}

TEST(RegionAxes, ValuesOfVectorsApart) {
  for (const int64_t n : {700}) {
    for (const char* type : {"f32", "bf16", "i64"}) {
      for (const auto& [k, m] : {std::pair{2, 2}, {3, 6}, {5, 1}, {7, 7}}) {
        const std::string program = Cat("fusion @f(%x: ", type, "[i0, i1, i2], %w: ", type, R"([i2, i1]) {
          %p = permute(%x) {dims=[0, 2, 1]}
          %b = broadcast(%w) {is_broadcast_dim=[1, 0, 0]}
          %q = maximum(%p, %b)
          %s = sum(%q) {axes=[2], keepdim=true, dtype=null}
          %d = sub(%q, %s)
          %r = sum(%x) {axes=[1], keepdim=false, dtype=null}
          return %d, %q, %r
        })");
        CheckProgram(program, {{"i0", n}, {"i1", k}, {"i2", m}}, 31, false, {{"i0", n}, {"i1", k}, {"i2", m}});
        CheckProgram(program, {{"i0", n}, {"i1", k}, {"i2", m}}, 31);  // As planned for any.
        CheckProgram(Cat("fusion @f(%x: ", type, "[", n, ", ", k, ", ", m, R"(]) {
          %m = max(%x) {axes=[2], keepdim=true, dtype=null}
          %d = sub(%x, %m)
          %c = cast(%d) {dtype=f32}
          %e = exp(%c)
          %s = sum(%e) {axes=[2], keepdim=true, dtype=null}
          %y = div(%e, %s)
          return %y, %m
        })"),
                     {}, 32);
      }
    }
  }
}

// Elements that a pad adds, and such as other elements say.
TEST(RegionAxes, ValuesOfPiecesApart) {
  for (const int64_t n : {600, 777}) {
    CheckProgram(R"(fusion @f(%x: f32[i0, 2, 3], %y: f32[i0, 2, 2], %i: i64[i0, 2, 3]) {
      %c = cat(%x, %y) {axis=2}
      %p = permute(%c) {dims=[2, 0, 1]}
      %n = neg(%p)
      %g = pad(%x) {widths=[0, 0, 1, 2, 1, 0], value=1.5}
      %t = permute(%g) {dims=[0, 2, 1]}
      %one: i64 = constant() {value=1.0, dtype=i64}
      %z = sub(%i, %i)
      %a = take_along_axis(%x, %z) {axis=1}
      return %n, %t, %a
    })",
                 {{"i0", n}}, 33, false, {{"i0", n}});
  }
}

}  // namespace
}  // namespace hir::codegen
