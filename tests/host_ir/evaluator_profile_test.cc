// Goal: a profiled run gives what any run gives, and the time of each piece of its work.
// Method: hand-written programs on simulated ranks; the names of what was timed, in order.
#include <gtest/gtest.h>

#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

std::unique_ptr<HostProgram> LoadFinished(std::string_view text) {
  auto graph = ir::Parse(text, kHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return nullptr;
  const Status finished = FinishProgram(**graph);
  EXPECT_TRUE(finished.ok()) << finished.ToString();
  auto program = HostProgram::Load(std::move(*graph));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return program.ok() ? std::move(*program) : nullptr;
}

// "launch fill communication#3", and that each took time.
std::string Timed(const RankResult& result) {
  std::string names;
  for (const OpTime& time : result.times) {
    EXPECT_GT(time.time.count(), 0) << time.op->info->name;
    base::Append(names, names.empty() ? "" : " ", time.op->info->name);
    if (time.op->info->name == "communication") base::Append(names, "#", time.op->Int("seq"));
  }
  return names;
}

// The sum of an int64 tensor with itself.
class Doubling final : public LibrarySource {
  class Call final : public LibraryCall {
   public:
    explicit Call(const device::Kernel& kernel) : kernel_(kernel) {}
    void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
               device::Stream& stream) override {
      const int64_t args[] = {reinterpret_cast<int64_t>(inputs[0].data), reinterpret_cast<int64_t>(outputs[0].data),
                              outputs[0].bytes / 8, 0};
      stream.Launch(kernel_, args, outputs[0].bytes / 8);
    }

   private:
    const device::Kernel& kernel_;
  };

 public:
  Result<std::unique_ptr<LibraryCall>> Make(const LibraryDesc&) override {
    return std::unique_ptr<LibraryCall>(std::make_unique<Call>(**kernels_.Get("mix_1_1")));
  }

 private:
  MixKernels kernels_;
};

// Every kind of work, on two streams and in a loop; rank 0 has a part in the first of the two of the group alone.
constexpr std::string_view kEverything = R"(mesh @m = [0, 1]
mesh @one = [0]
mesh @other = [1]
mesh @alone = [[0], [1]]
host @p(%x: i64[2, 2], %w: i64[2, 2], %y: i64[2, 2], %z: i64[2, 2], %sum: i64[2, 2]) {
  launch(%x, %y) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 1], grid=4, stream=0}
  library(%x, %w, %z) {op=matmul, inputs=2, stream=0}
  %t: i64[2, 2] = alloc() {space=pool}
  %next: i64[2, 2] = alloc() {space=pool}
  fill(%t) {value=3.0, stream=0}
  for() {begin=0, end=2, step=1} { |%i: index|
    launch(%t, %y, %next) {kernel="add", inputs=2, outputs=1, workspaces=0, extents=[4], grid=4, stream=0}
    launch(%next, %t) {kernel="copy", inputs=1, outputs=1, workspaces=0, extents=[4], grid=4, stream=0}
  }
  communication(%t, %y) {type=allreduce, reduce=sum, mesh=@alone, dim=mesh_x, to=@alone, stream=0, seq=3}
  communication(%t, %sum) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=4}
  group() {
    communication(%sum, %y) {type=send_recv, reduce=none, mesh=@one, dim=none, to=@other, stream=0, seq=5}
    communication(%x, %z) {type=allreduce, reduce=max, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=6}
  }
  return %y, %z, %sum
})";

TEST(EvaluatorProfile, EveryKindOfWorkIsTimed) {
  const auto program = LoadFinished(kEverything);
  ASSERT_NE(program, nullptr);
  Doubling library;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SimulatedRun run = {
        .program = program.get(),
        .num_ranks = 2,
        .seed = seed,
        .num_runs = 2,
        .libraries = &library,
        .params = [](int64_t rank) {
          const int64_t r = 10 * rank;
          return std::vector<Values>{{r, r + 1, r + 2, r + 3}, Values(4), Values(4), Values(4), Values(4)};
        }};
    const auto plain = RunSimulated(run);
    run.profile = true;
    const auto profiled = RunSimulated(run);
    const std::string once =
        "launch library fill launch launch launch launch communication#3 communication#4 communication#5";
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(plain[rank].status.ToString(), "OK");
      ASSERT_EQ(profiled[rank].status.ToString(), "OK") << "seed " << seed;
      EXPECT_EQ(profiled[rank].params, plain[rank].params);
      EXPECT_EQ(Timed(plain[rank]), "");
      EXPECT_EQ(Timed(profiled[rank]), once + " " + once) << "rank " << rank;
    }
  }
}

TEST(EvaluatorProfile, WhatARankSkipsIsNotTimed) {
  const auto program = LoadFinished(R"(mesh @a = [0]
mesh @b = [1, 2]
host @p(%x: i64[1], %y: i64[1]) {
  group() {
    communication(%x, %y) {type=send_recv, reduce=none, mesh=@b, dim=none, to=@b, stream=0, seq=0}
  }
  if() {cond=@a.in} {
    launch(%x, %y) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[1, 1], grid=1, stream=0}
  }
  return %y
})");
  ASSERT_NE(program, nullptr);
  const auto ranks = RunSimulated({.program = program.get(), .num_ranks = 3, .profile = true, .params = [](int64_t) {
                                     return std::vector<Values>{{1}, {0}};
                                   }});
  EXPECT_EQ(Timed(ranks[0]), "launch");
  EXPECT_EQ(Timed(ranks[1]), "communication#0");
  EXPECT_EQ(Timed(ranks[2]), "communication#0");
}

TEST(EvaluatorProfile, AFailureEndsItAndNamesTheWork) {
  const auto program = LoadFinished(R"(mesh @m = [0, 1]
host @p(%x: i64[1], %y: i64[1], %z: i64[1], %w: i64[1]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  communication(%y, %z) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}
  launch(%z, %w) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[1, 1], grid=1, stream=0}
  return %y, %z, %w
})");
  ASSERT_NE(program, nullptr);
  const auto ranks = RunSimulated({.program = program.get(),
                                   .num_ranks = 2,
                                   .world = {.losses = {{.from = 0, .to = 1, .seq = 1}}},
                                   .profile = true,
                                   .params = [](int64_t) {
                                     return std::vector<Values>{{1}, {0}, {0}, {0}};
                                   }});
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.status.code(), Code::kDeadlineExceeded);
    EXPECT_NE(rank.status.message().find("allreduce #1 (%y -> %z)"), std::string::npos) << rank.status.ToString();
    EXPECT_EQ(Timed(rank), "communication#0");
  }
}

}  // namespace
}  // namespace hir::host
