#include "csrc/device/cuda/driver.h"

#include <dlfcn.h>

#include "csrc/base/text.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

constexpr int kRequired = 0;

Status Missing(std::string_view library, std::string_view why) {
  return {Code::kFailedPrecondition, Cat("no GPU: ", library, ": ", why)};
}

}  // namespace

std::string VersionText(int version) { return Cat(version / 1000, ".", version % 1000 / 10); }

Code CodeOf(CUresult error) {
  switch (static_cast<int>(error)) {
    case CUDA_ERROR_OUT_OF_MEMORY: return Code::kResourceExhausted;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_FOUND: return Code::kInvalidArgument;
    case CUDA_ERROR_NOT_SUPPORTED: return Code::kUnimplemented;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_UNKNOWN: return Code::kUnavailable;
    default: return Code::kInternal;
  }
}

bool LosesContext(CUresult error) {
  switch (static_cast<int>(error)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: return true;
    default: return false;
  }
}

Result<std::shared_ptr<const Driver>> Driver::Load(std::string_view library) {
  const std::string name(library);
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Missing(library, Cat("the NVIDIA driver is not installed, or not visible here (", dlerror(), ")"));
  }
  const auto driver = std::make_shared<Driver>();
  const auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  if (version == nullptr || version(&driver->version_) != CUDA_SUCCESS) {
    return Missing(library, "it tells no version: it is no CUDA driver");
  }
  if (driver->version_ < kDriverVersionMin) {
    return Missing(library,
                   Cat("the driver is made for CUDA ", VersionText(driver->version_), "; CUDA ",
                       VersionText(kDriverVersionMin), " or newer is needed: install NVIDIA driver 525 or newer"));
  }
  HIR_TRY(driver->Find(handle, library));
  HIR_TRY(driver->Start(library));
  return std::shared_ptr<const Driver>(driver);
}

Status Driver::Find(void* library, std::string_view name) {
  using GetAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get = reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) return Missing(name, "it has no cuGetProcAddress");
  const auto find = [&](const char* symbol, int need, void** address) -> Status {
    CUdriverProcAddressQueryResult found;
    const int wanted = need == kRequired ? kDriverVersionMin : need;
    const bool ok =
        version_ >= wanted && get(symbol, address, wanted, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS;
    if (!ok) *address = nullptr;
    if (*address == nullptr && need == kRequired) {
      return Missing(name, Cat("the driver, made for CUDA ", VersionText(version_), ", has no ", symbol));
    }
    return {};
  };
#define CUDA_FUNCTION(Name, parameters, need) HIR_TRY(find("cu" #Name, need, reinterpret_cast<void**>(&Name)));
#include "csrc/device/cuda/functions.def"
  return {};
}

Status Driver::Start(std::string_view name) const {
  const CUresult result = Init(0);
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_NO_DEVICE) return Missing(name, "the driver sees no GPU");
  if (result == CUDA_ERROR_STUB_LIBRARY) return Missing(name, "it is the toolkit's stub, not a driver");
  return {Code::kUnavailable, Cat("no GPU: ", name, ": cuInit: ", Describe(result))};
}

std::string Driver::Describe(CUresult error) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) {
    return Cat("CUDA error ", static_cast<int>(error));
  }
  if (GetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return Cat(name, " (", text, ")");
}

Status Driver::Check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return {};
  return {CodeOf(result),
          Cat(call, ": ", Describe(result),
              LosesContext(result) ? "; the GPU's context is lost: only a new process can use it" : "")};
}

}  // namespace hir::device::cuda
