// Goal: which products are library calls with which epilogues, for CPUs and for GPUs, and that the program still means
// the same. Method: small programs printed after FitProducts; random products of integers, exactly; epilogues of 16-bit
// floats within the one rounding that they leave out.
#include "host_ir/lower/products.h"

#include <gtest/gtest.h>

#include <cmath>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/codegen.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/segment/segment.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

using base::Cat;
constexpr codegen::Target kCpu;

std::unique_ptr<ir::Graph> Parsed(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString() << "\n" << text;
  return graph.ok() ? std::move(*graph) : nullptr;
}

// The ops, one a line: "%y = linear(%x, %w) {epilogue=relu}".
std::string Fitted(const std::string& text, const codegen::Target& target) {
  const auto graph = Parsed(text);
  EXPECT_TRUE(FitProducts(*graph, target).ok());
  EXPECT_TRUE(ir::Parse(ir::Print(*graph), fusion::kFusionOps).ok()) << ir::Print(*graph);
  std::string out;
  ir::ForEachOp(graph->body, [&](const ir::Op* op) {
    std::string line = ir::Print(*op);  // Without types.
    const size_t type = line.find(": "), equals = line.find(" = ");
    base::Append(out, line.substr(0, std::min(type, equals)), line.substr(equals), "\n");
  });
  return out;
}

std::string Program(const std::string& dtype, const std::string& ops) {
  return Cat("fusion @f(%x: ", dtype, "[i0, 8], %w: ", dtype, "[4, 8], %b: ", dtype, "[4]) {\n", ops, "}\n");
}

TEST(Products, ActivationsBecomeEpilogues) {
  const auto activated = [](const std::string& activation) {
    return Cat("  %p = linear(%x, %w, %b)\n  %y = ", activation, "(%p)\n  return %y\n");
  };
  const auto fused = [](const std::string& activation) {
    return Cat("%y = linear(%x, %w, %b) {epilogue=", activation, "}\n");
  };
  const auto kernel = [](const std::string& activation) {
    return Cat("%p = linear(%x, %w, %b)\n%y = ", activation, "(%p)\n");
  };
  for (const std::string dtype : {"f16", "bf16", "f32"}) {
    for (const std::string activation : {"relu", "tanh_gelu"}) {
      EXPECT_EQ(Fitted(Program(dtype, activated(activation)), kCpu), fused(activation));
      const bool kept = dtype == "f32" && activation == "tanh_gelu";  // cuBLASLt's is not exact.
      EXPECT_EQ(Fitted(Program(dtype, activated(activation)), codegen::kHopper),
                kept ? kernel(activation) : fused(activation));
    }
    EXPECT_EQ(Fitted(Program(dtype, activated("gelu")), kCpu), fused("gelu"));
    EXPECT_EQ(Fitted(Program(dtype, activated("gelu")), codegen::kHopper), kernel("gelu"));
    EXPECT_EQ(Fitted(Program(dtype, activated("silu")), kCpu), kernel("silu"));
  }
  EXPECT_EQ(Fitted(Program("f64", activated("relu")), kCpu), fused("relu"));
  EXPECT_EQ(Fitted(Program("f64", activated("relu")), codegen::kHopper), kernel("relu"));
  EXPECT_EQ(Fitted(Program("i32", activated("relu")), kCpu), kernel("relu"));
}

TEST(Products, BiasesBehindThemAreTheirs) {
  const std::string want = "%y = linear(%x, %w, %b) {epilogue=relu}\n";
  for (const std::string between : {"", "  %b = broadcast(%b0) {is_broadcast_dim=[1, 0]}\n",
                                    "  %b = broadcast_in_dim(%b0) {shape=[i0, 4], dims=[1]}\n"}) {
    const std::string name = between.empty() ? "b" : "b0";
    const std::string text = Cat("fusion @f(%x: f32[i0, 8], %w: f32[4, 8], %", name, ": f32[4]) {\n", between,
                                 "  %p = linear(%x, %w)\n  %s = add(%b, %p)\n  %y = relu(%s)\n  return %y\n}\n");
    EXPECT_EQ(Fitted(text, codegen::kHopper), Cat("%y = linear(%x, %w, %", name, ") {epilogue=relu}\n"));
  }
  const std::string matmul =
      "fusion @f(%x: f32[3, i0, 8], %w: f32[8, 4], %b: f32[4]) {\n  %p = matmul(%x, %w) "
      "{precision=tf32}\n"
      "  %y = add(%p, %b)\n  return %y\n}\n";
  EXPECT_EQ(Fitted(matmul, codegen::kHopper), "%y = matmul(%x, %w, %b) {precision=tf32}\n");
}

TEST(Products, WhatIsReadElsewhereStays) {
  const auto same = [](const std::string& ops) {
    const std::string text = Program("bf16", ops);
    std::string lines;
    for (size_t at = 0; at < ops.size(); at = ops.find('\n', at) + 1) {
      const std::string line = ops.substr(at + 2, ops.find('\n', at) - at - 2);
      if (!line.starts_with("return")) base::Append(lines, line, "\n");
    }
    EXPECT_EQ(Fitted(text, kCpu), lines);
  };
  same("  %p = linear(%x, %w, %b)\n  %y = relu(%p)\n  return %p, %y\n");
  same("  %p = linear(%x, %w, %b)\n  %y = relu(%p)\n  %z = exp(%p)\n  return %y, %z\n");
  same("  %p = linear(%x, %w, %b)\n  %s = segment_set(%p)\n  %y = relu(%s)\n  return %y\n");
  same("  %p = linear(%x, %w)\n  %y = add(%p, %p)\n  return %y\n");                                // No bias.
  same("  %p = linear(%x, %w, %b)\n  %y = cast(%p) {dtype=f32}\n  %z = relu(%y)\n  return %z\n");  // Of another type.
}

TEST(Products, CastsAroundAnActivationGoWithIt) {
  const std::string ops =
      "  %p = linear(%x, %w, %b)\n  %f = cast(%p) {dtype=f32}\n  %g = tanh_gelu(%f)\n  %y = "
      "cast(%g) {dtype=bf16}\n"
      "  return %y\n";
  EXPECT_EQ(Fitted(Program("bf16", ops), codegen::kHopper), "%y = linear(%x, %w, %b) {epilogue=tanh_gelu}\n");
}

TEST(Products, TakeOperandsAsTheyLie) {
  const auto fitted = [](const std::string& params, const std::string& ops) {
    return Fitted(Cat("fusion @f(", params, ") {\n", ops, "  return %y\n}\n"), kCpu);
  };
  const std::string x = "%x: f32[i0, 8]", xt = "%x: f32[8, i0]";
  const std::string turned_x = "  %a = permute(%x) {dims=[1, 0]}\n", turned_w = "  %c = permute(%w) {dims=[1, 0]}\n";
  EXPECT_EQ(fitted(Cat(x, ", %w: f32[4, 8]"), Cat(turned_w, "  %y = matmul(%x, %c)\n")),
            "%y = matmul(%x, %w) {transposed=y}\n");
  EXPECT_EQ(fitted(Cat(xt, ", %w: f32[8, 4]"), Cat(turned_x, "  %y = matmul(%a, %w)\n")),
            "%y = matmul(%x, %w) {transposed=x}\n");
  EXPECT_EQ(fitted(Cat(xt, ", %w: f32[4, 8]"), Cat(turned_x, turned_w, "  %y = matmul(%a, %c)\n")),
            "%y = matmul(%x, %w) {transposed=both}\n");
  // The weight of linear lies transposed as matmul knows it.
  EXPECT_EQ(fitted(Cat(xt, ", %w: f32[4, 8]"), Cat(turned_x, "  %y = linear(%a, %w)\n")),
            "%y = matmul(%x, %w) {transposed=both}\n");
  EXPECT_EQ(fitted(Cat(x, ", %w: f32[8, 4], %b: f32[4]"), Cat(turned_w, "  %y = linear(%x, %c, %b)\n")),
            "%y = matmul(%x, %w, %b)\n");
  // With what is behind the product, and where others read the permuted value, too.
  EXPECT_EQ(fitted(Cat(x, ", %w: f32[4, 8], %b: f32[4]"),
                   Cat(turned_w, "  %p = matmul(%x, %c)\n  %s = add(%p, %b)\n  %y = relu(%s)\n")),
            "%y = matmul(%x, %w, %b) {epilogue=relu, transposed=y}\n");
  EXPECT_EQ(fitted("%x: f32[4, 4]", Cat(turned_x, "  %p = matmul(%x, %a)\n  %y = add(%p, %a)\n")),
            "%a = permute(%x) {dims=[1, 0]}\n%p = matmul(%x, %x) {transposed=y}\n%y = add(%p, %a)\n");
  EXPECT_EQ(fitted("%x: f32[8, i0], %w: f32[8]", Cat(turned_x, "  %y = matmul(%a, %w)\n")),
            "%y = matmul(%x, %w) {transposed=x}\n");
  EXPECT_EQ(
      fitted("%x: bf16[3, i0, 8], %w: bf16[3, 4, 8]", "  %c = permute(%w) {dims=[0, 2, 1]}\n  %y = matmul(%x, %c)\n"),
      "%y = matmul(%x, %w) {transposed=y}\n");
}

TEST(Products, OtherPermutesStay) {
  const auto stays = [](const std::string& params, const std::string& ops) {
    const std::string fitted = Fitted(Cat("fusion @f(", params, ") {\n", ops, "  return %y\n}\n"), kCpu);
    EXPECT_EQ(fitted.find("transposed"), std::string::npos) << fitted;
    EXPECT_NE(fitted.find("permute"), std::string::npos) << fitted;
  };
  stays("%x: f32[i0, 8], %w: f32[8, 3, 4]", "  %c = permute(%w) {dims=[1, 0, 2]}\n  %y = matmul(%x, %c)\n");
  stays("%x: f32[i0, 8], %w: f32[8, 4, 3]", "  %c = permute(%w) {dims=[2, 0, 1]}\n  %y = matmul(%x, %c)\n");
  stays("%x: i32[i0, 8], %w: i32[4, 8]", "  %c = permute(%w) {dims=[1, 0]}\n  %y = matmul(%x, %c)\n");
  stays("%x: f32[i0, 8], %w: f32[b:4, 8]", "  %c = permute(%w) {dims=[1, 0]}\n  %y = matmul(%x, %c)\n");
}

std::vector<fusion::HostTensor> RandomInputs(const ir::Graph& graph, base::Prng& prng) {
  std::vector<fusion::HostTensor> inputs;
  for (const ir::Value* param : graph.params) {
    std::vector<int64_t> shape, stored;
    for (const ir::Axis& axis : param->type->axes) {
      shape.push_back(axis.extent->value);
      stored.push_back(axis.kind == ir::AxisKind::kBroadcast ? 1 : axis.extent->value);
    }
    int64_t count = 1;
    for (const int64_t extent : stored) count *= extent;
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values)
      value = IsFloat(param->type->dtype) ? 4 * prng.Unit() - 2 : static_cast<double>(prng.Between(-9, 9));
    inputs.push_back(fusion::WrittenOut(fusion::TensorOf(param->type->dtype, stored, values), shape));
  }
  return inputs;
}

// The sums have the same terms in the same order.
TEST(Products, OfTransposedOperandsMeanTheSame) {
  base::Prng prng(3);
  int transposed = 0;
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int64_t m = prng.Between(1, 5), n = prng.Between(1, 5), k = prng.Between(0, 5);
    std::string batch;
    if (prng.OneIn(2)) batch = Cat(prng.Between(1, 3), ", ");
    const bool turns_x = prng.OneIn(2), turns_y = !turns_x || prng.OneIn(2), linear = batch.empty() && prng.OneIn(2);
    const int64_t y[2] = {linear ? n : k, linear ? k : n};
    const std::string dtype = prng.OneIn(2) ? "f32" : "bf16", dims = batch.empty() ? "[1, 0]" : "[0, 2, 1]";
    const auto param = [&](bool turned, int64_t rows, int64_t columns) {
      return Cat(dtype, "[", batch, turned ? columns : rows, ", ", turned ? rows : columns, "]");
    };
    const std::string text =
        Cat("fusion @f(%x: ", param(turns_x, m, k), ", %y: ", param(turns_y, y[0], y[1]), ") {\n",
            turns_x ? Cat("  %a = permute(%x) {dims=", dims, "}\n") : "",
            turns_y ? Cat("  %c = permute(%y) {dims=", dims, "}\n") : "", "  %z = ", linear ? "linear" : "matmul", "(",
            turns_x ? "%a" : "%x", ", ", turns_y ? "%c" : "%y", ")\n  return %z\n}\n");
    SCOPED_TRACE(text);
    const auto graph = Parsed(text), fitted = Parsed(text);
    ASSERT_TRUE(FitProducts(*fitted, kCpu).ok());
    EXPECT_EQ(fitted->body.first, fitted->body.last) << ir::Print(*fitted);
    transposed += ir::Print(*fitted).find("transposed=") != std::string::npos ? 1 : 0;
    const std::vector<fusion::HostTensor> inputs = RandomInputs(*graph, prng);
    const auto want = fusion::Interpret(*graph, inputs), got = fusion::Interpret(*fitted, inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_EQ((*want)[0], (*got)[0]);
  }
  EXPECT_GT(transposed, 150);
}

// GPUs have no integer products: sums of products mean the same, have the same type, and fit kernels.
TEST(Products, OfIntegersAreSumsOnGpus) {
  base::Prng prng(1);
  const auto axes = [&](const std::vector<int64_t>& shape) {
    std::string out;
    for (const int64_t extent : shape) base::Append(out, out.empty() ? "" : ", ", prng.OneIn(6) ? "b:" : "", extent);
    return out;
  };
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int64_t m = prng.Between(1, 5), n = prng.Between(1, 5), k = prng.Between(0, 5);
    std::vector<int64_t> x, y, batch;
    for (int64_t b = prng.Below(3); b > 0; --b) batch.push_back(prng.Between(1, 3));
    const bool linear = prng.OneIn(3);
    x = batch;
    if (prng.OneIn(5)) x.clear();
    if (!linear && !prng.OneIn(3)) y = batch;
    const bool row = prng.OneIn(6), column = !linear && prng.OneIn(6);
    if (row)
      x = {k};
    else
      x.insert(x.end(), {m, k});
    if (linear)
      y = {n, k};
    else if (column)
      y = {k};
    else
      y.insert(y.end(), {k, n});
    const std::string dtype = prng.OneIn(2) ? "i32" : "i64";
    const bool bias = linear && prng.OneIn(2);
    const std::string text =
        Cat("fusion @f(%x: ", dtype, "[", axes(x), "], %y: ", dtype, "[", axes(y), "]",
            bias ? Cat(", %b: ", dtype, "[", axes({n}), "]") : "", ") {\n  %z = ", linear ? "linear" : "matmul",
            bias ? "(%x, %y, %b)" : "(%x, %y)", "\n  return %z\n}\n");
    SCOPED_TRACE(text);
    const auto graph = Parsed(text), fitted = Parsed(text);
    ASSERT_TRUE(FitProducts(*fitted, codegen::kHopper).ok());
    ir::ForEachOp(fitted->body, [](const ir::Op* op) { EXPECT_EQ(op->info->effects, ir::kPure) << ir::Print(*op); });
    const std::vector<fusion::HostTensor> inputs = RandomInputs(*graph, prng);
    const auto want = fusion::Interpret(*graph, inputs), got = fusion::Interpret(*fitted, inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_EQ((*want)[0], (*got)[0]);
    const auto plan = PlanProgram(Parsed(text), {.target = codegen::kHopper});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    for (const LoweredSegment& segment : plan->segments) EXPECT_NE(segment.kind, SegmentKind::kLibrary);
    EXPECT_EQ(plan->kernels.size(), 1u) << DescribeSegments(*plan);
  }
}

// gelu moves no two numbers further apart than 1.13 times, so the rounding left out is at most that of the sum.
TEST(Products, EpiloguesDifferByOneRoundingOfTheSum) {
  base::Prng prng(2);
  for (const auto& [dtype, unit] : {std::pair{"bf16", 0x1p-8}, {"f16", 0x1p-11}, {"f32", 0x1p-23}}) {
    for (const std::string activation : {"gelu", "tanh_gelu", "relu"}) {
      const std::string text = Cat("fusion @f(%x: ", dtype, "[9, 16], %w: ", dtype, "[7, 16], %b: ", dtype,
                                   "[7]) {\n  %p = linear(%x, %w, %b)\n  %y = ", activation, "(%p)\n  return %y\n}\n");
      const auto graph = Parsed(text), fitted = Parsed(text);
      ASSERT_TRUE(FitProducts(*fitted, kCpu).ok());
      ASSERT_EQ(fitted->body.first, fitted->body.last);
      const std::vector<fusion::HostTensor> inputs = RandomInputs(*graph, prng);
      const auto want = fusion::Interpret(*graph, inputs), got = fusion::Interpret(*fitted, inputs);
      ASSERT_TRUE(want.ok() && got.ok());
      if (activation == "relu") {
        EXPECT_EQ((*want)[0], (*got)[0]) << dtype;  // Rounding and relu commute.
        continue;
      }
      const std::vector<double> stated = fusion::ToDoubles((*want)[0]), once = fusion::ToDoubles((*got)[0]);
      for (size_t i = 0; i < stated.size(); ++i) {
        // Sums are at most 66; the outcome is rounded, too.
        EXPECT_LE(std::fabs(stated[i] - once[i]), unit * (1.13 * (std::fabs(once[i]) + 1) + std::fabs(once[i])))
            << text;
      }
    }
  }
}

}  // namespace
}  // namespace hir::host
