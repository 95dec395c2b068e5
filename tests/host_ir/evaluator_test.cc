// The evaluator on simulated ranks: hand-written programs against values worked out here.
#include <gtest/gtest.h>

#include <array>

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

// The parameters after a run, by rank; every run is expected to go well.
std::vector<std::vector<Values>> Results(SimulatedRun run) {
  std::vector<std::vector<Values>> params;
  for (RankResult& result : RunSimulated(run)) {
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    params.push_back(std::move(result.params));
  }
  return params;
}

// Products of int64 matrices, by the strides that they are told.
class StridedProducts final : public LibrarySource {
  // a, b, out, the columns of a, those of out, the strides of a, b, out. The grid counts elements of out.
  static void Multiply(const int64_t* args, int64_t begin, int64_t end) {
    const auto at = [args](int tensor, int64_t row, int64_t column) -> int64_t& {
      const int64_t* const strides = args + 5 + ptrdiff_t{2} * tensor;
      return reinterpret_cast<int64_t*>(args[tensor])[row * strides[0] + column * strides[1]];
    };
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / args[4], column = i % args[4];
      int64_t sum = 0;
      for (int64_t k = 0; k < args[3]; ++k) sum += at(0, row, k) * at(1, k, column);
      at(2, row, column) = sum;
    }
  }
  class Call final : public LibraryCall {
   public:
    Call(const device::Kernel& kernel, const ProductDesc& desc)
        : kernel_(kernel), elements_(desc.output.shape.at(0) * desc.output.shape.at(1)) {
      args_[3] = desc.inputs[0].shape.at(1);
      args_[4] = desc.output.shape.at(1);
      size_t next = 5;
      for (const LibraryTensor* tensor : {&desc.inputs[0], &desc.inputs[1], &desc.output}) {
        for (const int64_t stride : tensor->strides) args_.at(next++) = stride;
      }
    }
    void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
               device::Stream& stream) override {
      args_[0] = reinterpret_cast<int64_t>(inputs[0].data);
      args_[1] = reinterpret_cast<int64_t>(inputs[1].data);
      args_[2] = reinterpret_cast<int64_t>(outputs[0].data);
      stream.Launch(kernel_, args_, elements_);
    }

   private:
    const device::Kernel& kernel_;
    const int64_t elements_;
    std::array<int64_t, 11> args_ = {};
  };

 public:
  Result<std::unique_ptr<LibraryCall>> Make(const LibraryDesc& desc) override {
    return std::unique_ptr<LibraryCall>(std::make_unique<Call>(kernel_, std::get<ProductDesc>(desc)));
  }

 private:
  const device::HostKernel kernel_{{.name = "product", .function = &Multiply}};
};

TEST(Evaluator, LaunchBetweenCommunications) {
  const auto program = LoadFinished(R"(mesh @m = [0, 1, 2]
host @p(%x: i64[i0], %z: i64[i0]) {
  %c: i64[i0] = alloc() {space=pool}
  %y: i64[i0] = alloc() {space=pool}
  launch(%x, %c) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[i0, 5], grid=i0, stream=0}
  communication(%c, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  launch(%y, %z) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[i0, 1], grid=i0, stream=0}
  return %z
})");
  ASSERT_NE(program, nullptr);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto params = Results({.program = program.get(),
                                 .num_ranks = 3,
                                 .seed = seed,
                                 .symbols = {2},
                                 .num_runs = 3,
                                 .params = [](int64_t rank) {
                                   return std::vector<Values>{{rank, 10}, {-1, -1}};
                                 }});
    // c = 2x + 5; y = 2 * (0 + 1 + 2) + 15 = 21, 3 * 25 = 75; z = 2y + 1.
    for (const auto& rank : params) EXPECT_EQ(rank[1], (Values{43, 151}));
  }
}

TEST(Evaluator, EveryCommunication) {
  const auto program = LoadFinished(R"(mesh @m = [0, 1]
host @p(%x: i64[2, 2], %sum: i64[2, 2], %all: i64[2, 2, 2], %part: i64[2], %swap: i64[2, 2], %own: i64[2, 2]) {
  communication(%x, %sum) {type=allreduce, reduce=max, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  communication(%x, %all) {type=allgather, reduce=none, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}
  communication(%x, %part) {type=reduce_scatter, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=2}
  communication(%x, %swap) {type=all_to_all, reduce=none, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=3}
  %mine: i64[2] = view_select(%own) {axis=0, index=@m.x}
  fill(%mine) {value=7.0, stream=0}
  communication(%mine, %own) {type=allgather, reduce=none, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=4}
  return %sum, %all, %part, %swap, %own
})");
  ASSERT_NE(program, nullptr);
  const auto params = Results(
      {.program = program.get(), .num_ranks = 2, .params = [](int64_t rank) {
         const int64_t r = 10 * rank;
         return std::vector<Values>{{r, r + 1, r + 2, r + 3}, Values(4), Values(8), Values(2), Values(4), Values(4)};
       }});
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(params[rank][1], (Values{10, 11, 12, 13}));
    EXPECT_EQ(params[rank][2], (Values{0, 1, 2, 3, 10, 11, 12, 13}));
    EXPECT_EQ(params[rank][3], rank == 0 ? (Values{10, 12}) : (Values{14, 16}));
    EXPECT_EQ(params[rank][4], rank == 0 ? (Values{0, 1, 10, 11}) : (Values{2, 3, 12, 13}));
    EXPECT_EQ(params[rank][5], (Values{7, 7, 7, 7}));
  }
}

// Rows in pairs, of a slice of columns: the first of each pair, then the second. %one is the identity.
TEST(Evaluator, SplitOfAStridedView) {
  const auto program = LoadFinished(R"(host @p(%x: i64[4, i0], %y: i64[2, 2, 2], %one: i64[2, 2]) {
  %c: i64[4, 2] = view_slice(%x) {axis=1, from=1, to=3}
  %r: i64[2, 2, 2] = view_reshape(%c)
  for() {begin=0, end=2, step=1} { |%i: index|
    %from: i64[2, 2] = view_select(%r) {axis=1, index=%i}
    %to: i64[2, 2] = view_select(%y) {axis=0, index=%i}
    library(%from, %one, %to) {op=matmul, inputs=2, stream=0}
  }
  return %y
})");
  ASSERT_NE(program, nullptr);
  StridedProducts products;
  const auto params = Results({.program = program.get(), .symbols = {4}, .libraries = &products, .params = [](int64_t) {
                                 Values x;
                                 for (int64_t i = 0; i < 16; ++i) x.push_back(i);
                                 return std::vector<Values>{x, Values(8), {1, 0, 0, 1}};
                               }});
  EXPECT_EQ(params[0][1], (Values{1, 2, 9, 10, 5, 6, 13, 14}));
}

// Columns of %x in the place of rows, and the same of the result. %one is the identity.
TEST(Evaluator, PermutedViews) {
  const auto program = LoadFinished(R"(host @p(%x: i64[3, i0, 2], %y: i64[2, 2, 3], %one: i64[2, 2]) {
  %c: i64[3, 2, 2] = view_slice(%x) {axis=1, from=1, to=3}
  %from: i64[2, 3, 2] = view_permute(%c) {dims=[1, 0, 2]}
  %to: i64[2, 3, 2] = view_permute(%y) {dims=[0, 2, 1]}
  for() {begin=0, end=2, step=1} { |%i: index|
    %row: i64[3, 2] = view_select(%from) {axis=0, index=%i}
    %made: i64[3, 2] = view_select(%to) {axis=0, index=%i}
    library(%row, %one, %made) {op=matmul, inputs=2, stream=0}
  }
  return %y
})");
  ASSERT_NE(program, nullptr);
  StridedProducts products;
  const auto params = Results({.program = program.get(), .symbols = {4}, .libraries = &products, .params = [](int64_t) {
                                 Values x;
                                 for (int64_t i = 0; i < 24; ++i) x.push_back(i);
                                 return std::vector<Values>{x, Values(12), {1, 0, 0, 1}};
                               }});
  EXPECT_EQ(params[0][1], (Values{2, 10, 18, 3, 11, 19, 4, 12, 20, 5, 13, 21}));
}

TEST(Evaluator, BetweenMeshes) {
  const auto program = LoadFinished(R"(mesh @a = [0, 1]
mesh @b = [3, 0]
mesh @r = [2]
host @p(%x: i64[1], %y: i64[1], %z: i64[1], %w: i64[1]) {
  communication(%x, %y) {type=send_recv, reduce=none, mesh=@a, dim=none, to=@b, stream=0, seq=0}
  communication(%x, %z) {type=broadcast, reduce=none, mesh=@r, dim=none, to=@a, stream=0, seq=1}
  if() {cond=@b.in} {
    launch(%y, %w) {kernel="copy", inputs=1, outputs=1, workspaces=0, extents=[1], grid=1, stream=0}
  }
  return %y, %z, %w
})");
  ASSERT_NE(program, nullptr);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto params = Results({.program = program.get(), .num_ranks = 4, .seed = seed, .params = [](int64_t rank) {
                                   return std::vector<Values>{{rank + 1}, {-1}, {-1}, {-1}};
                                 }});
    const int64_t y[] = {2, -1, -1, 1}, z[] = {3, 3, -1, -1}, w[] = {2, -1, -1, 1};
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(params[rank], (std::vector<Values>{{static_cast<int64_t>(rank) + 1}, {y[rank]}, {z[rank]}, {w[rank]}}));
    }
  }
}

// Rank 1 is the root of @m = [2, 1, 0], at place 1; @turned sends 2 -> 1 -> 0 -> 2.
TEST(Evaluator, RootsAndPermutations) {
  const auto program = LoadFinished(R"(mesh @m = [2, 1, 0]
mesh @root = [1]
mesh @turned = [1, 0, 2]
host @p(%x: i64[i0], %all: i64[3, i0], %part: i64[i0], %sum: i64[i0], %next: i64[i0], %own: i64[3, i0]) {
  communication(%x, %all) {type=gather, reduce=none, mesh=@m, dim=none, to=@root, stream=0, seq=0}
  communication(%all, %part) {type=scatter, reduce=none, mesh=@root, dim=none, to=@m, stream=0, seq=1}
  communication(%x, %sum) {type=reduce, reduce=sum, mesh=@m, dim=none, to=@root, stream=0, seq=2}
  communication(%x, %next) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@turned, stream=0, seq=3}
  fill(%own) {value=5.0, stream=0}
  %mine: i64[i0] = view_select(%own) {axis=0, index=1}
  launch(%x, %mine) {kernel="copy", inputs=1, outputs=1, workspaces=0, extents=[i0], grid=i0, stream=0}
  communication(%mine, %own) {type=gather, reduce=none, mesh=@m, dim=none, to=@root, stream=0, seq=4}
  communication(%own, %own) {type=reduce, reduce=max, mesh=@m, dim=none, to=@root, stream=0, seq=5}
  communication(%next, %next) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@turned, stream=0, seq=6}
  return %all, %part, %sum, %next, %own
})");
  ASSERT_NE(program, nullptr);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto params =
        Results({.program = program.get(), .num_ranks = 3, .seed = seed, .symbols = {2}, .params = [](int64_t rank) {
                   const int64_t r = 10 * (rank + 1);
                   return std::vector<Values>{{r, r + 1}, Values(6), Values(2), Values(2), Values(2), Values(6)};
                 }});
    EXPECT_EQ(params[1][1], (Values{30, 31, 20, 21, 10, 11}));
    EXPECT_EQ(params[1][3], (Values{60, 63}));
    // Gathered in place; then the largest of that and of 5, x, 5 of the two others.
    EXPECT_EQ(params[1][5], (Values{30, 31, 30, 31, 10, 11}));
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto r = static_cast<int64_t>(10 * (rank + 1));
      EXPECT_EQ(params[rank][2], (Values{r, r + 1}));
      const int64_t twice[] = {30, 10, 20};  // Two steps around: from the last but one before it.
      EXPECT_EQ(params[rank][4], (Values{twice[rank], twice[rank] + 1}));
    }
  }
}

TEST(Evaluator, GroupsAndTwoDimensionalMeshes) {
  const auto program = LoadFinished(R"(mesh @m = [[0, 1], [2, 3]]
host @p(%x: i64[1], %y: i64[1], %z: i64[1]) {
  group() {
    communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
    communication(%x, %z) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_y, to=@m, stream=0, seq=1}
  }
  return %y, %z
})");
  ASSERT_NE(program, nullptr);
  const auto params = Results({.program = program.get(), .num_ranks = 4, .params = [](int64_t rank) {
                                 return std::vector<Values>{{int64_t{1} << (4 * rank)}, {0}, {0}};
                               }});
  const int64_t y[] = {0x0011, 0x0011, 0x1100, 0x1100}, z[] = {0x0101, 0x1010, 0x0101, 0x1010};
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(params[rank][1], Values{y[rank]});
    EXPECT_EQ(params[rank][2], Values{z[rank]});
  }
}

TEST(Evaluator, LoopsViewsAndBranches) {
  const auto program = LoadFinished(R"(host @p(%x: i64[i0, 2], %y: i64[i0, 2], %t: i64[2, i0], %one: i64[1, 1]) {
  for() {begin=0, end=i0, step=1} { |%i: index|
    %xs: i64[2] = view_select(%x) {axis=0, index=%i}
    %ys: i64[2] = view_select(%y) {axis=0, index=i0 - 1 - %i}
    launch(%xs, %ys) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[2, %i], grid=2, stream=0}
  }
  for() {begin=0, end=2, step=1} { |%k: index|
    %column: i64[i0, 1] = view_slice(%x) {axis=1, from=%k, to=%k + 1}
    %row: i64[i0] = view_select(%t) {axis=0, index=%k}
    %to: i64[i0, 1] = view_reshape(%row)
    library(%column, %one, %to) {op=matmul, inputs=2, stream=0}
  }
  %twice: i64[2, i0] = alloc() {space=pool}
  for() {begin=0, end=4, step=1} { |%j: index|
    if() {cond=%j mod 2} {
      launch(%t, %t, %twice) {kernel="add", inputs=2, outputs=1, workspaces=0, extents=[2*i0], grid=2*i0, stream=0}
      launch(%twice, %t) {kernel="copy", inputs=1, outputs=1, workspaces=0, extents=[2*i0], grid=2*i0, stream=0}
    }
  }
  return %y, %t
})");
  ASSERT_NE(program, nullptr);
  StridedProducts products;
  const auto params = Results({.program = program.get(), .symbols = {3}, .libraries = &products, .params = [](int64_t) {
                                 return std::vector<Values>{{1, 2, 3, 4, 5, 6}, Values(6), Values(6), {1}};
                               }});
  EXPECT_EQ(params[0][1], (Values{12, 14, 7, 9, 2, 4}));
  EXPECT_EQ(params[0][2], (Values{4, 12, 20, 8, 16, 24}));
}

TEST(Evaluator, LibraryCallsGoByTheStridesOfViews) {
  const auto program = LoadFinished(R"(host @p(%x: i64[2, 3], %y: i64[2, 3]) {
  %left: i64[2, 2] = view_slice(%x) {axis=1, from=0, to=2}
  %right: i64[2, 2] = view_slice(%x) {axis=1, from=1, to=3}
  %to: i64[2, 2] = view_slice(%y) {axis=1, from=1, to=3}
  fill(%y) {value=7.0, stream=0}
  library(%left, %right, %to) {op=matmul, inputs=2, stream=0}
  return %y
})");
  ASSERT_NE(program, nullptr);
  StridedProducts products;
  const auto params = Results({.program = program.get(), .libraries = &products, .params = [](int64_t) {
                                 return std::vector<Values>{{1, 2, 4, 8, 16, 32}, Values(6)};
                               }});
  EXPECT_EQ(params[0][1], (Values{7, 34, 68, 7, 272, 544}));
}

TEST(Evaluator, ZeroExtents) {
  const auto program = LoadFinished(R"(mesh @m = [0, 1]
host @p(%x: i64[i0, 3], %y: i64[i0, 3], %s: i64[1, 3], %ones: i64[1, i0]) {
  %c: i64[i0, 3] = alloc() {space=pool}
  launch(%x, %c) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[3*i0, 5], grid=3*i0, stream=0}
  communication(%c, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  library(%ones, %y, %s) {op=matmul, inputs=2, stream=0}
  return %y, %s
})");
  ASSERT_NE(program, nullptr);
  StridedProducts products;
  const auto params =
      Results({.program = program.get(), .num_ranks = 2, .symbols = {0}, .libraries = &products, .params = [](int64_t) {
                 return std::vector<Values>{{}, {}, {9, 9, 9}, {}};
               }});
  EXPECT_EQ(params[1][2], (Values{0, 0, 0}));
}

}  // namespace
}  // namespace hir::host
