// Goal: products of groups of rows are right on a GPU, for every element type, stride and order of ends. Method: random
// products (grouped_product_cases.h), each queued twice.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/cuda_libraries.h"
#include "tests/csrc/codegen/gpu/grouped_product_cases.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

host::LibraryTensor TensorOf(const library::Tensor& tensor) { return {tensor.dtype, tensor.shape, tensor.strides}; }

TEST(GroupedProductsOnGpu, AreRight) {
  auto device = device::OpenCudaDevice({});
  if (!device.ok()) GTEST_SKIP() << "no GPU to test on: " << device.status().ToString();
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  const auto libraries = MakeCudaLibraries(**device);
  testing::CheckGroupedProducts(
      120, 400, 150,
      [&](const library::GroupedProductDesc& desc, const testing::Bytes& a, const testing::Bytes& b,
          const testing::Bytes& ends, testing::Bytes& output) {
        std::vector<std::unique_ptr<device::Allocation>> memory;
        for (const testing::Bytes* bytes : {&a, &b, &ends, const_cast<const testing::Bytes*>(&output)}) {
          auto made = (*device)->Allocate(static_cast<int64_t>(bytes->size()));
          ASSERT_TRUE(made.ok()) << made.status().ToString();
          memory.push_back(std::move(*made));
          ASSERT_TRUE(device::CopyFromHost(**device, memory.back()->buffer(), *bytes).ok());
        }
        auto call = libraries->Make(host::GroupedProductDesc{desc.outer, TensorOf(desc.a), TensorOf(desc.b),
                                                             TensorOf(desc.ends), TensorOf(desc.output), desc.first});
        ASSERT_TRUE(call.ok()) << call.status().ToString();
        const device::Buffer inputs[] = {memory[0]->buffer(), memory[1]->buffer(), memory[2]->buffer()};
        const device::Buffer outputs[] = {memory[3]->buffer()};
        for (int times = 0; times < 2; ++times) (*call)->Queue(inputs, outputs, **stream);
        const Status done = (*stream)->Synchronize(base::Nanos(std::chrono::seconds(30)));
        ASSERT_TRUE(done.ok()) << done.ToString();
        ASSERT_TRUE(device::CopyToHost(**device, output, memory[3]->buffer()).ok());
      });
}

}  // namespace
}  // namespace hir::rank
