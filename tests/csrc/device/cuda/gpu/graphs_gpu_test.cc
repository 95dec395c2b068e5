// Captures, updates and replays on a GPU of this machine, and what its driver says of kernels; skipped, with the
// reason, where there is none. The kernels are PTX, which the driver compiles: no compiler is needed.
#include <gtest/gtest.h>

#include <chrono>

#include "csrc/base/text.h"
#include "tests/csrc/device/cuda/graph_suite.h"

namespace hir::device {
namespace {

// Thread 0 of CTA 0 does it all.
std::string StepPtx(std::string_view name) {
  return base::Cat(".visible .entry ", name, R"((.param .align 8 .b8 args[16]) {
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d<6>;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  or.b32 %r0, %r0, %r1;
  setp.ne.u32 %p, %r0, 0;
  @%p bra done;
  ld.param.u64 %d0, [args];
  ld.param.u64 %d1, [args+8];
  mov.u32 %r2, %nctaid.x;
  mul.wide.u32 %d2, %r2, 1000;
  ld.global.u64 %d3, [%d0];
  shl.b64 %d3, %d3, 1;
  add.u64 %d3, %d3, %d1;
  add.u64 %d3, %d3, %d2;
  st.global.u64 [%d0], %d3;
done:
  ret;
}
)");
}

std::string Ptx() {
  std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n" + StepPtx("step") + StepPtx("other");
  text.push_back('\0');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Cuda, GraphSuite, testing::Values(GraphCase{"Gpu", std::string(kCudaDriver), Ptx()}),
                         [](const auto& info) { return info.param.name; });

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenCudaDevice({});
    if (!opened.ok()) GTEST_SKIP() << "SKIPPED, no device: " << opened.status().ToString();
    device_ = *std::move(opened);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(Gpu, TellsFactsAndKernels) {
  const CudaFacts facts = *FactsOf(*device_);
  std::printf(
      "%s: sm_%d, %d multiprocessors, %lld bytes shared, L2 %lld bytes, memory %lld bytes, CUDA "
      "%d\n",
      facts.model.c_str(), facts.architecture, facts.multiprocessors,
      static_cast<long long>(facts.shared_bytes_per_block), static_cast<long long>(facts.l2_bytes),
      static_cast<long long>(facts.memory_bytes), facts.driver_version);
  EXPECT_GE(facts.architecture, 70);
  EXPECT_GT(facts.multiprocessors, 0);
  const CudaKernelInfo good[] = {{.name = "step", .threads = 32, .num_slots = 2}};
  const auto source = LoadCubin(*device_, Ptx(), good);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const CudaKernelFacts kernel = FactsOf(**(*source)->Get("step"));
  EXPECT_GT(kernel.registers, 0);
  EXPECT_EQ(kernel.local_bytes, 0);
  EXPECT_GT(kernel.ctas_that_fit, 0);
  const CudaKernelInfo bad[] = {{.name = "step", .threads = 32, .num_slots = 3}};
  const Status refused = LoadCubin(*device_, Ptx(), bad).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.ToString();
  EXPECT_EQ(LoadCubin(*device_, "neither cubin nor PTX", {}).status().code(), Code::kInvalidArgument);
}

TEST_F(Gpu, CopiesAndTimes) {
  constexpr int64_t kBytes = (int64_t{64} << 20) + 5;
  std::vector<std::byte> sent(kBytes), got(kBytes);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  const auto a = *device_->Allocate(kBytes), b = *device_->Allocate(kBytes);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(CopyFromHost(*device_, a->buffer(), sent).ok());
  const std::chrono::duration<double> up = std::chrono::steady_clock::now() - begin;
  const auto stream = *device_->CreateStream();
  const auto from = *CreateTimedEvent(*device_), to = *CreateTimedEvent(*device_);
  stream->Record(*from);
  stream->Copy(b->buffer(), a->buffer());
  stream->Record(*to);
  ASSERT_TRUE(stream->Synchronize(std::chrono::seconds(10)).ok());
  const Result<double> ms = ElapsedMs(*from, *to);
  ASSERT_TRUE(ms.ok()) << ms.status().ToString();
  EXPECT_GT(*ms, 0);
  ASSERT_TRUE(CopyToHost(*device_, got, b->buffer()).ok());
  EXPECT_TRUE(sent == got);
  std::printf("upload %.1f GB/s, copy on the device %.0f GB/s\n", kBytes / up.count() / 1e9, 2 * kBytes / *ms / 1e6);
}

TEST_F(Gpu, SharedMemoryIsMappedASecondTime) {
  const SharedMemory shared = *AllocateShared(*device_, 1000);
  const auto stream = *device_->CreateStream();
  const auto mapped = MapShared(*device_, shared.fd.get(), 1000);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  stream->Fill((*mapped)->buffer(), 0x5a, 1);
  ASSERT_TRUE(stream->Synchronize(std::chrono::seconds(10)).ok());
  std::vector<std::byte> got(1000);
  ASSERT_TRUE(CopyToHost(*device_, got, shared.memory->buffer()).ok());
  EXPECT_EQ(got, std::vector<std::byte>(1000, std::byte{0x5a}));
}

}  // namespace
}  // namespace hir::device
