// The evaluator's stages on a device that writes down what it is asked: what each stage refuses,
// what a run queues, that it allocates nothing, and where the pool puts what.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "host_ir/eval/evaluator.h"
#include "tests/host_ir/null_device.h"

namespace {
int64_t allocations = 0;
}  // namespace

// Counts every allocation of this program.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hir::host {
namespace {

class EvaluatorStages : public testing::Test {
 protected:
  EvaluatorStages() : device_(log_), communicator_(log_, 2), pool_(device_) {
    log_.calls.reserve(1 << 16);
    for (int i = 0; i < 4; ++i) {
      streams_.push_back(*device_.CreateStream());
      pointers_.push_back(streams_.back().get());
    }
    options_ = {.device = &device_,
                .streams = pointers_,
                .kernels = &kernels_,
                .libraries = &library_,
                .communicator = &communicator_,
                .pool = &pool_};
  }

  Result<std::unique_ptr<Evaluator>> Prepare(std::string_view text) {
    HIR_ASSIGN(program_, HostProgram::Load(text));
    return Evaluator::Prepare(*program_, options_);
  }
  std::unique_ptr<Evaluator> Prepared(std::string_view text) {
    auto evaluator = Prepare(text);
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().ToString();
    return evaluator.ok() ? std::move(*evaluator) : nullptr;
  }
  Argument Memory(int64_t bytes) {
    memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
    return {.buffer = {memory_.back().get(), bytes}};
  }
  const NullStream& stream(size_t i) const { return static_cast<const NullStream&>(*streams_[i]); }

  CallLog log_;
  NullDevice device_;
  NullCommunicator communicator_;
  NullKernels kernels_;
  NullLibrary library_;
  Pool pool_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::vector<device::Stream*> pointers_;
  EvaluatorOptions options_;
  std::unique_ptr<HostProgram> program_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

constexpr std::string_view kLaunch = R"(host @p(%x: f32[i0], %y: f32[i0], %s: f64) {
  launch(%x, %y, %s) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[i0, 2*i0], grid=ceildiv(i0, 4), stream=0}
  return %y
})";

TEST_F(EvaluatorStages, LaunchArgumentsInOrder) {
  const auto evaluator = Prepared(kLaunch);
  Binding binding;
  Argument x = Memory(40), y = Memory(40);
  ASSERT_TRUE(
      evaluator->Bind(std::vector<Argument>{x, y, {.scalar_bits = 77}}, std::vector<int64_t>{10}, &binding).ok());
  ASSERT_TRUE(evaluator->Run(binding, {}).ok());
  EXPECT_EQ(log_.calls, "L");
  const std::vector<int64_t> want = {reinterpret_cast<int64_t>(x.buffer.data), reinterpret_cast<int64_t>(y.buffer.data),
                                     10, 20, 77};
  EXPECT_EQ(std::vector<int64_t>(stream(0).last_args.begin(), stream(0).last_args.end()), want);
  EXPECT_EQ(stream(0).last_grid, 3);
}

TEST_F(EvaluatorStages, BindRefuses) {
  const auto evaluator = Prepared(kLaunch);
  Binding binding;
  const Argument x = Memory(40), y = Memory(40), s = {};
  const auto bind = [&](std::vector<Argument> arguments, std::vector<int64_t> symbols) {
    return evaluator->Bind(arguments, symbols, &binding).ToString();
  };
  EXPECT_EQ(bind({x, y}, {10}), "INVALID_ARGUMENT: the program has 3 parameters, got 2");
  EXPECT_EQ(bind({x, y, s}, {}), "INVALID_ARGUMENT: the program has 1 symbols, got 0 values");
  EXPECT_EQ(bind({x, y, s}, {-1}), "INVALID_ARGUMENT: i0 is -1; extents are at least 0");
  EXPECT_EQ(bind({x, y, s}, {11}), "INVALID_ARGUMENT: %x needs 44 bytes, got 40");
  EXPECT_EQ(bind({x, y, s}, {INT64_MAX}),
            "INVALID_ARGUMENT: an extent of the program overflows 64 bits at these sizes");
  EXPECT_EQ(bind({x, y, s}, {INT64_MAX / 2}), "INVALID_ARGUMENT: %x has no size that fits 64 bits");
  EXPECT_EQ(bind({x, x, s}, {10}), "INVALID_ARGUMENT: %y, which the program writes, overlaps %x");
  EXPECT_EQ(bind({x, y, s}, {10}), "OK");
}

// Two inputs, two outputs, the second in the memory of the second input or in its own.
TEST_F(EvaluatorStages, BindFindsEveryOverlapOfWhatIsWritten) {
  const auto evaluator = Prepared(R"(host @p(%a: f32[10], %b: f32[10], %y: f32[10], %z: f32[10]) {
  launch(%a, %b, %y, %z) {kernel="k", inputs=2, outputs=2, workspaces=0, extents=[], grid=1, stream=0}
  return %y, %z alias %b
})");
  Binding binding;
  const Argument memory = Memory(400);
  const auto at = [&](int64_t offset) {
    Argument argument = memory;
    argument.buffer = memory.buffer.Slice(offset, 40);
    return argument;
  };
  base::Prng prng(20261127);
  for (int round = 0; round < 2000; ++round) {
    std::array<int64_t, 4> offsets = {};
    for (int64_t& offset : offsets) offset = 4 * prng.Below(20);
    if (prng.Below(3) == 0) offsets[3] = offsets[1];
    bool is_sound = true;
    for (size_t written : {2, 3}) {
      for (size_t other = 0; other < 4; ++other) {
        const bool in_place = written == 3 && other == 1 && offsets[1] == offsets[3];
        if (other != written && !in_place) is_sound &= std::abs(offsets[written] - offsets[other]) >= 40;
      }
    }
    const Status bound = evaluator->Bind(
        std::vector<Argument>{at(offsets[0]), at(offsets[1]), at(offsets[2]), at(offsets[3])}, {}, &binding);
    EXPECT_EQ(bound.ok(), is_sound) << base::Join(offsets, ", ") << ": " << bound.ToString();
  }
}

TEST_F(EvaluatorStages, PrepareRefuses) {
  const auto status = [&](std::string_view text) { return Prepare(text).status().ToString(); };
  EXPECT_EQ(status(R"(host @p(%x: f32[1], %y: f32[1]) {
  launch(%x, %y) {kernel="missing", inputs=1, outputs=1, workspaces=0, extents=[], grid=1, stream=0}
  return %y
})"),
            "NOT_FOUND: no kernel missing");
  EXPECT_EQ(status(R"(host @p(%y: f32[1]) {
  fill(%y) {value=0.0, stream=6}
  return %y
})"),
            "RESOURCE_EXHAUSTED: program @p uses 7 streams; this rank has 4");
  EXPECT_EQ(status(R"(host @p(%y: i32[1]) {
  fill(%y) {value=3e9, stream=0}
  return %y
})"),
            "INVALID_ARGUMENT: fill: value is 3e+09, which i32 does not hold");
  options_.libraries = nullptr;
  EXPECT_EQ(status(R"(host @p(%x: f32[2, 2], %y: f32[2, 2]) {
  library(%x, %x, %y) {op=matmul, inputs=2, stream=0}
  return %y
})"),
            "UNIMPLEMENTED: this rank has no library for matmul");
  options_.communicator = nullptr;
  EXPECT_EQ(status(R"(mesh @m = [0, 1]
host @p(%x: f32[2], %y: f32[2]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=3}
  return %y
})"),
            "UNIMPLEMENTED: allreduce #3: this rank has no communicator");
}

TEST_F(EvaluatorStages, SlicesAreCheckedWhenSizesAreKnown) {
  const auto evaluator = Prepared(R"(host @p(%x: f32[i0], %y: f32[4]) {
  %v: f32[4] = view_slice(%x) {axis=0, from=2, to=6}
  launch(%v, %y) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=4, stream=0}
  for() {begin=0, end=i1, step=1} { |%i: index|
    %w: f32[4] = view_slice(%x) {axis=0, from=%i, to=%i + 4}
    launch(%w, %y) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=4, stream=0}
  }
  return %y
})");
  Binding binding;
  const std::vector<Argument> arguments = {Memory(64), Memory(16)};
  EXPECT_EQ(evaluator->Bind(arguments, std::vector<int64_t>{5, 1}, &binding).ToString(),
            "INVALID_ARGUMENT: program @p: view_slice %x: [2, 6) is not inside [0, 5)");
  ASSERT_TRUE(evaluator->Bind(arguments, std::vector<int64_t>{6, 4}, &binding).ok());
  EXPECT_EQ(evaluator->Run(binding, {}).ToString(),
            "INVALID_ARGUMENT: program @p: view_slice %x: [3, 7) is not inside [0, 6)");
  EXPECT_EQ(log_.calls, "LLLL");
}

TEST_F(EvaluatorStages, PostErrorsNameTheOpAndTheRunIsJoined) {
  const auto evaluator = Prepared(R"(mesh @m = [0, 1]
host @p(%x: f32[2], %y: f32[2]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=1, seq=3}
  fill(%x) {value=1.0, stream=1}
  return %y, %x alias %x
})");
  Binding binding;
  ASSERT_TRUE(evaluator->Bind(std::vector<Argument>{Memory(8), Memory(8)}, {}, &binding).ok());
  communicator_.fail = Unavailable("rank 1 died");
  EXPECT_EQ(evaluator->Run(binding, {.seq_base = 100}).ToString(),
            "UNAVAILABLE: program @p: allreduce #103 (%x -> %y): rank 1 died");
  EXPECT_EQ(log_.calls, "RWPRW");  // Fork, the post, join; not the fill.
}

TEST_F(EvaluatorStages, ProgressIsWrittenAroundPosts) {
  std::byte page[32] = {};
  options_.progress_page = {page, 32};
  const auto evaluator = Prepared(R"(mesh @m = [0, 1]
host @p(%x: f32[2], %y: f32[2], %z: f32[2]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  group() {
    communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}
    communication(%x, %z) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=2}
  }
  return %y, %z
})");
  Binding binding;
  ASSERT_TRUE(evaluator->Bind(std::vector<Argument>{Memory(8), Memory(8), Memory(8)}, {}, &binding).ok());
  ASSERT_TRUE(evaluator->Run(binding, {}).ok());
  EXPECT_EQ(log_.calls, "FPFFFPPFF");
}

TEST_F(EvaluatorStages, RunAllocatesNothing) {
  const auto evaluator = Prepared(R"(mesh @m = [0, 1]
host @p(%x: f32[i0, 4], %w: f32[4, 4], %y: f32[i0, 4]) {
  %c: f32[i0, 4] = alloc() {space=pool}
  %e: event[2] = event()
  library(%x, %w, %c) {op=matmul, inputs=2, stream=0}
  for() {begin=0, end=i0, step=1} { |%i: index|
    %cs: f32[4] = view_select(%c) {axis=0, index=%i}
    %ys: f32[4] = view_select(%y) {axis=0, index=%i}
    record(%e) {index=%i mod 2, stream=0}
    wait(%e) {index=%i mod 2, stream=1}
    launch(%cs, %ys) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[%i], grid=4, stream=1}
    communication(%ys, %ys) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=1, seq=0}
  }
  dealloc(%c)
  return %y
})");
  ASSERT_NE(evaluator, nullptr);
  Binding binding;
  const std::vector<Argument> arguments = {Memory(48), Memory(64), Memory(48)};
  const std::vector<int64_t> symbols = {3};
  ASSERT_TRUE(evaluator->Bind(arguments, symbols, &binding).ok());
  ASSERT_TRUE(evaluator->Run(binding, {}).ok());
  EXPECT_EQ(log_.calls, "RWMRWLPRWLPRWLPRW");
  ASSERT_EQ(library_.made.size(), 1u);
  const auto& made = std::get<ProductDesc>(library_.made[0]);
  EXPECT_EQ(made.inputs[0].shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(made.inputs[0].strides, (std::vector<int64_t>{4, 1}));
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(evaluator->Bind(arguments, symbols, &binding).ok());
    ASSERT_TRUE(evaluator->Run(binding, {.seq_base = i}).ok());
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(library_.made.size(), 1u);  // Made once for these sizes.
}

// A team of one rank needs no communicator, and nothing at all in place.
TEST_F(EvaluatorStages, ACommunicationWithOneselfIsACopy) {
  options_.communicator = nullptr;
  const auto evaluator = Prepared(R"(mesh @m = [0]
host @p(%x: f32[2], %y: f32[2]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  communication(%y, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}
  return %y
})");
  ASSERT_NE(evaluator, nullptr);
  Binding binding;
  ASSERT_TRUE(evaluator->Bind(std::vector<Argument>{Memory(8), Memory(8)}, {}, &binding).ok());
  ASSERT_TRUE(evaluator->Run(binding, {}).ok());
  EXPECT_EQ(log_.calls, "C");
}

TEST_F(EvaluatorStages, ThePoolReusesWhatIsOver) {
  // %b may take the place of %a, whose work is over when that of %b begins; %c is read at the same
  // time as %b is written.
  const auto evaluator = Prepared(R"(host @p(%x: f32[i0], %y: f32[i0]) {
  %a: f32[i0] = alloc() {space=pool}
  %c: f32[i0] = alloc() {space=pool}
  %b: f32[i0] = alloc() {space=pool}
  launch(%x, %a) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=i0, stream=0}
  launch(%a, %c) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=i0, stream=0}
  launch(%c, %b) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=i0, stream=0}
  launch(%b, %y) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=i0, stream=0}
  dealloc(%a)
  dealloc(%b)
  dealloc(%c)
  return %y
})");
  Binding binding;
  const std::vector<Argument> arguments = {Memory(4000), Memory(4000)};
  ASSERT_TRUE(evaluator->Bind(arguments, std::vector<int64_t>{1000}, &binding).ok());
  EXPECT_EQ(pool_.bytes(), 4032 + 4000);
  ASSERT_TRUE(evaluator->Bind(arguments, std::vector<int64_t>{10}, &binding).ok());
  EXPECT_EQ(pool_.bytes(), 4032 + 4000);  // Never smaller.
}

TEST_F(EvaluatorStages, ThePoolKeepsApartWhatIsNotOrdered) {
  const auto evaluator = Prepared(R"(host @p(%x: f32[8], %y: f32[8], %z: f32[8]) {
  %a: f32[8] = alloc() {space=pool}
  launch(%x, %a) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=8, stream=0}
  launch(%a, %y) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=8, stream=0}
  dealloc(%a)
  %b: f32[8] = alloc() {space=pool}
  launch(%x, %b) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=8, stream=1}
  launch(%b, %z) {kernel="k", inputs=1, outputs=1, workspaces=0, extents=[], grid=8, stream=1}
  dealloc(%b)
  return %y, %z
})");
  Binding binding;
  ASSERT_TRUE(evaluator->Bind(std::vector<Argument>{Memory(32), Memory(32), Memory(32)}, {}, &binding).ok());
  EXPECT_EQ(pool_.bytes(), 64 + 32);
}

// The goal is 3 us an op, the device's calls apart; what is measured is some nanoseconds.
TEST_F(EvaluatorStages, AHostOpCostsLittle) {
  std::string text = "host @p(%x: f32[i0], %y: f32[i0], %z: f32[i0]) {\n  %e: event[1] = event()\n";
  constexpr int kOps = 300;
  for (int i = 0; i < kOps / 3; ++i) {
    text +=
        "  launch(%x, %y) {kernel=\"k\", inputs=1, outputs=1, workspaces=0, extents=[i0], "
        "grid=ceildiv(i0, 64), stream=0}\n"
        "  record(%e) {index=0, stream=0}\n  wait(%e) {index=0, stream=1}\n";
  }
  const auto evaluator = Prepared(text + "  return %y\n}");
  log_.keep = false;
  Binding binding;
  const std::vector<Argument> arguments = {Memory(40), Memory(40), Memory(40)};
  ASSERT_TRUE(evaluator->Bind(arguments, std::vector<int64_t>{10}, &binding).ok());
  std::vector<double> times;
  for (int i = 0; i < 31; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(evaluator->Run(binding, {}).ok());
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / kOps);
  }
  std::sort(times.begin(), times.end());
  std::printf("us per host op: median %.4f, quartiles %.4f and %.4f\n", times[15], times[7], times[23]);
  EXPECT_LT(times[15], 3.0);
}

}  // namespace
}  // namespace hir::host
