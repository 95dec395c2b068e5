// Reductions over columns and over rows in one pass, against the interpreter: backward passes of normalisations, batch
// borders inside parts, extents 0 and 1, and random programs that mix reduced axes.
#include "csrc/codegen/loop_nest.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

std::string ScheduleOf(const std::string& text) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  const Verdict verdict = Accepts(WholeOf(**graph).View(**graph));
  return verdict.accepted ? verdict.schedule : verdict.reason;
}

constexpr char kRmsNormBackward[] =
    R"(fusion @f(%x: bf16[i0, i1], %g: bf16[i0, i1], %w: bf16[i1], %r: f32[i0, b]) {
  %xf = cast(%x) {dtype=f32}
  %gf = cast(%g) {dtype=f32}
  %wf = cast(%w) {dtype=f32}
  %h = mul(%xf, %r)
  %gw = mul(%gf, %h)
  %dw = sum(%gw) {axes=[0], keepdim=false, dtype=null}
  %dwb = cast(%dw) {dtype=bf16}
  %a = mul(%gf, %wf)
  %ah = mul(%a, %h)
  %s = sum(%ah) {axes=[1], keepdim=true, dtype=null}
  %k = constant() {value=0.01, dtype=f64}
  %m = mul(%s, %k)
  %hm = mul(%h, %m)
  %d = sub(%a, %hm)
  %dx = mul(%d, %r)
  %dxb = cast(%dx) {dtype=bf16}
  return %dxb, %dwb, %s
})";

TEST(InnerOuter, RmsNormBackward) {
  EXPECT_EQ(ScheduleOf(kRmsNormBackward), "inner-outer");
  for (const auto& [n, m] : {std::pair{1, 1}, {7, 3}, {0, 5}, {5, 0}, {257, 33}, {1000, 64}}) {
    CheckProgram(kRmsNormBackward, {{"i0", n}, {"i1", m}}, 1);
  }
}

// Sums for each batch, over everything, and of each row.
constexpr char kBatches[] = R"(fusion @f(%x: f32[i0, i1, i2], %w: f32[i2]) {
  %s = sum(%x) {axes=[2], keepdim=true, dtype=null}
  %k = constant() {value=0.125, dtype=f64}
  %m = mul(%s, %k)
  %d = sub(%x, %m)
  %q = mul(%d, %d)
  %v = sum(%q) {axes=[2], keepdim=true, dtype=null}
  %e = add(%v, %k)
  %r = rsqrt(%e)
  %y = mul(%d, %r)
  %batch = sum(%y) {axes=[1], keepdim=false, dtype=null}
  %scaled = mul(%batch, %w)
  %all = sum(%d) {axes=[0, 1], keepdim=false, dtype=null}
  %most = max(%x) {axes=[0, 1], keepdim=true, dtype=null}
  return %y, %scaled, %all, %most, %r
})";

TEST(InnerOuter, BatchBordersInsideParts) {
  EXPECT_EQ(ScheduleOf(kBatches), "inner-outer");
  for (const auto& [a, b] : {std::pair{1, 1}, {1, 300}, {300, 1}, {3, 100}, {13, 29}, {64, 4}, {7, 64}}) {
    for (const int columns : {1, 21}) {
      CheckProgram(kBatches, {{"i0", a}, {"i1", b}, {"i2", columns}}, 2);
    }
  }
}

// A gain that a batch's rows share is kept for them, rounded as the interpreter rounds it.
TEST(InnerOuter, GainsOfBatches) {
  constexpr char kGains[] =
      R"(fusion @f(%x: bf16[i0, i1, i2], %g: bf16[i0, i1, i2], %scale: bf16[i0, b, i2]) {
  %sf = cast(%scale) {dtype=f32}
  %one = constant() {value=1.0, dtype=f64}
  %more = add(%one, %sf)
  %gain = cast(%more) {dtype=bf16}
  %e = exp(%gain)
  %wide = cast(%e) {dtype=f32}
  %gf = cast(%g) {dtype=f32}
  %h = mul(%wide, %gf)
  %xf = cast(%x) {dtype=f32}
  %xh = mul(%xf, %h)
  %s = sum(%xh) {axes=[2], keepdim=true, dtype=null}
  %all = sum(%h) {axes=[0, 1], keepdim=false, dtype=null}
  %batch = sum(%xh) {axes=[1], keepdim=false, dtype=null}
  %d = mul(%h, %s)
  %y = cast(%d) {dtype=bf16}
  return %y, %all, %batch
})";
  EXPECT_EQ(ScheduleOf(kGains), "inner-outer");
  for (const auto& [a, b] : {std::pair{1, 1}, {3, 100}, {100, 3}, {13, 29}}) {
    for (const int columns : {1, 40, 133}) {
      CheckProgram(kGains, {{"i0", a}, {"i1", b}, {"i2", columns}}, 5);
    }
  }
}

TEST(InnerOuter, NothingToAdd) {
  const std::string text = R"(fusion @f(%x: f32[i0, i1, i2]) {
    %s = sum(%x) {axes=[2], keepdim=false, dtype=null}
    %a = sum(%x) {axes=[1], keepdim=false, dtype=null}
    %b = sum(%x) {axes=[0, 1], keepdim=false, dtype=null}
    return %s, %a, %b
  })";
  for (const auto& [a, b, c] : {std::tuple{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {0, 0, 0}}) {
    CheckProgram(text, {{"i0", a}, {"i1", b}, {"i2", c}}, 3);
  }
  CheckProgram(R"(fusion @f(%x: f32[5, 0, 3]) {
    %s = sum(%x) {axes=[2], keepdim=false, dtype=null}
    %a = sum(%x) {axes=[1], keepdim=false, dtype=null}
    return %s, %a
  })",
               {}, 4);
}

TEST(InnerOuter, WhatOneGroupCannotHold) {
  // A reduction that reads a sum over rows; an output with more axes than such a sum.
  EXPECT_EQ(ScheduleOf(R"(fusion @f(%x: f32[i0, i1]) {
    %a = sum(%x) {axes=[0], keepdim=true, dtype=null}
    %y = sub(%x, %a)
    %b = sum(%y) {axes=[1], keepdim=false, dtype=null}
    return %b
  })"),
            "%b reads a sum over rows");
  EXPECT_EQ(ScheduleOf(R"(fusion @f(%x: f32[i0, i1]) {
    %a = sum(%x) {axes=[0], keepdim=true, dtype=null}
    %y = sub(%x, %a)
    %b = sum(%x) {axes=[1], keepdim=false, dtype=null}
    return %b, %y
  })"),
            "output %y needs a sum over rows and more than its columns");
  EXPECT_EQ(ScheduleOf(R"(fusion @f(%x: f32[i0, 40000]) {
    %a = sum(%x) {axes=[0], keepdim=false, dtype=null}
    %b = sum(%x) {axes=[1], keepdim=false, dtype=null}
    return %a, %b
  })"),
            "sums over rows of more than 32768 columns, beside others");
  EXPECT_EQ(ScheduleOf(R"(fusion @f(%x: f32[i0, i1, i2]) {
    %a = sum(%x) {axes=[1], keepdim=false, dtype=null}
    %b = sum(%x) {axes=[0], keepdim=false, dtype=null}
    return %a, %b
  })"),
            "%b keeps other axes than %a");
}

TEST(InnerOuter, TheNest) {
  const auto graph = ir::Parse(R"(fusion @f(%x: f32[3, 640, 8]) {
    %s: f32[3, 640, r:8] = sum(%x) {axes=[2], keepdim=false, dtype=null}
    %a: f32[3, r:640, 8] = sum(%x) {axes=[1], keepdim=false, dtype=null}
    %b: f32[r:3, r:640, 8] = sum(%x) {axes=[0, 1], keepdim=false, dtype=null}
    return %s, %a, %b
  })",
                               fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const segment::Group group = WholeOf(**graph);
  const auto plan = Plan(group.View(**graph), "k", {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->nests.size(), 2u);
  EXPECT_EQ(plan->launches[1].kernel, "k.1");
  EXPECT_EQ(Print(*plan->nests[0]), R"(input x: f32, strides [5120, 8, 1]
output s: f32, strides [640, 1]
workspace partial: f32, strides [8, 1]
for each of (%3 in 0..64):
  in order %0
    from (30*%3) / 640
    to min(3, ceildiv(min(1920, 30*%3 + 30), 640))
  in order %1
    from max(0, -640*%0 + 30*%3)
    to min(640, -640*%0 + min(1920, 30*%3 + 30))
  for (%2 in 0..8):
    e0: i64 = %0
    e1: i64 = %1
    e5: i64 = %2
    e6: f32 = load x(e0, e1, e5)
     = sum of e6 in f32
    e19: i64 = %3
    e20: i64 = add(e0, e19)
    partial[e20, e5] = sum of e6 in f32 over serial loops from 1
  for ():
    e0: i64 = %0
    e1: i64 = %1
    e7: f32 = load (e0, e1)
    s[e0, e1] = e7
)");
  EXPECT_EQ(Print(*plan->nests[1]), R"(output b: f32, strides [1]
output a: f32, strides [8, 1]
workspace partial: f32, strides [8, 1]
for each of (), columns (%0 in 0..8):
  for (%1 in 0..3, %3 in 0..23):
    e10: i64 = %3
    e11: i64 = -1*((640*%1) / 30) + ceildiv(640*%1 + 640, 30)
    e12: bool = lt(e10, e11)
    e5: i64 = %1
    e9: i64 = (640*%1) / 30
    e15: i64 = add(e9, e10)
    e16: i64 = add(e5, e15)
    e0: i64 = %0
    e17: f32 = load partial(e16, e0)
    e18: f32 = 0.0
    e19: f32 = select(e12, e17, e18)
     = sum of e19 in f32
  for ():
    e0: i64 = %0
    e8: f32 = load (e0)
    b[e0] = e8
for each of (%4 in 0..3), columns (%5 in 0..8):
  for (%7 in (640*%4) / 30..ceildiv(640*%4 + 640, 30)):
    e20: i64 = %4
    e28: i64 = %7
    e29: i64 = add(e20, e28)
    e21: i64 = %5
    e30: f32 = load partial(e29, e21)
     = sum of e30 in f32
  for ():
    e20: i64 = %4
    e21: i64 = %5
    e27: f32 = load (e20, e21)
    a[e20, e21] = e27
)");
}

// --- random programs ---

class Random {
 public:
  explicit Random(uint64_t seed) : prng_(seed * 0x9e3779b97f4a7c15 + 3) {}

  // Rows in front, columns behind; a chain of reductions over columns, and reductions over rows of what it makes.
  std::string Program() {
    const int64_t rank = prng_.Between(2, 4);
    num_rows_ = prng_.Between(1, rank - 1);
    int64_t elements = 1;
    std::string shape;
    for (int64_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = ExtentUpTo(20000 / std::max<int64_t>(elements, 1));
      empty_ = empty_ || extent == 0;
      elements *= extent;
      // What is 1 for certain is no axis to reduce.
      const bool constant = extent != 1 && prng_.OneIn(2);
      if (!constant) symbols[Cat("i", axis)] = extent;
      base::Append(shape, axis > 0 ? ", " : "", constant ? Cat(extent) : Cat("i", axis));
      base::Append(axis < num_rows_ ? row_axes_ : column_axes_, axis == 0 || axis == num_rows_ ? "" : ", ", axis);
    }
    const std::string dtype = OneOf({"f32", "bf16", "f64"});
    text_ = Cat("fusion @f(%x: ", dtype, "[", shape, "], %g: ", dtype, "[", shape, "]) {\n",
                "  %k = constant() {value=0.03, dtype=f64}\n");
    Let("cast", "%x", "{dtype=f32}");
    full_.push_back(last_);
    Let("cast", "%g", "{dtype=f32}");
    full_.push_back(last_);
    Let("add", "%v0, %v1");
    full_.push_back(last_);
    const int64_t steps = prng_.Between(2, 6);
    bool over_rows = false;
    for (int64_t step = 0; step < steps; ++step) {
      const bool rows = step == steps - 1 ? !over_rows : prng_.OneIn(2);
      rows ? OverRows() : OverColumns();
      over_rows = over_rows || rows;
    }
    if (prng_.OneIn(2)) Return(full_.back());
    return Cat(text_, "  return ", base::Join(returned_, ", "), "\n}");
  }

  SymbolValues symbols;

 private:
  int64_t ExtentUpTo(int64_t most) {
    constexpr int64_t kExtents[] = {0, 1, 1, 2, 3, 5, 7, 16, 17, 33, 64, 70, 129, 300};
    return std::min(kExtents[prng_.Below(std::ssize(kExtents))], std::max<int64_t>(most, 1));
  }
  std::string OneOf(const std::vector<std::string>& values) {
    return values[static_cast<size_t>(prng_.Below(std::ssize(values)))];
  }
  std::string Kind() { return empty_ ? "sum" : OneOf({"sum", "sum", "max", "min"}); }
  void Let(const std::string& op, std::string operands, const std::string& attributes = "") {
    last_ = Cat("%v", next_++);
    base::Append(text_, "  ", last_, " = ", op, "(", operands, ") ", attributes, "\n");
  }
  void OverColumns() {
    const std::string from = OneOf(full_);
    Let(Kind(), from, Cat("{axes=[", column_axes_, "], keepdim=true, dtype=null}"));
    if (prng_.OneIn(3)) Return(last_);
    Let("mul", Cat(last_, ", %k"));
    const std::string statistic = last_;
    Let(OneOf({"sub", "mul", "add"}), Cat(from, ", ", statistic));
    Let("tanh", last_);
    full_.push_back(last_);
    if (prng_.OneIn(4)) Return(last_);
  }
  void OverRows() {
    std::string axes;  // All rows, or without the first ones.
    for (int64_t axis = prng_.Between(0, num_rows_ - 1); axis < num_rows_; ++axis) {
      base::Append(axes, axes.empty() ? "" : ", ", axis);
    }
    Let(OneOf({"mul", "add"}), Cat(OneOf(full_), ", ", OneOf(full_)));
    if (prng_.OneIn(3)) full_.push_back(last_);
    Let(Kind(), last_, Cat("{axes=[", axes, "], keepdim=", OneOf({"true", "false"}), ", dtype=null}"));
    if (prng_.OneIn(2)) Let("mul", Cat(last_, ", %k"));
    if (prng_.OneIn(3)) Let("cast", last_, "{dtype=bf16}");
    Return(last_);
  }
  void Return(const std::string& value) {
    if (std::ranges::find(returned_, value) == returned_.end()) returned_.push_back(value);
  }

  base::Prng prng_;
  int64_t num_rows_ = 0;
  bool empty_ = false;
  std::string row_axes_, column_axes_, text_, last_;
  int next_ = 0;
  std::vector<std::string> full_, returned_;
};

TEST(InnerOuter, RandomProgramsEqualTheInterpreter) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Random random(seed);
    const std::string text = random.Program();
    SCOPED_TRACE(Cat("seed ", seed, "\n", text));
    CheckProgram(text, random.symbols, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace hir::codegen
