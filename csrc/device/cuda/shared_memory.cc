#include "csrc/device/cuda/shared_memory.h"

#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

constexpr CUmemAllocationHandleType kHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp Properties(const Context& context) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(context.ordinal());
  properties.requestedHandleTypes = kHandleType;
  return properties;
}

// Both sides map so many bytes for `bytes`.
Result<int64_t> RoundedBytes(const Context& context, int64_t bytes) {
  const CUmemAllocationProp properties = Properties(context);
  size_t granularity = 0;
  HIR_TRY(context.Check(
      context.driver().MemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  const auto grain = static_cast<int64_t>(granularity);
  return base::CeilDiv(bytes, grain) * grain;
}

// A mapping of physical memory, which lives as long as any mapping of it.
class Mapping final : public Allocation {
 public:
  Mapping(Context& context, Slab* slab, int64_t rounded, int64_t bytes)
      : context_(context), slab_(slab), rounded_(rounded), bytes_(bytes) {}
  ~Mapping() override {
    context_.Enter();
    if (mapped_) context_.driver().MemUnmap(address_, static_cast<size_t>(rounded_));
    if (address_ != 0) context_.driver().MemAddressFree(address_, static_cast<size_t>(rounded_));
    if (slab_ != nullptr) slab_->Discharge(rounded_);
  }
  Buffer buffer() const override { return {Pointer(address_), bytes_}; }

  Status Map(CUmemGenericAllocationHandle handle) {
    const Driver& driver = context_.driver();
    HIR_TRY(context_.Check(driver.MemAddressReserve(&address_, static_cast<size_t>(rounded_), 0, 0, 0),
                           "cuMemAddressReserve"));
    HIR_TRY(context_.Check(driver.MemMap(address_, static_cast<size_t>(rounded_), 0, handle, 0), "cuMemMap"));
    mapped_ = true;
    return SetAccess(context_, address_, rounded_);
  }

 private:
  Context& context_;
  Slab* const slab_;  // Which counts it; null: another device's memory.
  const int64_t rounded_, bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace

Status SetAccess(const Context& context, CUdeviceptr address, int64_t bytes) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = static_cast<int>(context.ordinal());
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return context.Check(context.driver().MemSetAccess(address, static_cast<size_t>(bytes), &access, 1),
                       "cuMemSetAccess");
}

Result<SharedMemory> AllocateShared(Context& context, Slab& slab, int64_t bytes) {
  context.Enter();
  if (context.Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
    return Unimplemented(Cat(context.name(), ": this driver shares no memory by file descriptors"));
  }
  HIR_ASSIGN(const int64_t rounded, RoundedBytes(context, bytes));
  HIR_TRY(slab.Charge(rounded));
  auto mapping = std::make_unique<Mapping>(context, &slab, rounded, bytes);
  const Driver& driver = context.driver();
  const CUmemAllocationProp properties = Properties(context);
  CUmemGenericAllocationHandle handle = 0;
  HIR_TRY(context.Check(driver.MemCreate(&handle, static_cast<size_t>(rounded), &properties, 0), "cuMemCreate"));
  SharedMemory shared;
  Status status = mapping->Map(handle);
  if (status.ok()) {
    int fd = -1;
    status =
        context.Check(driver.MemExportToShareableHandle(&fd, handle, kHandleType, 0), "cuMemExportToShareableHandle");
    shared.fd = base::Fd(fd);
  }
  driver.MemRelease(handle);  // The mapping and the descriptor keep the memory.
  HIR_TRY(status);
  shared.memory = std::move(mapping);
  return shared;
}

Result<std::unique_ptr<Allocation>> MapShared(Context& context, int fd, int64_t bytes) {
  context.Enter();
  HIR_ASSIGN(const int64_t rounded, RoundedBytes(context, bytes));
  auto mapping = std::make_unique<Mapping>(context, nullptr, rounded, bytes);
  const Driver& driver = context.driver();
  CUmemGenericAllocationHandle handle = 0;
  HIR_TRY(context.Check(driver.MemImportFromShareableHandle(
                            &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),  // NOLINT: as it wants it.
                            kHandleType),
                        "cuMemImportFromShareableHandle"));
  const Status status = mapping->Map(handle);
  driver.MemRelease(handle);
  HIR_TRY(status);
  return std::unique_ptr<Allocation>(std::move(mapping));
}

}  // namespace hir::device::cuda
