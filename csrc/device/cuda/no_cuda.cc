// Built without CUDA's headers: there are no GPUs, so nothing that takes what a GPU made is reached.
#include "csrc/base/check.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::device {
namespace {

Status NotBuilt() {
  return Unimplemented("built without CUDA: configure where cuda.h is (HIR_WITH_CUDA=ON says what is missing)");
}

}  // namespace

Result<int64_t> NumCudaDevices(std::string_view) { return NotBuilt(); }
Result<CudaFacts> CudaFactsOf(int64_t, std::string_view) { return NotBuilt(); }
Result<CudaFacts> FactsOf(Device&) { return NotBuilt(); }
Result<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions&) { return NotBuilt(); }
Status CopyFromHost(Device&, Buffer, std::span<const std::byte>) { return NotBuilt(); }
Status CopyToHost(Device&, std::span<std::byte>, Buffer) { return NotBuilt(); }
Result<std::unique_ptr<Allocation>> MapHostMemory(Device&, std::span<std::byte>) { return NotBuilt(); }
Result<std::unique_ptr<Allocation>> AllocateHostMemory(Device&, int64_t) { return NotBuilt(); }
Result<std::unique_ptr<KernelSource>> LoadCubin(Device&, std::string_view, std::span<const CudaKernelInfo>) {
  return NotBuilt();
}
CudaKernelFacts FactsOf(const Kernel&) {
  HIR_CHECK(false);
  return {};
}
Result<std::unique_ptr<Event>> CreateTimedEvent(Device&) { return NotBuilt(); }
Result<double> ElapsedMs(Event&, Event&) { return NotBuilt(); }
void* NativeStream(Stream&) {
  HIR_CHECK(false);
  return nullptr;
}
int64_t WorkMark(Stream&) {
  HIR_CHECK(false);
  return 0;
}
bool IsCapturing(Stream&) {
  HIR_CHECK(false);
  return false;
}
Completion BeginWork(Stream&) {
  HIR_CHECK(false);
  return {};
}
void* NativeContext(Device&) {
  HIR_CHECK(false);
  return nullptr;
}
void MakeCurrent(Device&) { HIR_CHECK(false); }
Result<SharedMemory> AllocateShared(Device&, int64_t) { return NotBuilt(); }
Result<std::unique_ptr<Allocation>> MapShared(Device&, int, int64_t) { return NotBuilt(); }
Status CopyShared(Device&, Buffer, int, bool) { return NotBuilt(); }
void TakeWord(Stream&, Buffer) { HIR_CHECK(false); }

}  // namespace hir::device
