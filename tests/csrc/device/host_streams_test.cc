// The host device against the suite of all devices.
#include "csrc/device/host/host_device.h"
#include "tests/csrc/device/stream_suite.h"

namespace hir::device {
namespace {

std::vector<std::byte> Read(Device&, Buffer buffer) { return {buffer.data, buffer.data + buffer.bytes}; }

INSTANTIATE_TEST_SUITE_P(
    Host, StreamSuite,
    testing::Values(DeviceCase{"OneThread", [] { return CreateHostDevice({.num_threads = 1}); }, Read},
                    DeviceCase{"ThreeThreads", [] { return CreateHostDevice({.num_threads = 3}); }, Read}),
    CaseName);

}  // namespace
}  // namespace hir::device
