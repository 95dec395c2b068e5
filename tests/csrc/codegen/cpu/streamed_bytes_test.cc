// Goal: stores past the caches are chosen by what they cost on this machine, and lose nothing. Method: the rule on made
// up times; the measurement itself; a kernel whose output is large enough, whatever was chosen.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "csrc/codegen/cpu/artifact.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen::cpu {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

TEST(StreamedBytes, AreNoneWhereSuchStoresAreManyTimesSlower) {
  EXPECT_EQ(StreamedBytesFor(0.5, 0.47), kStreamedBytesMin);     // A Xeon.
  EXPECT_EQ(StreamedBytesFor(0.093, 0.294), kStreamedBytesMin);  // A Zen 4.
  EXPECT_EQ(StreamedBytesFor(1, 7.9), kStreamedBytesMin);
  EXPECT_EQ(StreamedBytesFor(1, 8.1), kNever);
}

TEST(StreamedBytes, AreMeasuredOnce) {
  const int64_t bytes = StreamedBytes();
  EXPECT_TRUE(bytes == kStreamedBytesMin || bytes == kNever) << bytes;
  EXPECT_EQ(StreamedBytes(), bytes);
}

TEST(StreamedBytes, AreAskedForWhereAnOutputMayBeLarge) {
  const auto asks = [](const std::string& extent) {
    const auto graph =
        ir::Parse(base::Cat("fusion @f(%x: f64[", extent, "]) { %y = neg(%x) return %y }"), fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    const segment::Group group = segment::MakeGroup(**graph, {(*graph)->body.first});
    const auto plan = Plan(group.View(**graph), "k", {}, {});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const auto ir = EmitIr(*plan, HostTarget());
    EXPECT_TRUE(ir.ok()) << ir.status().ToString();
    return ir->find("@hir_streamed_bytes") != std::string::npos && ir->find("!nontemporal") != std::string::npos;
  };
  EXPECT_TRUE(asks("i0"));
  EXPECT_TRUE(asks(std::to_string(kStreamedBytesMin / 8)));
  EXPECT_FALSE(asks(std::to_string(kStreamedBytesMin / 8 - 1)));
}

TEST(StreamedBytes, LargeOutputsAreWhole) {
  // One line more than the least, of a known size and of a symbol's.
  constexpr int64_t kElements = kStreamedBytesMin / 8 + 8;
  const std::string known = base::Cat("f64[", kElements, "]");
  CheckProgram(base::Cat("fusion @f(%x: ", known, ") { %y = neg(%x) return %y }"), {}, 1);
  CheckProgram("fusion @f(%x: f64[i0]) { %y = neg(%x) return %y }", {{"i0", kElements}}, 2);
}

}  // namespace
}  // namespace hir::codegen::cpu
