// Goal: the bounds that pools are compared with are right. Method: host programs of which one can count what lives at
// once: a chain, work on two streams with and without an event, a loop that may end early, a group.
#include "tests/property/liveness.h"

#include <gtest/gtest.h>

#include <string>

#include "csrc/base/text.h"
#include "host_ir/eval/host_program.h"

namespace hir::testing {
namespace {

// In numbers of allocs, which are of 64 bytes each.
PoolBounds Of(const std::string& body, const std::string& params = "%x: f32[16], %y: f32[16]",
              const std::string& result = "%y") {
  auto program = host::HostProgram::Load(base::Cat("host @f(", params, ") {\n", body, "  return ", result, "\n}\n"));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (!program.ok()) return {};
  auto bounds = BoundPool((*program)->graph(), 0, {{"n", 5}});
  EXPECT_TRUE(bounds.ok()) << bounds.status().ToString();
  if (!bounds.ok()) return {};
  return {.peak = bounds->peak / 64, .in_order = bounds->in_order / 64, .side_by_side = bounds->side_by_side / 64};
}

std::string Alloc(const std::string& name) { return base::Cat("  %", name, ": f32[16] = alloc() {space=pool}\n"); }
std::string Launch(const std::string& from, const std::string& to, int stream) {
  return base::Cat("  launch(%", from, ", %", to,
                   ") {kernel=\"k\", inputs=1, outputs=1, workspaces=0, extents=[], grid=1, stream=", stream, "}\n");
}

TEST(Liveness, OfAChainTwoLiveAtOnce) {
  const PoolBounds bounds =
      Of(Alloc("a") + Launch("x", "a", 0) + Alloc("b") + Launch("a", "b", 0) + "  dealloc(%a)\n" + Alloc("c") +
         Launch("b", "c", 0) + "  dealloc(%b)\n" + Launch("c", "y", 0) + "  dealloc(%c)\n");
  EXPECT_EQ(bounds, (PoolBounds{.peak = 2, .in_order = 2, .side_by_side = 2}));
}

// a is read on stream 1 while stream 0 goes on to b, which is c's place in the order only where c waits for that.
std::string TwoStreams(const std::string& between) {
  return "  %e: event[2] = event()\n" + Alloc("a") + Launch("x", "a", 1) + Launch("a", "z", 1) + "  dealloc(%a)\n" +
         "  record(%e) {index=0, stream=1}\n" + between + Alloc("b") + Launch("x", "b", 0) + Launch("b", "y", 0) +
         "  dealloc(%b)\n  wait(%e) {index=0, stream=0}\n";
}
constexpr char kThree[] = "%x: f32[16], %y: f32[16], %z: f32[16]";

TEST(Liveness, StreamsLiveSideBySideUntilAnEvent) {
  EXPECT_EQ(Of(TwoStreams(""), kThree, "%y, %z"), (PoolBounds{.peak = 2, .in_order = 1, .side_by_side = 2}));
  EXPECT_EQ(Of(TwoStreams("  wait(%e) {index=0, stream=0}\n"), kThree, "%y, %z"),
            (PoolBounds{.peak = 1, .in_order = 1, .side_by_side = 1}));
}

// The event of a loop that may make no iteration orders nothing behind it.
TEST(Liveness, ALoopMayMakeNoIteration) {
  const std::string before =
      "  %e: event[1] = event()\n" + Alloc("a") + Launch("x", "a", 1) + Launch("a", "z", 1) + "  dealloc(%a)\n";
  const std::string turn = "  record(%e) {index=0, stream=1}\n  wait(%e) {index=0, stream=0}\n";
  const std::string after = Alloc("b") + Launch("x", "b", 0) + Launch("b", "y", 0) + "  dealloc(%b)\n" + turn;
  const std::string params = "%x: f32[n], %y: f32[16], %z: f32[16]";
  EXPECT_EQ(Of(before + "  for() {begin=0, end=n, step=1} { |%i: index|\n" + turn + "  }\n" + after, params, "%y, %z"),
            (PoolBounds{.peak = 2, .in_order = 1, .side_by_side = 2}));
  EXPECT_EQ(Of(before + "  for() {begin=0, end=3, step=1} { |%i: index|\n" + turn + "  }\n" + after, params, "%y, %z"),
            (PoolBounds{.peak = 1, .in_order = 1, .side_by_side = 1}));
}

TEST(Liveness, CommunicationsOfAGroupGoSideBySide) {
  const auto two = [](const std::string& begin, const std::string& end) {
    return Alloc("a") + Alloc("b") + Alloc("c") + Launch("x", "a", 0) + begin +
           "  communication(%a, %b) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}\n"
           "  communication(%x, %c) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}\n" +
           end + Launch("c", "y", 0) + "  dealloc(%a)\n  dealloc(%b)\n  dealloc(%c)\n";
  };
  const auto bounds = [&](const std::string& body) {
    auto program = host::HostProgram::Load(
        base::Cat("mesh @m = [0, 1]\nhost @f(%x: f32[16], %y: f32[16]) {\n", body, "  return %y\n}\n"));
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    return program.ok() ? BoundPool((*program)->graph(), 0, {})->side_by_side / 64 : 0;
  };
  EXPECT_EQ(bounds(two("", "")), 2);
  EXPECT_EQ(bounds(two("  group() {\n", "  }\n")), 3);
}

}  // namespace
}  // namespace hir::testing
