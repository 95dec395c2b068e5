// Goal: plans keep what is promised of forwarding, of inputs with broadcast axes, of rematerialization, of views: a
// test a promise, on whole programs. (Random numbers are by counters: a kernel that makes them again makes the same.)
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

Result<ProgramPlan> PlanOf(const std::string& text, int64_t num_devices = 1) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  return PlanProgram(std::move(graph), {.num_devices = num_devices});
}

ProgramPlan Plan(const std::string& text, int64_t num_devices = 1) {
  auto plan = PlanOf(text, num_devices);
  if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
  return *std::move(plan);
}

std::string CorpusText(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream("tests/corpus/" + name + ".hir").rdbuf();
  return text.str();
}

// "k0 linear k1": the segments that do work.
std::string Work(const ProgramPlan& plan) {
  std::vector<std::string> names;
  for (const LoweredSegment& segment : plan.segments) {
    if (segment.kind != SegmentKind::kView) names.push_back(segment.name);
  }
  return base::Join(names, " ");
}

// The backward pass of an RMS norm, in bfloat16.
std::string NormBackward(int64_t rows, int64_t columns) {
  const std::string matrix = base::Cat("bf16[", rows, ", ", columns, "]");
  return base::Cat("fusion @f(%grad: ", matrix, ", %x: ", matrix, ", %w: bf16[", columns, "], %rstd: f32[", rows,
                   R"(, b]) {
  %g = cast(%grad) {dtype=f32}
  %xf = cast(%x) {dtype=f32}
  %wf = cast(%w) {dtype=f32}
  %xhat = mul(%xf, %rstd)
  %gw = mul(%g, %wf)
  %along = mul(%gw, %xhat)
  %m = sum(%along) {axes=[1], keepdim=true, dtype=null}
  %back = mul(%xhat, %m)
  %d = sub(%gw, %back)
  %dx = mul(%d, %rstd)
  %dxb = cast(%dx) {dtype=bf16}
  %of_w = mul(%g, %xhat)
  %dw = sum(%of_w) {axes=[0], keepdim=false, dtype=null}
  return %dxb, %dw
})");
}

// Going through short rows in order takes a GPU longer than to read them twice. A core it does not.
TEST(Costs, DecideWhatIsOneKernel) {
  const auto kernels = [](int64_t rows, int64_t columns, const codegen::Target& target) {
    auto graph = ir::Parse(NormBackward(rows, columns), fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    const auto plan = PlanProgram(*std::move(graph), {.target = target});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan.ok() ? plan->kernels.size() : 0;
  };
  EXPECT_EQ(kernels(1'000'000, 32, codegen::kHopper), 2);
  EXPECT_EQ(kernels(100'000, 512, codegen::kHopper), 1);
  EXPECT_EQ(kernels(1'000'000, 32, {}), 1);
}

// Names of what kernels write and the program does not return.
std::string Kept(const ProgramPlan& plan) {
  std::vector<std::string_view> names;
  for (const LoweredSegment& segment : plan.segments) {
    if (segment.kind != SegmentKind::kKernel) continue;
    for (const ir::Value* output : segment.group->outputs) {
      const bool is_returned =
          std::ranges::any_of(plan.local.graph->outputs, [output](const ir::Output& o) { return o.value == output; });
      if (!is_returned) names.push_back(output->name);
    }
  }
  return base::Join(names, " ");
}

// A product between two readers: no kernel holds both.
std::string AroundAProduct(const std::string& made, const std::string& name) {
  return "fusion @f(%x: f32[8, 8], %w: f32[8, 8]) {\n" + made + "  %a = add(%x, %" + name +
         ")\n  %p = linear(%a, %w)\n  %y = mul(%p, %" + name + ")\n  return %y\n}";
}

TEST(Forwarding, OfASequence) {
  EXPECT_EQ(Kept(Plan(AroundAProduct(R"(
  %zero = constant() {value=0, dtype=i64}
  %one = constant() {value=1, dtype=i64}
  %i = iota(%zero, %one) {shape=[8], offset=[0], dtype=i64}
  %f = cast(%i) {dtype=f32}
  %c = broadcast(%f) {is_broadcast_dim=[1, 0]}
)",
                                     "c"))),
            "a");
}

// Made of two sequences.
TEST(Forwarding, OfAnIdentityMatrix) {
  EXPECT_EQ(Kept(Plan(AroundAProduct(R"(
  %zero = constant() {value=0, dtype=i64}
  %one = constant() {value=1, dtype=i64}
  %i = iota(%zero, %one) {shape=[8], offset=[0], dtype=i64}
  %row = broadcast(%i) {is_broadcast_dim=[1, 0]}
  %column = broadcast(%i) {is_broadcast_dim=[0, 1]}
  %same = eq(%row, %column)
  %eye = cast(%same) {dtype=f32}
)",
                                     "eye"))),
            "a");
}

TEST(Forwarding, OfAFullTensor) {
  EXPECT_EQ(Kept(Plan(AroundAProduct("  %half = full() {shape=[8, 8], value=0.5, dtype=f32}\n", "half"))), "a");
}

// A returned value is made once for the caller; a reader that has it cheaper from its source reads that.
TEST(Forwarding, WhatIsReturnedIsWrittenOnce) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: bf16[8, 8], %w: f32[8, 8]) {
  %c = cast(%x) {dtype=f32}
  %p = linear(%c, %w)
  %y = mul(%p, %c)
  return %y, %c
})");
  EXPECT_EQ(Work(plan), "k0 linear k1");
  EXPECT_EQ(Kept(plan), "");
}

// Two casts of inputs have nothing to do with each other: each is in the kernel that reads it.
TEST(Forwarding, InputsAreNotCastTogether) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: bf16[8, 8], %v: bf16[8, 8], %w: f32[8, 8]) {
  %c = cast(%x) {dtype=f32}
  %d = cast(%v) {dtype=f32}
  %a = exp(%c)
  %p = linear(%a, %w)
  %q = mul(%p, %d)
  return %q
})");
  EXPECT_EQ(Work(plan), "k0 linear k1");
  EXPECT_EQ(plan.segments[0].group->inputs.size(), 1U);
}

TEST(Forwarding, TheZerosOfRopeBackwardAreWrittenNowhere) {
  const ProgramPlan plan = Plan(CorpusText("rope_llama_backward"));
  EXPECT_EQ(Kept(plan).find("zeros"), std::string::npos) << Kept(plan);
}

TEST(BroadcastInputs, NoKernelStandsBeforeAProduct) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[b, 8, 8], %w: f32[8, 8]) {
  %y = matmul(%x, %w)
  return %y
})");
  EXPECT_EQ(Work(plan), "matmul");
}

TEST(BroadcastInputs, AnOutputIsNotTheirs) {
  const auto plan = PlanOf(R"(
fusion @f(%x: f32[b:i0, 8], %y: f32[i0, 8]) {
  %z = add(%x, %y)
  return %z alias %x
})");
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument) << plan.status().ToString();
  EXPECT_NE(plan.status().ToString().find("x"), std::string::npos);
}

TEST(Rematerialization, NothingCrossesInAdaptiveLayerNormBackward) {
  const ProgramPlan plan = Plan(CorpusText("adaptive_layer_norm_backward"), 4);
  EXPECT_EQ(Kept(plan), "t15.partial t17.partial");  // For the all-reduces.
}

TEST(Rematerialization, ABoundaryThatIsAskedForStays) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: bf16[8, 8]) {
  %c = cast(%x) {dtype=f32}
  %s = segment_set(%c)
  %y = mul(%s, %s)
  return %y
})");
  EXPECT_NE(Kept(plan), "");
}

TEST(Views, RopeIsOneKernel) {
  for (const std::string name : {"rope", "rope_half_rotation", "rope_interleaved"})
    EXPECT_EQ(Work(Plan(CorpusText(name), 4)), "k0") << name;
}

TEST(Views, ASegmentOfThemIsNoKernel) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[6, 4], %w: f32[4, 4]) {
  %a = linear(%x, %w)
  %r = reshape(%a) {shape=[2, 3, 4]}
  %b = broadcast(%r) {is_broadcast_dim=[1, 0, 0, 0]}
  %q = squeeze(%b) {axes=[0]}
  %z = reshape(%q) {shape=[6, 4]}
  %y = linear(%z, %w)
  return %y
})");
  EXPECT_EQ(Work(plan), "linear linear");
}

// Attention whose heads lie within tokens, of one sequence or of `batch`.
std::string OfHeads(const std::string& dtype, const std::string& batch) {
  std::string text = R"(
fusion @f(%x: T[B, 128, 192], %w: T[64, 64]) {
  %q_part = slice(%x) {start=[0, 0, 0], end=[B, 128, 64], strides=[1, 1, 1]}
  %k_part = slice(%x) {start=[0, 0, 64], end=[B, 128, 128], strides=[1, 1, 1]}
  %v_part = slice(%x) {start=[0, 0, 128], end=[B, 128, 192], strides=[1, 1, 1]}
  %q_tokens = reshape(%q_part) {shape=[B, 128, 4, 16]}
  %k_tokens = reshape(%k_part) {shape=[B, 128, 4, 16]}
  %v_tokens = reshape(%v_part) {shape=[B, 128, 4, 16]}
  %q = permute(%q_tokens) {dims=[0, 2, 1, 3]}
  %k = permute(%k_tokens) {dims=[0, 2, 3, 1]}
  %v = permute(%v_tokens) {dims=[0, 2, 1, 3]}
  %s = matmul(%q, %k)
  %p = exp(%s)
  %o = matmul(%p, %v)
  %tokens = permute(%o) {dims=[0, 2, 1, 3]}
  %joined = reshape(%tokens) {shape=[B, 128, 64]}
  %y = linear(%joined, %w)
  return %y
})";
  const auto replace = [&text](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace(" T[", " " + dtype + "[");
  replace("[B, ", "[" + batch + ", ");
  return text;
}

TEST(Views, ProductsReadAndWriteHeadsWithinTokens) {
  EXPECT_EQ(Work(Plan(OfHeads("f32", "2"))), "matmul k0 matmul linear");
  EXPECT_EQ(Work(Plan(OfHeads("f32", "i0"))), "matmul k0 matmul linear");
}

TEST(Views, ResultsAreWrittenInTheOrderOfTheirReaders) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%q: f32[2, i0, 3, 8], %k: f32[2, i0, 3, 8], %v: f32[2, i0, 3, 8], %dy: f32[2, i0, 3, 8], %y: f32[2, i0, 3, 8],
          %lse: f32[2, 3, i0]) {
  %qh = permute(%q) {dims=[0, 2, 1, 3]}
  %kh = permute(%k) {dims=[0, 2, 1, 3]}
  %vh = permute(%v) {dims=[0, 2, 1, 3]}
  %dyh = permute(%dy) {dims=[0, 2, 1, 3]}
  %yh = permute(%y) {dims=[0, 2, 1, 3]}
  %dqh = attention_grad(%qh, %kh, %vh, %dyh, %lse, %yh) {result=q, causal=true, offset=[0, 0, 0, 0, 0], scale=0.5}
  %dkh = attention_grad(%qh, %kh, %vh, %dyh, %lse, %yh) {result=k, causal=true, offset=[0, 0, 0, 0, 0], scale=0.5}
  %dvh = attention_grad(%qh, %kh, %vh, %dyh, %lse, %yh) {result=v, causal=true, offset=[0, 0, 0, 0, 0], scale=0.5}
  %dq = permute(%dqh) {dims=[0, 2, 1, 3]}
  %dk = permute(%dkh) {dims=[0, 2, 1, 3]}
  %dv = permute(%dvh) {dims=[0, 2, 1, 3]}
  return %dq, %dk, %dv
})");
  EXPECT_EQ(Work(plan), "attention_grad");
}

TEST(Views, OthersInAKernelDoNotKeepAResultFromItsOrder) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[2, 3, i0, 8], %w: f32[2, 3, 8, 8], %u: f32[2, i0, 3, 8]) {
  %o = matmul(%x, %w)
  %t = permute(%o) {dims=[0, 2, 1, 3]}
  %v = permute(%u) {dims=[0, 2, 1, 3]}
  %e = exp(%v)
  return %t, %e
})");
  EXPECT_EQ(Work(plan), "matmul k0");
  EXPECT_EQ(Kept(plan), "");
}

// One kernel writes %a, once.
TEST(Views, InOneOrderAndInAnotherBeside) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[4, i0, 8], %y: f32[i0, 8, 4], %w: f32[3, 32]) {
  %a = exp(%x)
  %q = permute(%a) {dims=[1, 0, 2]}
  %p = matmul(%q, %y)
  %r = reshape(%a) {shape=[-1, 32]}
  %z = linear(%r, %w)
  return %p, %z
})");
  EXPECT_EQ(Work(plan), "k0 matmul linear");
  EXPECT_EQ(Kept(plan), "a");
}

// All of %h would be computed and stored for two rows of it.
TEST(Views, FewRowsOfAComputedTensorAreStoredAlone) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[4096, 8], %w: f32[3, 8]) {
  %h = exp(%x)
  %first = slice(%h) {start=[0, 0], end=[1, 8], strides=[1, 1]}
  %last = slice(%h) {start=[4095, 0], end=[4096, 8], strides=[1, 1]}
  %a = linear(%first, %w)
  %b = linear(%last, %w)
  return %a, %b
})");
  EXPECT_EQ(Kept(plan).find('h'), std::string::npos) << Kept(plan);
}

// A cast and a product are made again by who reads them, but not to be stored in another order.
TEST(Views, AreNotMadeAgain) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: bf16[4, i0, 8], %y: f32[i0, 8, 4]) {
  %c = cast(%x) {dtype=f32}
  %a = mul(%c, %c)
  %q = permute(%a) {dims=[1, 0, 2]}
  %p = matmul(%q, %y)
  return %a, %p
})");
  EXPECT_EQ(Work(plan), "k0 matmul");
}

TEST(Views, OneRowOfElementsThatLieApartIsCopied) {
  const auto work = [](const std::string& type, const std::string& slice) {
    return Work(Plan(base::Cat("fusion @f(%x: ", type, ", %w: f32[64, 64]) {\n  %s = slice(%x) ", slice,
                               "\n  %p = reshape(%s) {shape=[16, 1, 64]}\n  %y = matmul(%p, %w)\n  return %y\n}")));
  };
  EXPECT_EQ(work("f32[16, 64, 3]", "{start=[0, 0, 1], end=[16, 64, 2], strides=[1, 1, 1]}"), "k0 matmul");
  EXPECT_EQ(work("f32[16, 3, 64]", "{start=[0, 1, 0], end=[16, 2, 64], strides=[1, 1, 1]}"), "matmul");
  EXPECT_EQ(Work(Plan(R"(
fusion @f(%x: f32[16, 64, 3], %w: f32[64, 64]) {
  %s = slice(%x) {start=[0, 0, 0], end=[16, 64, 1], strides=[1, 1, 1]}
  %p = permute(%s) {dims=[0, 2, 1]}
  %y = matmul(%p, %w)
  return %y
})")),
            "k0 matmul");
}

// One stride leads from batch to batch there: that of heads, if there is one sequence.
TEST(Views, OnGpusProductsDoForOneSequence) {
  const auto work = [](const std::string& batch) {
    auto graph = ir::Parse(OfHeads("f32", batch), fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    auto plan = PlanProgram(std::move(*graph), {.num_devices = 1, .target = codegen::kHopper});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return Work(*plan);
  };
  EXPECT_EQ(work("1"), "matmul k0 matmul linear");
  EXPECT_EQ(work("2"), "k0 matmul k1 matmul k2 linear");
}

TEST(Views, OthersHaveTheirOrderStored) {
  const auto work = [](const std::string& ops) {
    return Work(Plan(base::Cat("fusion @f(%x: f32[6, 5, 4], %w: f32[4, 4], %v: f32[6, 4, 3]) {\n", ops, "}\n")));
  };
  const std::string permuted = "  %z = permute(%x) {dims=[1, 0, 2]}\n  %y = linear(%z, %w)\n";
  // Rows that are not evenly apart would be as many products.
  EXPECT_EQ(work(permuted + "  return %y\n"), "k0 linear");
  // A slice's rows are.
  const std::string sliced = "  %z = slice(%x) {start=[0, 0, 0], end=[6, 5, 2], strides=[1, 1, 1]}\n";
  const std::string weight = "  %u = slice(%w) {start=[0, 0], end=[4, 2], strides=[1, 1]}\n  %y = linear(%z, %u)\n";
  EXPECT_EQ(work(sliced + weight + "  return %y\n"), "linear");
  // Somebody else has it in memory.
  EXPECT_EQ(work(sliced + weight + "  return %y, %z\n"), "k0 linear");
  // Every second element of a row is nothing that a library knows.
  const std::string second = "  %z = slice(%x) {start=[0, 0, 0], end=[6, 5, 4], strides=[1, 1, 2]}\n";
  EXPECT_EQ(work(second + weight + "  return %y\n"), "k0 linear");
  // Joined axes have to lie behind each other.
  EXPECT_EQ(work("  %t = permute(%x) {dims=[1, 0, 2]}\n  %z = reshape(%t) {shape=[5, 24]}\n"
                 "  %u = reshape(%v) {shape=[24, 3]}\n  %y = matmul(%z, %u)\n  return %y\n"),
            "k0 matmul");
  // Any stride may lead from batch to batch.
  EXPECT_EQ(work("  %t = permute(%x) {dims=[0, 2, 1]}\n  %z = permute(%x) {dims=[1, 0, 2]}\n"
                 "  %u = permute(%t) {dims=[2, 1, 0]}\n  %y = matmul(%z, %u)\n  return %y\n"),
            "matmul");
}

TEST(Views, AnInputsReshapeIsStoredNowhere) {
  const ProgramPlan plan = Plan(R"(
fusion @f(%x: f32[6, 4], %v: f32[2, 3, 4], %w: f32[12, 12]) {
  %r = reshape(%x) {shape=[2, 3, 4]}
  %a = add(%r, %v)
  %f = reshape(%a) {shape=[2, 12]}
  %p = linear(%f, %w)
  %g = reshape(%p) {shape=[2, 3, 4]}
  %y = mul(%g, %r)
  return %y
})");
  EXPECT_EQ(Work(plan), "k0 linear k1");
  EXPECT_EQ(Kept(plan).find('r'), std::string::npos) << Kept(plan);
}

}  // namespace
}  // namespace hir::host
