#include "csrc/device/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "csrc/base/text.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

// A thread that sleeps takes some 50 us to wake: most waits end before.
constexpr base::Nanos kLookBeforeSleep = std::chrono::microseconds(200);
constexpr base::Nanos kSleepMax = std::chrono::microseconds(200);

}  // namespace

Result<CudaFacts> ReadFacts(const Driver& driver, int64_t ordinal, CUdevice* device) {
  int count = 0;
  HIR_TRY(driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return Status(Code::kNotFound, Cat("cuda:", ordinal, ": the driver shows ", count, count == 1 ? " GPU" : " GPUs",
                                       ", numbered from 0"));
  }
  CudaFacts facts;
  facts.driver_version = driver.version();
  char model[256] = {};
  size_t bytes = 0;
  const auto check = [&](CUresult result, std::string_view call) -> Status {
    if (result == CUDA_SUCCESS) return {};
    return {Code::kUnavailable, Cat("cuda:", ordinal, ": ", call, ": ", driver.Describe(result))};
  };
  HIR_TRY(check(driver.DeviceGet(device, static_cast<int>(ordinal)), "cuDeviceGet"));
  HIR_TRY(check(driver.DeviceGetName(model, sizeof(model) - 1, *device), "cuDeviceGetName"));
  HIR_TRY(check(driver.DeviceTotalMem(&bytes, *device), "cuDeviceTotalMem"));
  facts.model = model;
  CUuuid uuid = {};
  HIR_TRY(check(driver.DeviceGetUuid(&uuid, *device), "cuDeviceGetUuid"));
  facts.uuid.assign(uuid.bytes, sizeof(uuid.bytes));
  facts.memory_bytes = static_cast<int64_t>(bytes);
  const auto read = [&](CUdevice_attribute attribute, auto& value) -> Status {
    int number = 0;
    HIR_TRY(check(driver.DeviceGetAttribute(&number, attribute, *device), "cuDeviceGetAttribute"));
    value = number;
    return {};
  };
  int major = 0, minor = 0;
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor));
  facts.architecture = major * 10 + minor;
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, facts.multiprocessors));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, facts.threads_per_multiprocessor));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, facts.registers_per_multiprocessor));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, facts.shared_bytes_per_block));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, facts.shared_bytes_per_multiprocessor));
  HIR_TRY(read(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, facts.l2_bytes));
  return facts;
}

Result<std::unique_ptr<Context>> Context::Open(std::string_view driver, int64_t ordinal) {
  std::unique_ptr<Context> context(new Context);
  HIR_ASSIGN(context->driver_, Driver::Load(driver));
  context->ordinal_ = ordinal;
  context->name_ = Cat("cuda:", ordinal);
  HIR_ASSIGN(context->facts_, ReadFacts(*context->driver_, ordinal, &context->device_));
  const CUresult result = context->driver_->DevicePrimaryCtxRetain(&context->context_, context->device_);
  if (result != CUDA_SUCCESS) {
    context->context_ = nullptr;
    return Status(Code::kUnavailable, Cat(context->name_, " (", context->facts_.model, ") cannot be opened: ",
                                          context->driver_->Describe(result), "; other GPUs may work"));
  }
  context->Enter();
  return context;
}

Context::~Context() {
  if (context_ == nullptr) return;
  Enter();
  for (CUevent event : events_) driver_->EventDestroy(event);
  driver_->DevicePrimaryCtxRelease(device_);
}

void Context::Enter() const {
  CUcontext current = nullptr;
  if (driver_->CtxGetCurrent(&current) == CUDA_SUCCESS && current == context_) return;
  driver_->CtxSetCurrent(context_);  // Fails only when the context is lost; then the next call says so.
}

Status Context::Check(CUresult result, std::string_view call) const {
  return result == CUDA_SUCCESS ? Status() : driver_->Check(result, call).WithContext(name_);
}

int Context::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_->DeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

Result<CUevent> Context::TakeEvent() {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      CUevent event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  HIR_TRY(Check(driver_->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  return event;
}

void Context::GiveEvent(CUevent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

Status Context::Await(CUevent event, std::string_view who, base::Nanos timeout) const {
  const base::Clock& clock = base::Clock::Steady();
  const base::Nanos begin = clock.Now();
  base::Nanos sleep = std::chrono::microseconds(10);
  for (;;) {
    const CUresult result = driver_->EventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return driver_->Check(result, who);
    const base::Nanos waited = clock.Now() - begin;
    if (waited >= timeout) {
      return {Code::kDeadlineExceeded,
              Cat(who, ": its work goes on after ", std::chrono::duration<double>(timeout).count(), " s")};
    }
    if (waited < kLookBeforeSleep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min(sleep, timeout - waited));
      sleep = std::min(2 * sleep, kSleepMax);
    }
  }
}

}  // namespace hir::device::cuda
