// The suite of all devices on a GPU of this machine; skipped, with the reason, where there is none.
#include "csrc/device/cuda/cuda_device.h"
#include "tests/csrc/device/stream_suite.h"

namespace hir::device {
namespace {

std::vector<std::byte> Read(Device& device, Buffer buffer) {
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.bytes));
  EXPECT_TRUE(CopyToHost(device, bytes, buffer).ok());
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(Cuda, StreamSuite, testing::Values(DeviceCase{"Gpu", [] { return OpenCudaDevice({}); }, Read}),
                         CaseName);

}  // namespace
}  // namespace hir::device
