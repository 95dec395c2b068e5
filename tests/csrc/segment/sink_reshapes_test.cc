// Goal: reshapes of what depends on a reduction stand as late as they can, and nothing else moves.
#include "csrc/segment/sink_reshapes.h"

#include <gtest/gtest.h>

#include <string>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"

namespace hir::segment {
namespace {

std::unique_ptr<ir::Graph> Parse(const std::string& body) {
  auto graph =
      ir::Parse("fusion @f(%x: f32[2, 3, 4], %w: f32[6, b], %z: f32[6, 4]) {\n" + body + "}\n", fusion::kFusionOps);
  if (!graph.ok()) ADD_FAILURE() << graph.status().ToString() << "\n" << body;
  return *std::move(graph);
}

// The ops behind the reduction, by name, in order.
std::string After(const std::string& body) {
  const auto graph = Parse(body);
  const Status status = SinkReshapes(*graph);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(ir::Verify(*graph).ok()) << ir::Print(*graph);
  std::string ops;
  for (const ir::Op* op = graph->body.first; op != nullptr; op = op->next) ops += std::string(op->info->name) + " ";
  return ops;
}

constexpr char kNormed[] = R"(
  %s = sum(%x) {axes=[1, 2], keepdim=true, dtype=null}
  %g = div(%x, %s)
  %f = reshape(%g) {shape=[6, 4]}
)";

TEST(SinkReshapes, BehindPointwiseOps) {
  EXPECT_EQ(After(std::string(kNormed) + R"(
  %y = mul(%f, %w)
  %n = neg(%y)
  %o = add(%n, %z)
  return %o
)"),
            "sum div reshape mul neg reshape add reshape ");
}

TEST(SinkReshapes, OfAValueThatIsReadTwiceByOneOp) {
  EXPECT_EQ(After(std::string(kNormed) + "  %y = mul(%f, %f)\n  return %y\n"), "sum div mul reshape ");
}

TEST(SinkReshapes, OfAValueThatSeveralRead) {
  EXPECT_EQ(After(std::string(kNormed) + "  %s1 = sigmoid(%f)\n  %y = mul(%f, %s1)\n  return %y\n"),
            "sum div sigmoid mul reshape ");
  EXPECT_EQ(After(std::string(kNormed) + "  %a = neg(%f)\n  %b = mul(%f, %w)\n  return %a, %b\n"),
            "sum div neg reshape reshape mul reshape ");
  // Where one needs it as it is, nothing moves.
  EXPECT_EQ(After(std::string(kNormed) + "  %a = neg(%f)\n  %b = cumsum(%f) {axis=0, dtype=null}\n  return %a, %b\n"),
            "sum div reshape neg cumsum ");
}

TEST(SinkReshapes, OthersAreSplitOnce) {
  EXPECT_EQ(After(std::string(kNormed) + R"(
  %a = mul(%f, %w)
  %b = add(%a, %w)
  %c = add(%b, %z)
  %d = mul(%c, %z)
  return %d
)"),
            "sum div reshape mul add reshape add mul reshape ");
}

TEST(SinkReshapes, ReductionsOfAllThatIsJoinedReduceTheSource) {
  const auto read_of = [](const std::string& reduction) {
    const auto graph = Parse(std::string(kNormed) + reduction + "  %u = linear(%f, %f)\n  return %y, %u\n");
    EXPECT_TRUE(SinkReshapes(*graph).ok());
    EXPECT_TRUE(ir::Verify(*graph).ok()) << ir::Print(*graph);
    const ir::Value& y = *graph->outputs[0].value;
    return ir::Print(*y.def).substr(ir::Print(*y.def).find('='));
  };
  EXPECT_EQ(read_of("  %y = sum(%f) {axes=[0], keepdim=false, dtype=null}\n"),
            "= sum(%g) {axes=[0, 1], keepdim=false, dtype=null}");
  EXPECT_EQ(read_of("  %y = max(%f) {axes=[0, 1], keepdim=false, dtype=null}\n"),
            "= max(%g) {axes=[0, 1, 2], keepdim=false, dtype=null}");
  EXPECT_EQ(read_of("  %y = sum(%f) {axes=[1], keepdim=false, dtype=null}\n"),
            "= sum(%f) {axes=[1], keepdim=false, dtype=null}");
  EXPECT_EQ(After(std::string(kNormed) + "  %y = sum(%f) {axes=[0], keepdim=true, dtype=null}\n  return %y\n"),
            "sum div sum broadcast ");
}

TEST(SinkReshapes, NothingIsLeftThatNobodyReads) {
  EXPECT_EQ(After(std::string(kNormed) + "  %y = sum(%f) {axes=[0], keepdim=false, dtype=null}\n  return %y\n"),
            "sum div sum ");
}

// Others' readers and the caller see the joined axes.
TEST(SinkReshapes, NotBeyondWhatIsReadOtherwise) {
  EXPECT_EQ(After(std::string(kNormed) + "  %y = mul(%f, %w)\n  return %f, %y\n"), "sum div reshape mul ");
  EXPECT_EQ(After(std::string(kNormed) + "  %y = sum(%f) {axes=[1], keepdim=false, dtype=null}\n  return %y\n"),
            "sum div reshape sum ");
}

TEST(SinkReshapes, NotOfWhatNoReductionMade) {
  EXPECT_EQ(After("  %n = neg(%x)\n  %f = reshape(%n) {shape=[6, 4]}\n  %y = mul(%f, %w)\n  return %y\n"),
            "neg reshape mul ");
}

TEST(SinkReshapes, NotOfOnesThatSplitAxes) {
  EXPECT_EQ(After(R"(
  %s = sum(%z) {axes=[1], keepdim=true, dtype=null}
  %g = div(%z, %s)
  %f = reshape(%g) {shape=[2, 3, 4]}
  %y = mul(%f, %x)
  return %y
)"),
            "sum div reshape mul ");
}

// What is returned is computed as the reduction takes it, and is what that joins.
TEST(SinkReshapes, SplitsWhatIsReturnedForAReduction) {
  const std::string split =
      "  %f = reshape(%n) {shape=[2, 3, 4]}\n  %s = sum(%f) {axes=[1, 2], keepdim=true, dtype=null}\n";
  EXPECT_EQ(After("  %n = mul(%z, %w)\n" + split + "  %y = mul(%f, %s)\n  return %y, %n\n"),
            "reshape reshape mul reshape sum mul ");
  EXPECT_EQ(After("  %n = neg(%z)\n" + split + "  return %n, %s\n"), "reshape neg reshape sum ");
  // Or in another type.
  EXPECT_EQ(After("  %n = neg(%z)\n" + split + "  %c = cast(%n) {dtype=bf16}\n  return %s, %c\n"),
            "reshape neg cast reshape sum ");
  EXPECT_EQ(After("  %n = neg(%z)\n  %c = cast(%n) {dtype=bf16}\n" + split + "  return %n, %s, %c\n"),
            "reshape neg cast reshape reshape sum ");
  // Not what is made with a number that comes later.
  EXPECT_EQ(After("  %n = neg(%z)\n" + split +
                  "  %k = constant() {value=2.0, dtype=f32}\n  %c = mul(%n, %k)\n  return %n, %s, %c\n"),
            "neg reshape sum constant mul ");
  // Not where nobody else has it, where another reads it as it is, or where nothing is reduced.
  EXPECT_EQ(After("  %n = neg(%z)\n" + split + "  return %s\n"), "neg reshape sum ");
  EXPECT_EQ(After("  %n = neg(%z)\n" + split + "  %a = mul(%n, %z)\n  return %n, %s, %a\n"), "neg reshape sum mul ");
  EXPECT_EQ(After("  %n = neg(%z)\n  %f = reshape(%n) {shape=[2, 3, 4]}\n  %y = mul(%f, %x)\n  return %n, %y\n"),
            "neg reshape mul ");
}

TEST(LateReshapes, AreThoseThatNothingComputesWith) {
  const auto graph = Parse(std::string(kNormed) + R"(
  %v = linear(%f, %z)
  %n = neg(%g)
  %k = reshape(%n) {shape=[24]}
  return %v, %k
)");
  const LateReshapes late(*graph);
  EXPECT_FALSE(late.Has(*graph->FindValue("f")->def));  // Something else reads what it is a reshape of.
  EXPECT_TRUE(late.Has(*graph->FindValue("k")->def));
}

}  // namespace
}  // namespace hir::segment
