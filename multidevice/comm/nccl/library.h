// libnccl, opened at run time: its functions as a table.
#pragma once

#include <nccl.h>

#include <string>

#include "csrc/base/status.h"

namespace hir::comm {

// FUNCTION(X) for every ncclX that is used.
#define HIR_NCCL_FUNCTIONS(FUNCTION) \
  FUNCTION(GetVersion)               \
  FUNCTION(GetUniqueId)              \
  FUNCTION(GetErrorString)           \
  FUNCTION(GetLastError)             \
  FUNCTION(CommInitRankConfig)       \
  FUNCTION(CommSplit)                \
  FUNCTION(CommGetAsyncError)        \
  FUNCTION(CommFinalize)             \
  FUNCTION(CommDestroy)              \
  FUNCTION(CommAbort)                \
  FUNCTION(GroupStart)               \
  FUNCTION(GroupEnd)                 \
  FUNCTION(AllGather)                \
  FUNCTION(AllReduce)                \
  FUNCTION(Broadcast)                \
  FUNCTION(Reduce)                   \
  FUNCTION(ReduceScatter)            \
  FUNCTION(Send)                     \
  FUNCTION(Recv)

// Immutable. The library stays loaded until the process ends: it has threads.
struct NcclLibrary {
#define HIR_NCCL_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  HIR_NCCL_FUNCTIONS(HIR_NCCL_MEMBER)
#undef HIR_NCCL_MEMBER

  std::string file;
  int version = 0;  // As NCCL_VERSION_CODE.
};

// `file` and `nvlink_multicast` as in NcclOptions.
Result<NcclLibrary> LoadNccl(const std::string& file, bool nvlink_multicast);

// "2.28.9"
std::string NcclVersionText(int version);

// What went wrong in `call`: OK for ncclSuccess and ncclInProgress. `comm` may be null.
Status NcclStatus(const NcclLibrary& nccl, ncclResult_t result, std::string_view call, ncclComm_t comm);

}  // namespace hir::comm
