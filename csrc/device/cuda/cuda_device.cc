#include "csrc/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_marks.h"
#include "csrc/device/cuda/cuda_stream.h"
#include "csrc/device/cuda/graph_update.h"
#include "csrc/device/cuda/shared_memory.h"
#include "csrc/device/cuda/slab.h"
#include "csrc/device/cuda/staging.h"

namespace hir::device {
namespace cuda {
namespace {

using base::Cat;

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<Context> context, std::unique_ptr<Slab> slab, int64_t streams_max)
      : context_(std::move(context)),
        slab_(std::move(slab)),
        staging_(*context_),
        words_(*context_, streams_max),
        streams_max_(streams_max) {}

  std::string_view name() const override { return context_->name(); }
  int64_t allocated_bytes() const override { return slab_->in_use(); }
  int64_t memory_bytes_max() const override { return slab_->bytes_max(); }

  Result<std::unique_ptr<Stream>> CreateStream() override { return CreateStreamOf(0); }
  Result<std::unique_ptr<Stream>> CreateUrgentStream() override;
  Result<std::unique_ptr<Event>> CreateEvent() override {
    context_->Enter();
    HIR_ASSIGN(const CUevent event, context_->TakeEvent());
    return std::make_unique<CudaEvent>(*context_, event, false);
  }
  Result<std::unique_ptr<Event>> CreateTimedEvent();
  Result<std::unique_ptr<Marks>> CreateMarks() override { return CudaMarks::Create(*this); }
  Result<std::unique_ptr<Allocation>> Allocate(int64_t bytes) override { return slab_->Allocate(bytes); }

  bool can_capture() const override { return true; }
  Status BeginCapture(Stream& origin) override;
  void CaptureFixed(bool fixed) override {
    if (capture_ != nullptr) capture_->set_fixed(fixed);
  }
  Result<std::unique_ptr<Graph>> EndCapture(Stream& origin) override;

  Context& context() { return *context_; }
  Slab& slab() { return *slab_; }
  Staging& staging() { return staging_; }

 private:
  Result<std::unique_ptr<Stream>> CreateStreamOf(int priority);
  const std::unique_ptr<Context> context_;
  const std::unique_ptr<Slab> slab_;
  Staging staging_;
  CompletionWords words_;
  const int64_t streams_max_;
  std::unique_ptr<Capture> capture_;  // The queueing thread's.
  int64_t captures_ = 0;
};

Result<std::unique_ptr<Stream>> CudaDevice::CreateUrgentStream() {
  context_->Enter();
  int least = 0, greatest = 0;
  HIR_TRY(
      context_->Check(context_->driver().CtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange"));
  return CreateStreamOf(greatest);
}

Result<std::unique_ptr<Stream>> CudaDevice::CreateStreamOf(int priority) {
  context_->Enter();
  HIR_ASSIGN(CompletionWord* const word, words_.TakeWord());
  if (word == nullptr) {
    return ResourceExhausted(Cat(name(), ": limit streams_max: ", streams_max_, " streams exist"));
  }
  CUstream stream = nullptr;
  const CUresult result = context_->driver().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority);
  if (result != CUDA_SUCCESS) {
    words_.GiveWord(*word);
    return context_->Check(result, "cuStreamCreateWithPriority");
  }
  return std::make_unique<CudaStream>(*context_, words_, stream, *word, Cat(name(), " stream ", word->index));
}

Result<std::unique_ptr<Event>> CudaDevice::CreateTimedEvent() {
  context_->Enter();
  CUevent event = nullptr;
  HIR_TRY(context_->Check(context_->driver().EventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
  return std::make_unique<CudaEvent>(*context_, event, true);
}

Status CudaDevice::BeginCapture(Stream& origin) {
  if (capture_ != nullptr) return {Code::kFailedPrecondition, Cat(name(), ": a capture is under way")};
  auto capture = std::make_unique<Capture>(*context_, static_cast<CudaStream&>(origin), ++captures_);
  HIR_TRY(capture->Begin());
  capture_ = std::move(capture);
  return {};
}

Result<std::unique_ptr<Graph>> CudaDevice::EndCapture(Stream& origin) {
  if (capture_ == nullptr || &capture_->origin() != &origin) {
    return Status(Code::kFailedPrecondition, Cat(name(), ": no capture began on this stream"));
  }
  const auto capture = std::exchange(capture_, nullptr);
  return capture->End();
}

CudaDevice& Of(Device& device) { return static_cast<CudaDevice&>(device); }

}  // namespace
}  // namespace cuda

Result<int64_t> NumCudaDevices(std::string_view driver) {
  HIR_ASSIGN(const auto loaded, cuda::Driver::Load(driver));
  int count = 0;
  HIR_TRY(loaded->Check(loaded->DeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

Result<CudaFacts> CudaFactsOf(int64_t ordinal, std::string_view driver) {
  HIR_ASSIGN(const auto loaded, cuda::Driver::Load(driver));
  CUdevice device = 0;
  return cuda::ReadFacts(*loaded, ordinal, &device);
}

Result<CudaFacts> FactsOf(Device& device) { return cuda::Of(device).context().facts(); }

Result<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options) {
  HIR_ASSIGN(auto context, cuda::Context::Open(options.driver, options.ordinal));
  HIR_ASSIGN(auto slab, cuda::Slab::Create(*context, options.memory_bytes_max));
  return std::make_unique<cuda::CudaDevice>(std::move(context), std::move(slab), options.streams_max);
}

Status CopyFromHost(Device& device, Buffer dst, std::span<const std::byte> src) {
  return cuda::Of(device).staging().FromHost(dst, src);
}
Status CopyToHost(Device& device, std::span<std::byte> dst, Buffer src) {
  return cuda::Of(device).staging().ToHost(dst, src);
}
Result<std::unique_ptr<Allocation>> MapHostMemory(Device& device, std::span<std::byte> memory) {
  return cuda::MapPinned(cuda::Of(device).context(), memory);
}
Result<std::unique_ptr<Allocation>> AllocateHostMemory(Device& device, int64_t bytes) {
  return cuda::AllocatePinned(cuda::Of(device).context(), bytes);
}

Result<std::unique_ptr<KernelSource>> LoadCubin(Device& device, std::string_view cubin,
                                                std::span<const CudaKernelInfo> kernels) {
  return cuda::LoadCubin(cuda::Of(device).context(), cubin, kernels);
}
CudaKernelFacts FactsOf(const Kernel& kernel) { return static_cast<const cuda::CudaKernel&>(kernel).facts(); }

Result<std::unique_ptr<Event>> CreateTimedEvent(Device& device) { return cuda::Of(device).CreateTimedEvent(); }

Result<double> ElapsedMs(Event& from, Event& to) {
  auto& begin = static_cast<cuda::CudaEvent&>(from);
  auto& end = static_cast<cuda::CudaEvent&>(to);
  const auto refuse = [](std::string_view why) { return Status(Code::kFailedPrecondition, std::string(why)); };
  if (!begin.timed() || !end.timed()) return refuse("an event keeps no time: make it by CreateTimedEvent");
  if (!begin.recorded() || !end.recorded()) return refuse("an event was not recorded, or in a capture only");
  if (!begin.Fired() || !end.Fired()) return refuse("an event has not fired: synchronize it first");
  float ms = 0;
  const auto& context = begin.context();
  HIR_TRY(context.Check(context.driver().EventElapsedTime(&ms, begin.handle(), end.handle()), "cuEventElapsedTime"));
  return static_cast<double>(ms);
}

void* NativeStream(Stream& stream) { return static_cast<cuda::CudaStream&>(stream).NativeHandle(); }
int64_t WorkMark(Stream& stream) { return static_cast<cuda::CudaStream&>(stream).mark(); }
bool IsCapturing(Stream& stream) { return static_cast<cuda::CudaStream&>(stream).capture() != nullptr; }
Completion BeginWork(Stream& stream) { return static_cast<cuda::CudaStream&>(stream).BeginWork(); }
void* NativeContext(Device& device) { return cuda::Of(device).context().handle(); }
void MakeCurrent(Device& device) { cuda::Of(device).context().Enter(); }

Result<SharedMemory> AllocateShared(Device& device, int64_t bytes) {
  return cuda::AllocateShared(cuda::Of(device).context(), cuda::Of(device).slab(), bytes);
}
Result<std::unique_ptr<Allocation>> MapShared(Device& device, int fd, int64_t bytes) {
  return cuda::MapShared(cuda::Of(device).context(), fd, bytes);
}
Status CopyShared(Device& device, Buffer buffer, int fd, bool to_shared) {
  const auto mapped = MapShared(device, fd, buffer.bytes);
  if (!mapped.ok()) {
    return InvalidArgument(base::Cat(device.name(), ": no memory of a GPU of ", buffer.bytes,
                                     " bytes that it can reach: ", mapped.status().message()));
  }
  const Buffer shared = (*mapped)->buffer();
  return cuda::Of(device).staging().OnDevice(to_shared ? shared : buffer, to_shared ? buffer : shared);
}
void TakeWord(Stream& stream, Buffer word) { static_cast<cuda::CudaStream&>(stream).TakeWord(word); }

}  // namespace hir::device
