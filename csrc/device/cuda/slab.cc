#include "csrc/device/cuda/slab.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/device/cuda/shared_memory.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

// What bulk copies, tensor maps and communication like best.
constexpr int64_t kGrainBytes = 512;
// Physical memory comes in parts of at least this many bytes: each costs some 100 us and a descriptor.
constexpr int64_t kPartBytesMin = int64_t{256} << 20;
constexpr std::string_view kRemedy = "; free tensors, run smaller sizes, or raise it (hostird --device-bytes-max)";

int64_t RoundUp(int64_t bytes, int64_t grain) { return base::CeilDiv(bytes, grain) * grain; }

}  // namespace

class SlabAllocation final : public Allocation {
 public:
  SlabAllocation(Slab& slab, int64_t offset, int64_t rounded, int64_t bytes)
      : slab_(slab), offset_(offset), rounded_(rounded), bytes_(bytes) {}
  ~SlabAllocation() override { slab_.Free(offset_, rounded_, bytes_); }
  Buffer buffer() const override { return {Pointer(slab_.base_) + offset_, bytes_}; }

 private:
  Slab& slab_;
  const int64_t offset_, rounded_, bytes_;
};

Result<std::unique_ptr<Slab>> Slab::Create(Context& context, int64_t bytes_max) {
  const Driver& driver = context.driver();
  std::unique_ptr<Slab> slab(new Slab(context));
  if (context.Attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    return Status(Code::kUnavailable, Cat(context.name(), " (", context.facts().model,
                                          ") has no virtual memory management, which hostir needs"));
  }
  size_t free = 0, total = 0, granularity = 0;
  HIR_TRY(context.Check(driver.MemGetInfo(&free, &total), "cuMemGetInfo"));
  slab->bytes_max_ = bytes_max > 0 ? bytes_max : static_cast<int64_t>(free / 10 * 9);
  CUmemAllocationProp& properties = slab->properties_;
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(context.ordinal());
  HIR_TRY(
      context.Check(driver.MemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                    "cuMemGetAllocationGranularity"));
  slab->granularity_ = static_cast<int64_t>(granularity);
  slab->reserved_ = RoundUp(std::max<int64_t>(slab->bytes_max_, 1), slab->granularity_);
  HIR_TRY(context.Check(driver.MemAddressReserve(&slab->base_, static_cast<size_t>(slab->reserved_), 0, 0, 0),
                        "cuMemAddressReserve"));
  return slab;
}

Slab::~Slab() {
  HIR_CHECK(in_use_ == 0);
  context_.Enter();
  const Driver& driver = context_.driver();
  for (const Part& part : parts_) {
    driver.MemUnmap(base_ + static_cast<CUdeviceptr>(part.offset), static_cast<size_t>(part.bytes));
    driver.MemRelease(part.handle);
  }
  if (base_ != 0) driver.MemAddressFree(base_, static_cast<size_t>(reserved_));
}

Status Slab::DoesNotFit(int64_t bytes, std::string_view why) const {
  return ResourceExhausted(Cat(context_.name(), ": limit device_bytes_max: ", bytes_max_, " bytes, ", in_use_.load(),
                               " in use, ", bytes, " asked for", why));
}

Result<std::unique_ptr<Allocation>> Slab::Allocate(int64_t bytes) {
  HIR_CHECK(bytes >= 0);
  std::lock_guard lock(mutex_);
  if (bytes > bytes_max_ - in_use_) return DoesNotFit(bytes, kRemedy);
  const int64_t rounded = RoundUp(bytes, kGrainBytes);
  std::optional<int64_t> offset = 0;
  if (rounded > 0) {
    offset = free_.Take(rounded);
    if (!offset) {
      HIR_TRY(GrowFor(rounded));
      offset = free_.Take(rounded);
    }
    if (!offset) {
      return DoesNotFit(bytes, Cat(": what is free is in pieces of at most ", free_.largest(), " bytes", kRemedy));
    }
  }
  in_use_ += bytes;
  return std::make_unique<SlabAllocation>(*this, *offset, rounded, bytes);
}

Status Slab::Charge(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > bytes_max_ - in_use_) return DoesNotFit(bytes, kRemedy);
  in_use_ += bytes;
  return {};
}

void Slab::Discharge(int64_t bytes) {
  std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

void Slab::Free(int64_t offset, int64_t rounded, int64_t bytes) {
  std::lock_guard lock(mutex_);
  in_use_ -= bytes;
  if (rounded > 0) free_.Add(offset, rounded);
}

// Maps another part behind the last, large enough for `bytes` together with what is free there. Does nothing
// when the range has no room: then what is free is in pieces.
Status Slab::GrowFor(int64_t bytes) {
  context_.Enter();
  const int64_t room = reserved_ - mapped_;
  const int64_t least = RoundUp(bytes - free_.BytesBefore(mapped_), granularity_);
  if (least > room) return {};
  const int64_t wanted = std::min(std::max(least, RoundUp(kPartBytesMin, granularity_)), room);
  Result<Part> part = MapPart(wanted);
  if (!part.ok() && part.status().code() == Code::kResourceExhausted && least < wanted) part = MapPart(least);
  if (!part.ok()) {
    if (part.status().code() != Code::kResourceExhausted) return part.status();
    return DoesNotFit(bytes, "; the GPU has no more free memory: others use it too");
  }
  parts_.push_back(*part);
  mapped_ += part->bytes;
  free_.Add(part->offset, part->bytes);
  return {};
}

Result<Slab::Part> Slab::MapPart(int64_t bytes) {
  const Driver& driver = context_.driver();
  Part part = {.offset = mapped_, .bytes = bytes, .handle = 0};
  const auto size = static_cast<size_t>(bytes);
  const CUdeviceptr address = base_ + static_cast<CUdeviceptr>(mapped_);
  HIR_TRY(context_.Check(driver.MemCreate(&part.handle, size, &properties_, 0), "cuMemCreate"));
  Status status = context_.Check(driver.MemMap(address, size, 0, part.handle, 0), "cuMemMap");
  if (status.ok()) {
    status = SetAccess(context_, address, bytes);
    if (status.ok()) return part;
    driver.MemUnmap(address, size);
  }
  driver.MemRelease(part.handle);
  return status;
}

}  // namespace hir::device::cuda
