// Goal: sums of rows by index on a GPU are those of CPUs, bit by bit, also when calls share a workspace. Method: random
// sums (index_sum_cases.h), each queued twice.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/cuda_libraries.h"
#include "tests/csrc/codegen/gpu/index_sum_cases.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

host::LibraryTensor TensorOf(const library::Tensor& tensor) { return {tensor.dtype, tensor.shape, tensor.strides}; }

TEST(IndexSumsOnGpu, EqualTheCpus) {
  auto device = device::OpenCudaDevice({});
  if (!device.ok()) GTEST_SKIP() << "no GPU to test on: " << device.status().ToString();
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  const auto libraries = MakeCudaLibraries(**device);
  testing::CheckIndexSums([&](const library::IndexSumDesc& desc, const testing::Bytes& updates,
                              const testing::Bytes& indices, testing::Bytes& output) {
    std::vector<std::unique_ptr<device::Allocation>> memory;
    for (const testing::Bytes* bytes : {&updates, &indices, const_cast<const testing::Bytes*>(&output)}) {
      auto made = (*device)->Allocate(static_cast<int64_t>(bytes->size()));
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      memory.push_back(std::move(*made));
      ASSERT_TRUE(device::CopyFromHost(**device, memory.back()->buffer(), *bytes).ok());
    }
    auto call = libraries->Make(
        host::IndexSumDesc{TensorOf(desc.updates), TensorOf(desc.indices), TensorOf(desc.output), desc.axis});
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    const device::Buffer inputs[] = {memory[0]->buffer(), memory[1]->buffer()};
    const device::Buffer outputs[] = {memory[2]->buffer()};
    for (int k = 0; k < 2; ++k) (*call)->Queue(inputs, outputs, **stream);
    const Status done = (*stream)->Synchronize(base::Nanos(std::chrono::seconds(30)));
    ASSERT_TRUE(done.ok()) << done.ToString();
    ASSERT_TRUE(device::CopyToHost(**device, output, memory[2]->buffer()).ok());
  });
}

}  // namespace
}  // namespace hir::rank
