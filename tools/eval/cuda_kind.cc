#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/cuda_backends.h"
#include "tools/eval/device_kind.h"

namespace hir::eval {

DeviceKind CudaKind() {
  return {.backends = rank::CudaBackends(),
          .make_timed_event = &device::CreateTimedEvent,
          .elapsed_ms = &device::ElapsedMs};
}

}  // namespace hir::eval
