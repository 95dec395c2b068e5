// Goal: a mean and the squared deviations from it, a maximum and the sum of exponentials below it, read a range once
// where it is reduced in parts, and are what the interpreter makes of them; what only looks like that is read twice.
// Method: launches are counted, on CPUs and GPUs; results are compared, with parts of infinities and of nothing, and
// with means far from 0.
#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

// The variance of x, of `type`, over `axes`, of which there are `count`; `mean` divides by `divisor`.
std::string Variance(const std::string& type, const std::string& axes, const std::string& count,
                     const std::string& divisor, const std::string& more = "", const std::string& results = "%v") {
  return Cat("fusion @f(%x: ", type, ") {\n  %n = extent() {value=", count, "}\n  %k = extent() {value=", divisor,
             "}\n  %s = sum(%x) {axes=[", axes, "], keepdim=true, dtype=null}\n  %m = truediv(%s, %k)\n",
             "  %d = sub(%x, %m)\n  %dd = mul(%d, %d)\n  %q = sum(%dd) {axes=[", axes,
             "], keepdim=true, dtype=null}\n  %v = truediv(%q, %n)\n", more, "  return ", results, "\n}");
}
std::string Softmax(const std::string& type, const std::string& axes, const std::string& of = "%x") {
  return Cat("fusion @f(%x: ", type,
             ") {\n  %zero = constant() {value=0.0, dtype=f64}\n  %h = maximum(%x, %zero)\n  %l = log(%h)\n  %m = max(",
             of, ") {axes=[", axes, "], keepdim=true, dtype=null}\n  %d = sub(", of,
             ", %m)\n  %e = exp(%d)\n  %s = sum(%e) {axes=[", axes,
             "], keepdim=true, dtype=null}\n  %y = div(%e, %s)\n  return %y, %s\n}");
}

size_t Launches(const std::string& text, const Target& target) { return CountsOf(text, target).launches; }

TEST(Paired, ReadARangeOnce) {
  const std::string normalised = "  %r = rsqrt(%v)\n  %y = mul(%d, %r)\n";
  std::string others = Variance("f32[i0]", "0", "i0", "i0");  // Deviations of 2 x from the mean of x.
  others.replace(others.find("sub(%x, %m)"), 11, "sub(%t, %m)");
  others.insert(others.find("  %d = "), "  %t = add(%x, %x)\n");
  for (const Target& target : {Target(), kHopper}) {
    EXPECT_EQ(Launches(Variance("f32[1000000]", "0", "1000000", "1000000"), target), 2u);
    EXPECT_EQ(Launches(Variance("f32[i0]", "0", "i0", "i0"), target), 2u);
    EXPECT_EQ(Launches(Variance("f32[64, 4, i0]", "0, 2", "64 * i0", "64 * i0"), target), 2u);
    EXPECT_EQ(Launches(Variance("f32[i0, 32]", "0", "i0", "i0"), target), 2u);
    EXPECT_EQ(Launches(Variance("f32[i0]", "0", "i0", "i0", normalised, "%y, %v, %m"), target), 3u);
    EXPECT_EQ(Launches(Softmax("f32[1000000]", "0"), target), 3u);
    EXPECT_EQ(Launches(Variance("f32[i0]", "0", "i0", "7"), target), 2u);  // From anything that their sum gives.
    EXPECT_EQ(Launches(others, target), 4u);
  }
}

// By plans for these sizes, and by others for any; the first with at least two parts.
TEST(Paired, VariancesAreExact) {
  const std::string far = "  %z = add(%v, %m)\n";
  for (const int n : {40000, 70001, 1, 0}) {
    for (const std::string dtype : {"f32", "f64"}) {
      const std::string flat = dtype + "[i0]", columns = dtype + "[i0, 5]", batch = dtype + "[3, 4, i0]";
      const SymbolValues symbols = {{"i0", n}};
      for (const Sizes& sizes : {Sizes{{"i0", n}}, Sizes{{"i0", 50000}}}) {
        CheckProgram(Variance(flat, "0", "i0", "i0", far, "%z, %v"), symbols, 1, false, sizes);
        CheckProgram(Variance(columns, "0", "i0", "i0", far, "%z, %v"), symbols, 2, false, sizes);
        CheckProgram(Variance(batch, "0, 2", "3 * i0", "3 * i0", far, "%z, %v"), symbols, 3, false, sizes);
      }
    }
  }
}

// The squares of 10,000 and more have no digit left for what lies between them: sums of those would be lost.
TEST(Paired, MeansMayBeFarFromNothing) {
  const std::string text = R"(fusion @f(%x: f32[i0]) {
  %n = extent() {value=i0}
  %far = constant() {value=10000.0, dtype=f64}
  %a = add(%x, %far)
  %s = sum(%a) {axes=[0], keepdim=true, dtype=null}
  %m = truediv(%s, %n)
  %d = sub(%a, %m)
  %dd = mul(%d, %d)
  %q = sum(%dd) {axes=[0], keepdim=true, dtype=null}
  %v = truediv(%q, %n)
  return %v
})";
  CheckProgram(text, {{"i0", 90000}}, 4, false, {{"i0", 90000}});
  CheckProgram(text, {{"i0", 123457}}, 5);
}

// The first elements are far from the others: no deviation from their mean may hide the variance of the part. And all
// may be one number, whose variance is 0 and no less, or its root would be no number.
TEST(Paired, PartsMayBeginElsewhereOrBeConstant) {
  const auto text = [](const std::string& until, const std::string& noise, const std::string& result) {
    return Cat("fusion @f(%x: f32[i0]) {\n  %n = extent() {value=i0}\n  %zero = constant() {value=0.0, dtype=i64}\n",
               "  %one = constant() {value=1.0, dtype=i64}\n  %until = constant() {value=", until,
               ", dtype=i64}\n  %far = constant() {value=300.3, dtype=f64}\n  %noise = constant() {value=", noise,
               ", dtype=f64}\n  %i = iota(%zero, %one) {shape=[i0], offset=[0], dtype=i64}\n",
               "  %is_first = lt(%i, %until)\n  %k = full() {shape=[i0], value=1000.0, dtype=f32}\n",
               "  %b = where(%is_first, %k, %far)\n  %xn = mul(%x, %noise)\n  %a = add(%b, %xn)\n",
               "  %s = sum(%a) {axes=[0], keepdim=true, dtype=null}\n  %m = truediv(%s, %n)\n  %d = sub(%a, %m)\n",
               "  %dd = mul(%d, %d)\n  %q = sum(%dd) {axes=[0], keepdim=true, dtype=null}\n  %v = truediv(%q, %n)\n",
               "  %deviation = sqrt(%v)\n  %is_number = ge(%deviation, %zero)\n  return %", result, "\n}");
  };
  for (const std::string until : {"0.0", "400.0", "1500.0"}) {
    for (const std::string result : {"deviation", "is_number"}) {
      const std::string noise = result == "deviation" ? "1.0" : "0.0";
      CheckProgram(text(until, noise, result), {{"i0", 90000}}, 11, false, {{"i0", 90000}});
      CheckProgram(text(until, noise, result), {{"i0", 123457}}, 12);
    }
  }
}

// Conditions on places hold in the head of a part, and not behind it: the elements before the last ones are padding.
TEST(Paired, PaddedAndJoinedRanges) {
  for (const std::string dtype : {"f32", "f64"}) {
    const std::string text = Cat("fusion @f(%x: ", dtype, "[i0], %z: ", dtype, R"([5]) {
      %p = pad(%x) {widths=[70, 3], value=2.0}
      %y = cat(%p, %z) {axis=0}
      %n = extent() {value=i0 + 78}
      %s = sum(%y) {axes=[0], keepdim=true, dtype=null}
      %m = truediv(%s, %n)
      %d = sub(%y, %m)
      %dd = mul(%d, %d)
      %q = sum(%dd) {axes=[0], keepdim=true, dtype=null}
      %v = truediv(%q, %n)
      %h = max(%y) {axes=[0], keepdim=true, dtype=null}
      %b = sub(%y, %h)
      %e = exp(%b)
      %l = sum(%e) {axes=[0], keepdim=true, dtype=null}
      return %v, %l
    })");
    for (const int n : {40001, 65536, 3}) {
      CheckProgram(text, {{"i0", n}}, 13, false, {{"i0", n}});
      CheckProgram(text, {{"i0", n}}, 14, false, {{"i0", 50000}});
    }
    std::string known = text;
    for (size_t at = known.find("i0"); at != std::string::npos; at = known.find("i0")) known.replace(at, 2, "40001");
    CheckProgram(known, {}, 15);
  }
}

// A result divided by the number of its place is no result of the row, though the places of two axes are one loop's.
TEST(Paired, PlacesAreNoResults) {
  CheckProgram(R"(fusion @f(%x: f32[200, 300]) {
  %one = constant() {value=1.0, dtype=i64}
  %i = iota(%one, %one) {shape=[60000], offset=[0], dtype=i64}
  %p = reshape(%i) {shape=[200, 300]}
  %f = cast(%p) {dtype=f32}
  %s = sum(%x) {axes=[0, 1], keepdim=true, dtype=null}
  %d = sub(%x, %s)
  %dd = mul(%d, %d)
  %q = sum(%dd) {axes=[0, 1], keepdim=true, dtype=null}
  %r = div(%q, %f)
  %y = mul(%r, %x)
  return %y
})",
               {}, 18);
}

// Nor are deviations from it those from one number.
TEST(Paired, CentersThatVaryAreNone) {
  const std::string text = R"(fusion @f(%x: f32[200, 300]) {
  %one = constant() {value=1.0, dtype=i64}
  %i = iota(%one, %one) {shape=[60000], offset=[0], dtype=i64}
  %p = reshape(%i) {shape=[200, 300]}
  %f = cast(%p) {dtype=f32}
  %s = sum(%x) {axes=[0, 1], keepdim=true, dtype=null}
  %c = div(%s, %f)
  %d = sub(%x, %c)
  %dd = mul(%d, %d)
  %q = sum(%dd) {axes=[0, 1], keepdim=true, dtype=null}
  return %q
})";
  for (const Target& target : {Target(), kHopper}) EXPECT_EQ(Launches(text, target), 4u);
  CheckProgram(text, {}, 19);
}

// A store beside the second reduction waits for a third one, which is of another range.
TEST(Paired, StoresWaitForOthers) {
  CheckProgram(R"(fusion @f(%x: f32[40000], %z: f32[50000]) {
  %m = max(%x) {axes=[0], keepdim=true, dtype=null}
  %t = sum(%z) {axes=[0], keepdim=true, dtype=null}
  %d = sub(%x, %m)
  %e = exp(%d)
  %s = sum(%e) {axes=[0], keepdim=true, dtype=null}
  %y = mul(%x, %t)
  return %s, %y
})",
               {}, 16);
}

// A sum that is beyond all numbers, parts of nothing (65 elements of 64 parts), and a range of nothing.
TEST(Paired, PartsOfNothingAddNothing) {
  const std::string text = R"(fusion @f(%x: f32[i0, 3]) {
  %n = extent() {value=i0}
  %far = constant() {value=1e37, dtype=f64}
  %zero = constant() {value=0.0, dtype=f64}
  %a = abs(%x)
  %b = add(%a, %far)
  %s = sum(%b) {axes=[0], keepdim=true, dtype=null}
  %d = sub(%b, %s)
  %dd = mul(%d, %d)
  %q = sum(%dd) {axes=[0], keepdim=true, dtype=null}
  %k = truediv(%q, %n)
  return %q
})";
  for (const int n : {65, 4161, 0}) CheckProgram(text, {{"i0", n}}, 17, false, {{"i0", 50000}});
}

TEST(Paired, SoftmaxOfInfinities) {
  for (const int n : {40000, 70001, 1}) {
    for (const std::string dtype : {"f32", "f64"}) {
      for (const std::string of : {"%x", "%l"}) {  // The logarithm of half of them is -inf.
        for (const bool special : {false, true}) {
          const Sizes sizes = {{"i0", n}};
          CheckProgram(Softmax(dtype + "[i0]", "0", of), {{"i0", n}}, 6, special, sizes);
          CheckProgram(Softmax(dtype + "[i0]", "0", of), {{"i0", n}}, 7, special, {{"i0", 50000}});
          CheckProgram(Softmax(dtype + "[i0, 3]", "0", of), {{"i0", n}}, 8, special, sizes);
        }
      }
    }
  }
}

// All but a few elements at the end are -inf: most parts have no other, and one plan has nothing else.
TEST(Paired, PartsOfInfinitiesCountForNothing) {
  const auto masked = [](const std::string& first) {
    return Cat("fusion @f(%x: f32[i0]) {\n  %zero = constant() {value=0.0, dtype=i64}\n",
               "  %one = constant() {value=1.0, dtype=i64}\n  %first = constant() {value=", first,
               ".0, dtype=i64}\n  %i = iota(%zero, %one) {shape=[i0], offset=[0], dtype=i64}\n",
               "  %in = ge(%i, %first)\n  %low = full() {shape=[i0], value=-inf, dtype=f32}\n",
               "  %w = where(%in, %x, %low)\n  %m = max(%w) {axes=[0], keepdim=true, dtype=null}\n",
               "  %d = sub(%w, %m)\n  %e = exp(%d)\n  %s = sum(%e) {axes=[0], keepdim=true, dtype=null}\n",
               "  %l = log(%s)\n  %t = add(%l, %m)\n  return %s, %t\n}");
  };
  for (const std::string first : {"299990", "300000"}) {
    CheckProgram(masked(first), {{"i0", 300000}}, 9, false, {{"i0", 300000}});
    CheckProgram(masked(first), {{"i0", 300000}}, 10);
  }
}

// Ranges of one or two axes, before or behind the rows that are kept, of what pads, places and functions make of x;
// variances and softmaxes of it, by themselves or stored with what they are of, for known and for other sizes.
TEST(Paired, RandomOnes) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    base::Prng prng(seed);
    const bool is_deviation = prng.OneIn(2), is_split = prng.OneIn(2), has_places = prng.OneIn(2);
    const bool is_padded = prng.OneIn(2), is_stored = prng.OneIn(2), is_symbolic = prng.OneIn(2);
    const int64_t long_axis = is_split ? prng.Between(90, 110) : prng.Between(33000, 36000);
    const int64_t kept = prng.Between(1, 9), inner = is_split ? 400 : 1;
    const bool kept_first = prng.OneIn(2);
    const std::string n = is_symbolic ? "i0" : Cat(long_axis), m = is_symbolic ? "i1" : Cat(kept);
    const std::string range = is_split ? Cat(n, ", ", inner) : n;
    const std::string shape = kept_first ? Cat(m, ", ", range) : Cat(range, ", ", m);
    const std::string axes = kept_first ? (is_split ? "1, 2" : "1") : is_split ? "0, 1" : "0";
    const int rank = is_split ? 3 : 2;
    const int padded = kept_first ? 1 : 0;  // The long axis: five elements in front of it, two behind.
    std::string widths;
    for (int axis = rank; axis-- > 0;)  // The last axis first.
      base::Append(widths, axis == rank - 1 ? "" : ", ", axis == padded ? "5, 2" : "0, 0");
    const std::string more = is_padded ? Cat(is_symbolic ? "i0 + 7" : Cat(long_axis + 7)) : n;
    const std::string wide = is_split ? Cat(more, ", ", inner) : more;
    const std::string count = is_split ? Cat(inner, " * (", more, ")") : more;
    std::string text = Cat("fusion @f(%x: f32[", shape, "]) {\n  %w = ");
    base::Append(text, is_padded ? Cat("pad(%x) {widths=[", widths, "], value=0.5}") : "abs(%x)", "\n");
    base::Append(text, "  %one = constant() {value=1.0, dtype=i64}\n  %i = iota(%one, %one) {shape=[", count,
                 "], offset=[0], dtype=i64}\n  %p = reshape(%i) {shape=[",
                 kept_first ? Cat("1, ", wide) : Cat(wide, ", 1"), "]}\n  %f = cast(%p) {dtype=f32}\n",
                 "  %k = constant() {value=0.00002, dtype=f64}\n  %g = mul(%f, %k)\n");
    base::Append(text, "  %y = ", has_places ? "mul(%w, %g)" : "sin(%w)", "\n  %n = extent() {value=", count, "}\n");
    const std::string over = Cat(" {axes=[", axes, "], keepdim=true, dtype=null}\n");
    if (is_deviation) {
      base::Append(text, "  %s = sum(%y)", over, "  %c = truediv(%s, %n)\n  %d = sub(%y, %c)\n  %e = mul(%d, %d)\n");
    } else {
      base::Append(text, "  %c = max(%y)", over, "  %d = sub(%y, %c)\n  %e = exp(%d)\n");
    }
    base::Append(text, "  %q = sum(%e)", over,
                 "  %v = truediv(%q, %n)\n  %u = add(%v, %one)\n  %b = div(%d, %u)\n  %t = div(%b, %",
                 has_places ? "f" : "u", ")\n  return %v", is_stored ? ", %t" : "", "\n}");
    const SymbolValues symbols = {{"i0", long_axis}, {"i1", kept}};
    const Sizes known = {{"i0", long_axis}, {"i1", kept}}, other = {{"i0", is_split ? 100 : 40000}, {"i1", 3}};
    SCOPED_TRACE(Cat("seed ", seed));
    CheckProgram(text, symbols, seed, false, known);
    if (is_symbolic) CheckProgram(text, symbols, seed, false, other);
  }
}

}  // namespace
}  // namespace hir::codegen
