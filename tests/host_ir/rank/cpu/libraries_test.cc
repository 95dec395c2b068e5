// Goal: a call that is queued on several streams at once, as a loop over streams does, works on the operands it was
// queued with each time. Method: one product, on two streams of a device with two threads, each with operands of its
// own.
#include "host_ir/rank/cpu/libraries.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "csrc/device/host/host_device.h"

namespace hir::rank {
namespace {

constexpr int64_t kSize = 8;

using Matrix = std::vector<float>;

device::Buffer BufferOf(Matrix& matrix) {
  return {reinterpret_cast<std::byte*>(matrix.data()), static_cast<int64_t>(matrix.size() * sizeof(float))};
}

// One lane of work: a stream, and a product of its own.
struct Lane {
  std::unique_ptr<device::Stream> stream;
  Matrix x, w = Matrix(kSize * kSize, 1.0F);
  std::vector<Matrix> results;
};

TEST(CpuLibraries, OneCallOnTwoStreamsAtOnce) {
  const auto device = *device::CreateHostDevice({.num_threads = 2});
  const host::LibraryTensor tensor = {.dtype = DType::kFloat32, .shape = {kSize, kSize}, .strides = {kSize, 1}};
  const auto libraries = MakeCpuLibraries(1);
  auto call = libraries->Make(host::ProductDesc{.op = "linear", .inputs = {tensor, tensor}, .output = tensor});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  std::vector<Lane> lanes(2);
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].stream = *device->CreateStream();
    lanes[i].x.assign(kSize * kSize, static_cast<float>(i + 1));
    lanes[i].results.assign(10000, Matrix(kSize * kSize, 0.0F));
  }
  for (size_t k = 0; k < lanes[0].results.size(); ++k) {
    for (Lane& lane : lanes) {
      const device::Buffer inputs[] = {BufferOf(lane.x), BufferOf(lane.w)};
      const device::Buffer outputs[] = {BufferOf(lane.results[k])};
      (*call)->Queue(inputs, outputs, *lane.stream);
    }
  }
  for (Lane& lane : lanes) ASSERT_TRUE(lane.stream->Synchronize(std::chrono::minutes(1)).ok());
  for (Lane& lane : lanes) {
    const Matrix want(kSize * kSize, lane.x[0] * kSize);
    int64_t wrong = 0;
    for (const Matrix& result : lane.results) wrong += result != want ? 1 : 0;
    EXPECT_EQ(wrong, 0) << "of " << lane.results.size();
  }
}

}  // namespace
}  // namespace hir::rank
