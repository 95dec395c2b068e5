// Goal: random numbers are Philox's, and the same as ops and by element.
// Method: the known-answer vectors that come with Random123 (kat_vectors, philox4x32 10) for the words; for uniform the
// bits of such words; for normal moments, and a value by hand.
#include <cmath>
#include <cstdint>

#include "csrc/fusion/decompose.h"
#include "csrc/fusion/ops/philox.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

struct Plain {
  uint64_t bits = 0;
};
Plain Number(const Plain&, double value) { return {static_cast<uint64_t>(value)}; }
Plain operator+(const Plain& x, const Plain& y) { return {x.bits + y.bits}; }
Plain operator*(const Plain& x, const Plain& y) { return {x.bits * y.bits}; }
Plain operator&(const Plain& x, const Plain& y) { return {x.bits & y.bits}; }
Plain operator^(const Plain& x, const Plain& y) { return {x.bits ^ y.bits}; }
Plain operator>>(const Plain& x, const Plain& y) { return {static_cast<uint64_t>(int64_t(x.bits) >> y.bits)}; }

TEST(Philox, KnownAnswers) {
  const auto of = [](std::array<Plain, 4> counter, std::array<Plain, 2> key) {
    std::vector<uint64_t> words;
    for (const Plain& word : Philox(counter, key)) words.push_back(word.bits);
    return words;
  };
  using Words = std::vector<uint64_t>;
  const Plain ones = {0xffffffff};
  EXPECT_EQ(of({}, {}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(of({ones, ones, ones, ones}, {ones, ones}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(of({{{0x243f6a88}, {0x85a308d3}, {0x13198a2e}, {0x03707344}}}, {{{0xa4093822}, {0x299f31d0}}}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// By element, and again as the ops that it is made of: within `error`, where each op rounds.
Numbers Drawn(const std::string& op, int64_t seed, int64_t offset, double error = 0) {
  const std::string text = Program("%x: f32[1], %s: i64, %o: i64", "%y = " + op);
  const std::vector<HostTensor> inputs = {F32({1}, {0}), I64({}, {seed}), I64({}, {offset})};
  const Numbers by_element = ToDoubles(Execute(text, inputs));
  const auto graph = ir::Parse(text, kFusionOps);
  EXPECT_TRUE(graph.ok());
  ir::Op* const last = (*graph)->body.last;
  ir::Builder builder(**graph, (*graph)->body, last);
  (*graph)->outputs[0].value = Decompose(builder, *last);
  const auto as_ops = Interpret(**graph, inputs);
  EXPECT_TRUE(as_ops.ok()) << as_ops.status().ToString();
  const Numbers other = as_ops.ok() ? ToDoubles((*as_ops)[0]) : Numbers{};
  EXPECT_EQ(other.size(), by_element.size()) << op;
  for (size_t k = 0; k < other.size() && k < by_element.size(); ++k) {
    EXPECT_NEAR(other[k], by_element[k], error) << op << " at " << k;
  }
  return by_element;
}

TEST(Random, UniformHasTheBitsOfItsWords) {
  constexpr int64_t kSeed = 0x299f31d0a4093822, kOffset = 0x0370734413198a2e;
  const auto of = [](const std::string& dtype, int bits) {
    Numbers drawn = Drawn("uniform(%s, %o) {shape=[3], dtype=" + dtype + "}", kSeed, kOffset);
    for (double& number : drawn) number = std::ldexp(number, bits);
    return drawn;
  };
  EXPECT_EQ(of("f32", 24), (Numbers{11930177, 3231195, 8701345}));
  EXPECT_EQ(of("f64", 53), (Numbers{6404965036472238, 1734734763874054, 4671499367636010}));
  EXPECT_EQ(of("f16", 11), (Numbers{1456, 394, 1062}));
  EXPECT_EQ(of("bf16", 8), (Numbers{182, 49, 132}));
  // The all-zero and a negative seed; a number without axes.
  EXPECT_EQ(Drawn("uniform(%s, %o) {shape=[1], dtype=f64}", 0, 0), (Numbers{std::ldexp(3594291074837816, -53)}));
  EXPECT_EQ(Drawn("uniform(%s, %o) {shape=[], dtype=f32}", -1, -1), (Numbers{std::ldexp(4013027, -24)}));
  EXPECT_EQ(Drawn("uniform(%s, %o) {shape=[2, 0], dtype=f32}", 1, 2), Numbers{});
}

TEST(Random, PlacesCountInRowMajorOrder) {
  const Numbers row = Drawn("uniform(%s, %o) {shape=[12], dtype=f32}", 5, 6);
  EXPECT_EQ(Drawn("uniform(%s, %o) {shape=[2, 3, 2], dtype=f32}", 5, 6), row);
  EXPECT_EQ(Drawn("uniform(%s, %o) {shape=[12, 1], dtype=f32}", 5, 6), row);
  EXPECT_NE(Drawn("uniform(%s, %o) {shape=[12], dtype=f32}", 5, 7), row);
  EXPECT_NE(Drawn("uniform(%s, %o) {shape=[12], dtype=f32}", 6, 6), row);
}

TEST(Random, NormalIsBoxAndMullers) {
  const double first = std::ldexp(11930178, -24), second = std::ldexp(0x61bd7780 >> 8, -24);
  const Numbers drawn = Drawn("normal(%s, %o) {shape=[3], dtype=f32}", 0x299f31d0a4093822, 0x0370734413198a2e, 1e-6);
  EXPECT_NEAR(drawn[0], std::sqrt(-2 * std::log(first)) * std::cos(6.283185307179586 * second), 1e-6);
  for (const auto& [dtype, error] : {std::pair{"f32", 4e-6}, {"f64", 1e-14}, {"bf16", 0x1p-6}}) {
    constexpr int kCount = 4096;
    double sum = 0, squares = 0, fourths = 0;
    for (const double x : Drawn("normal(%s, %o) {shape=[4096], dtype=" + std::string(dtype) + "}", 1, 2, error)) {
      sum += x;
      squares += x * x;
      fourths += x * x * x * x;
    }
    // Five standard errors: of the mean 1 / 64, of the second moment sqrt(2) / 64, of the fourth sqrt(96) / 64.
    EXPECT_NEAR(sum / kCount, 0, 5.0 / 64) << dtype;
    EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2) / 64) << dtype;
    EXPECT_NEAR(fourths / kCount, 3, 5 * std::sqrt(96) / 64) << dtype;
  }
}

}  // namespace
}  // namespace hir::fusion
