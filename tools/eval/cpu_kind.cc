#include "host_ir/rank/cpu/cpu_backends.h"
#include "tools/eval/device_kind.h"

namespace hir::eval {

DeviceKind CpuKind() { return {.backends = rank::CpuBackends()}; }

}  // namespace hir::eval
