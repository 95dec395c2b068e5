// Goal: attention and its gradients are right by element, and as products, for leading axes that only some operands
// have, masks of both kinds, causality with any beginning, and queries without keys. Method: each result by the
// interpreter, beside the same program with products in its place; gradients beside differences of the values; results
// by hand.
#include <cmath>
#include <limits>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "csrc/ir/verify.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

using base::Cat;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::string q, k, v, mask;  // Shapes; no mask where it is empty.
  std::string mask_type = "f64";
  bool causal = false;
  int64_t offset = 0;
  size_t leading = 0;
};

const Case kCases[] = {
    {"3, 4", "5, 4", "5, 2", ""},
    {"2, 3, 4", "5, 4", "2, 5, 2", "", "f64", false, 0, 1},
    {"2, 1, 3, 4", "2, 4", "7, 2, 3", "1, 3, 2", "bool", false, 0, 2},
    {"3, 4", "5, 4", "2, 5, 2", "3, 1", "f64", true, 1, 1},
    {"4, 2", "4, 2", "4, 3", "2, 1, 4", "bool", true, 0, 1},
    {"3, 1", "4, 1", "4, 1", "", "f64", true, -2, 0},
    {"1, 3", "1, 3", "1, 1", "", "f64", true, 0, 0},
};

Shape ShapeOf(const std::string& text) {
  Shape shape;
  for (size_t at = 0; at < text.size();
       at = text.find(' ', at) == std::string::npos ? text.size() : text.find(' ', at) + 1)
    shape.push_back(std::stoll(text.substr(at)));
  return shape;
}

HostTensor Random(base::Prng& prng, const std::string& shape) {
  HostTensor tensor = ZeroTensor(DType::kFloat64, ShapeOf(shape));
  Numbers values(static_cast<size_t>(tensor.num_elements()));
  for (double& value : values) value = static_cast<double>(prng.Between(-100, 100)) / 64;
  return F64(ShapeOf(shape), values);
}

std::string Attrs(const Case& c, std::string_view result) {
  // An entry an axis of the result: leading ones, then those behind them.
  const bool is_gradient = result == "q" || result == "k" || result == "v";
  const size_t own = is_gradient ? 3 : result == "lse" ? 1 : 2;
  const size_t at = result == "k" || result == "v" ? 2 : 0;
  std::string offset;
  for (size_t i = 0; i < c.leading + own; ++i)
    base::Append(offset, i == 0 ? "" : ", ", i == c.leading + at ? c.offset : int64_t{0});
  return Cat("{result=", result, ", causal=", c.causal ? "true" : "false", ", offset=[", offset, "], scale=0.7}");
}

// %y, of all operands that gradients have.
Result<HostTensor> Evaluate(const std::string& params, const std::string& op, const std::vector<HostTensor>& inputs,
                            bool as_products) {
  HIR_ASSIGN(const auto graph, ir::Parse(Program(params, Cat("%y = ", op)), kFusionOps));
  if (as_products) HIR_TRY(DecomposeAttention(*graph));
  HIR_TRY(ir::Verify(*graph));
  HIR_ASSIGN(auto results, Interpret(*graph, inputs));
  return std::move(results[0]);
}

TEST(Attention, IsTheSameAsProducts) {
  int64_t seed = 1;
  for (const Case& c : kCases) {
    SCOPED_TRACE(Cat("q[", c.q, "], k[", c.k, "], v[", c.v, "], mask[", c.mask, "], seed ", seed));
    base::Prng prng(static_cast<uint64_t>(seed++));
    std::string params = Cat("%q: f64[", c.q, "], %k: f64[", c.k, "], %v: f64[", c.v, "]"), operands = "%q, %k, %v";
    std::vector<HostTensor> inputs = {Random(prng, c.q), Random(prng, c.k), Random(prng, c.v)};
    std::vector<HostTensor> mask;
    if (!c.mask.empty()) {
      mask.push_back(Random(prng, c.mask));
      if (c.mask_type == "bool") {
        std::vector<int64_t> bits;
        for (const double value : ToDoubles(mask[0])) bits.push_back(value > -0.5 ? 1 : 0);
        mask[0] = Bools(ShapeOf(c.mask), bits);
      }
    }
    const std::string mask_param = c.mask.empty() ? "" : Cat(", %m: ", c.mask_type, "[", c.mask, "]");
    const std::string mask_operand = c.mask.empty() ? "" : ", %m";
    const auto with_mask = [&](std::vector<HostTensor> of) {
      of.insert(of.end(), mask.begin(), mask.end());
      return of;
    };
    const auto equal = [&](const std::string& of_params, const std::string& op, const std::vector<HostTensor>& of) {
      const auto want = Evaluate(of_params + mask_param, op, with_mask(of), false);
      const auto got = Evaluate(of_params + mask_param, op, with_mask(of), true);
      EXPECT_TRUE(want.ok()) << want.status().ToString() << op;
      EXPECT_TRUE(got.ok()) << got.status().ToString() << op;
      if (!want.ok() || !got.ok()) return HostTensor();
      EXPECT_EQ(want->shape, got->shape) << op;
      const Numbers a = ToDoubles(*want), b = ToDoubles(*got);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_TRUE(a[i] == b[i] || std::abs(a[i] - b[i]) < 1e-12) << op << " [" << i << "]: " << a[i] << ", " << b[i];
      return *want;
    };
    const auto forward = [&](std::string_view result) {
      return Cat("attention(", operands, mask_operand, ") ", Attrs(c, result));
    };
    const HostTensor values = equal(params, forward("values"), inputs);
    const HostTensor lse = equal(params, forward("lse"), inputs);
    ASSERT_FALSE(values.shape.empty());

    std::string of_values, of_lse;
    for (const int64_t extent : values.shape) base::Append(of_values, of_values.empty() ? "" : ", ", extent);
    for (const int64_t extent : lse.shape) base::Append(of_lse, of_lse.empty() ? "" : ", ", extent);
    const HostTensor gradient = Random(prng, of_values);
    const Numbers g = ToDoubles(gradient);
    const std::string all_params =
        Cat(params, ", %g: f64[", of_values, "], %l: f64[", of_lse, "], %o: f64[", of_values, "]");
    std::vector<HostTensor> all = inputs;
    all.insert(all.end(), {gradient, lse, values});
    // Each element by central differences of the sum of gradient times values.
    for (const size_t operand : {size_t{0}, size_t{1}, size_t{2}}) {
      const std::string_view name = std::string_view("qkv").substr(operand, 1);
      const HostTensor made =
          equal(all_params, Cat("attention_grad(%q, %k, %v, %g, %l, %o", mask_operand, ") ", Attrs(c, name)), all);
      const Numbers of = ToDoubles(inputs[operand]), found = ToDoubles(made);
      for (size_t i = 0; i < of.size(); ++i) {
        double sums[2] = {};
        for (const size_t side : {size_t{0}, size_t{1}}) {
          std::vector<HostTensor> moved = inputs;
          Numbers changed = of;
          changed[i] += side == 0 ? -1e-5 : 1e-5;
          moved[operand] = F64(inputs[operand].shape, changed);
          const auto there = Evaluate(params + mask_param, forward("values"), with_mask(moved), false);
          ASSERT_TRUE(there.ok());
          const Numbers numbers = ToDoubles(*there);
          for (size_t k = 0; k < g.size(); ++k) sums[side] += g[k] * numbers[k];
        }
        // A gradient has all leading axes: that of an operand without some is the sum along them.
        double sum = 0;
        const int64_t own = std::ssize(made.shape) - 2;
        for (size_t k = 0; k < found.size(); ++k) {
          int64_t rest = static_cast<int64_t>(k), at = 0, stride = 1;
          for (int64_t axis = std::ssize(made.shape); axis-- > 0;) {
            const int64_t place = rest % made.shape[static_cast<size_t>(axis)];
            rest /= made.shape[static_cast<size_t>(axis)];
            const int64_t theirs = axis - (own + 2 - std::ssize(inputs[operand].shape));
            if (theirs < 0) continue;
            const int64_t extent = inputs[operand].shape[static_cast<size_t>(theirs)];
            at += (extent == 1 ? 0 : place) * stride;
            stride *= extent;
          }
          if (at == static_cast<int64_t>(i)) sum += found[k];
        }
        EXPECT_NEAR(sum, (sums[1] - sums[0]) / 2e-5, 1e-6) << name << "[" << i << "]";
      }
    }
  }
}

TEST(Attention, AQueryWithoutKeysIsZero) {
  const std::string params = "%q: f64[2, 1], %k: f64[2, 1], %v: f64[2, 1]";
  const std::vector<HostTensor> inputs = {F64({2, 1}, {1, 2}), F64({2, 1}, {3, 4}), F64({2, 1}, {5, 6})};
  for (const bool as_products : {false, true}) {
    const auto run = [&](const std::string& attrs) {
      const auto made =
          Evaluate(params, Cat("attention(%q, %k, %v) {", attrs, ", causal=true, scale=1}"), inputs, as_products);
      return made.ok() ? ToDoubles(*made) : Numbers{};
    };
    EXPECT_EQ(run("result=values, offset=[-1, 0]"), (Numbers{0, 5}));
    EXPECT_EQ(run("result=lse, offset=[-1]"), (Numbers{-kInf, 6}));
    const Numbers nothing =
        ToDoubles(*Evaluate("%q: f64[2, 1], %k: f64[0, 1], %v: f64[0, 3]",
                            "attention(%q, %k, %v) {result=values, causal=false, offset=[0, 0], scale=1}",
                            {inputs[0], F64({0, 1}, {}), F64({0, 3}, {})}, as_products));
    EXPECT_EQ(nothing, (Numbers{0, 0, 0, 0, 0, 0}));
  }
}

TEST(Attention, ResultsOfOneCall) {
  const auto graph =
      ir::Parse(Program("%q: f32[2, 3, 4], %k: f32[2, 3, 4], %v: f32[2, 3, 4]",
                        "%a = attention(%q, %k, %v) {result=values, causal=true, offset=[0, i, 0], scale=1}\n"
                        "%b = attention(%q, %k, %v) {result=lse, causal=true, offset=[0, i], scale=1}\n"
                        "%c = attention(%q, %k, %v) {result=lse, causal=true, offset=[0, 0], scale=1}\n"
                        "%d = attention(%q, %k, %v) {result=lse, causal=false, offset=[0, 0], scale=1}\n"
                        "%e = attention(%q, %k, %v) {result=lse, causal=true, offset=[0, i], scale=2}\n"
                        "%f = attention(%q, %v, %k) {result=lse, causal=true, offset=[0, i], scale=1}\n"
                        "%g = neg(%q)",
                        "%a, %b, %c, %d, %e, %f, %g"),
                kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const ir::Op* const first = (*graph)->body.first;
  std::string shares;
  for (const ir::Op* op = first; op != nullptr; op = op->next) shares += ShareCall(*first, *op) ? "y" : "n";
  EXPECT_EQ(shares, "yynnnnn");
  EXPECT_EQ(ir::ToString(DiagonalOf((*graph)->exprs(), *first)), "i");
}

}  // namespace
}  // namespace hir::fusion
