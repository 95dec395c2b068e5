#include "multidevice/comm/nccl/nccl_comm.h"

#include <chrono>
#include <thread>
#include <utility>

#include "csrc/base/text.h"

namespace hir::comm {
namespace {

using std::chrono::microseconds;

// How long Await looks without sleeping: a launch is done in less, a connection in much more.
constexpr base::Nanos kLook = microseconds(50);
constexpr base::Nanos kSleep = microseconds(200);

using base::Now;

ncclConfig_t Config(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

}  // namespace

Result<ncclUniqueId> NcclComm::NewId(const NcclLibrary& nccl) {
  ncclUniqueId id = {};
  HIR_TRY(NcclStatus(nccl, nccl.GetUniqueId(&id), "ncclGetUniqueId", nullptr));
  return id;
}

Result<std::unique_ptr<NcclComm>> NcclComm::Join(const NcclLibrary& nccl, const ncclUniqueId& id, Membership membership,
                                                 base::Nanos deadline, const GivesUp& gives_up) {
  std::unique_ptr<NcclComm> comm(new NcclComm(nccl));
  ncclConfig_t config = Config(false);
  const ncclResult_t begun =
      nccl.CommInitRankConfig(comm->handle_.get(), membership.size, id, membership.rank, &config);
  HIR_TRY(NcclStatus(nccl, begun, "ncclCommInitRankConfig", nullptr));
  HIR_TRY(comm->Await("ncclCommInitRankConfig", deadline, gives_up));
  return comm;
}

Result<std::unique_ptr<NcclComm>> NcclComm::SplitAll(int rank, base::Nanos deadline, const GivesUp& gives_up) {
  std::unique_ptr<NcclComm> comm(new NcclComm(nccl_));
  ncclConfig_t config = Config(true);
  const ncclResult_t begun = nccl_.CommSplit(handle(), 0, rank, comm->handle_.get(), &config);
  Status status = NcclStatus(nccl_, begun, "ncclCommSplit", handle());
  if (status.ok()) status = Await("ncclCommSplit", deadline, gives_up);
  if (!status.ok()) {
    // NCCL may still write the handle, until this communicator is aborted: it is left to it.
    if (*comm->handle_ == nullptr) (void)comm->handle_.release();
    return status;
  }
  if (*comm->handle_ == nullptr) return Internal("nccl: ncclCommSplit gave no communicator");
  HIR_TRY(comm->Await("ncclCommSplit", deadline, gives_up));
  return comm;
}

NcclComm::~NcclComm() { Abort(); }

Status NcclComm::Await(std::string_view what, base::Nanos deadline, const GivesUp& gives_up) const {
  const base::Nanos begin = Now();
  for (;;) {
    ncclResult_t state = ncclInProgress;
    HIR_TRY(NcclStatus(nccl_, nccl_.CommGetAsyncError(handle(), &state), what, handle()));
    if (state != ncclInProgress) return NcclStatus(nccl_, state, what, handle());
    if (gives_up()) return {Code::kCancelled, base::Cat("nccl: ", what, " was given up")};
    const base::Nanos now = Now();
    if (now > deadline) {
      return {Code::kDeadlineExceeded, base::Cat("nccl: ", what, ": a rank did not come in time")};
    }
    now - begin < kLook ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
  }
}

Status NcclComm::AsyncError() const {
  ncclResult_t state = ncclSuccess;
  HIR_TRY(NcclStatus(nccl_, nccl_.CommGetAsyncError(handle(), &state), "asynchronously", handle()));
  return NcclStatus(nccl_, state, "asynchronously", handle());
}

void NcclComm::Close(base::Nanos deadline) {
  const ncclResult_t begun = nccl_.CommFinalize(handle());
  Status status = NcclStatus(nccl_, begun, "ncclCommFinalize", handle());
  if (status.ok()) status = Await("ncclCommFinalize", deadline, [] { return false; });
  if (!status.ok()) return Abort();
  nccl_.CommDestroy(std::exchange(*handle_, nullptr));
}

void NcclComm::Abort() {
  if (handle_ == nullptr || *handle_ == nullptr) return;
  nccl_.CommAbort(std::exchange(*handle_, nullptr));
}

}  // namespace hir::comm
