#include "service/rpc/shared_transfers.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>
#include <vector>

#include "csrc/base/fd_message.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/store/store.h"

namespace hir::service {
namespace {

// Nobody says how far a client is that copies; slower than that it does not.
constexpr int64_t kSlowestBytesPerSecond = 100'000'000;
constexpr int64_t kSlowestBytesPerSecondOfNetwork = 100'000;  // Of a link of 1 Mbit/s.

Status NoTransfer(std::string_view token, base::Nanos idle) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(idle).count();
  return Status(Code::kNotFound, base::Cat("no transfer \"", token.substr(0, 64),
                                           "\" in this session: it is over, or nobody went on with it for "
                                           "transfer_idle_ms = ",
                                           ms));
}

// One byte that carries `fds`. The socket is fresh, so that it has room.
void SendDescriptors(const base::Fd& socket, const std::vector<int>& fds) {
  base::FdRoom<kSharedPartsMax> room;
  char byte = 0;
  iovec data = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  base::AttachFds(message, room.bytes, fds);
  (void)sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);  // Who left needs none.
}

}  // namespace

SharedTransfers::~SharedTransfers() {
  std::map<std::string, Transfer, std::less<>> rest;  // They go when the lock is released.
  const std::scoped_lock lock(state_->mutex);
  state_->over = true;
  rest.swap(state_->transfers);
}

Result<std::string> SharedTransfers::Add(std::string session, std::string principal, std::unique_ptr<Upload> transfer) {
  const std::vector<SharedPart> parts = transfer->Parts();
  return Add({.session = std::move(session), .principal = std::move(principal), .upload = std::move(transfer)}, parts);
}

Result<std::string> SharedTransfers::Add(std::string session, std::string principal,
                                         std::unique_ptr<Download> transfer) {
  const std::vector<SharedPart> parts = transfer->Parts();
  return Add({.session = std::move(session), .principal = std::move(principal), .download = std::move(transfer)},
             parts);
}

Result<std::string> SharedTransfers::Add(std::string session, std::string principal,
                                         std::unique_ptr<DeviceTransfer> transfer) {
  const std::vector<SharedPart> parts = transfer->Parts();
  return Add({.session = std::move(session), .principal = std::move(principal), .devices = std::move(transfer)}, parts);
}

Result<std::string> SharedTransfers::Add(Transfer transfer, const std::vector<SharedPart>& parts) {
  if (parts.size() > kSharedPartsMax) {
    return Status(Code::kFailedPrecondition,
                  base::Cat("a tensor of ", parts.size(), " parts; memory is shared for at most ", kSharedPartsMax,
                            ": upload or download it"));
  }
  base::Nanos time = idle_;
  for (const SharedPart& part : parts) time += std::chrono::seconds(part.bytes / kSlowestBytesPerSecond);
  return Add(std::move(transfer), time);
}

Result<std::string> SharedTransfers::Add(std::string session, std::string principal,
                                         std::unique_ptr<NodeTransfer> transfer) {
  const base::Nanos time = idle_ + std::chrono::seconds(transfer->total_bytes() / kSlowestBytesPerSecondOfNetwork);
  return Add({.session = std::move(session), .principal = std::move(principal), .nodes = std::move(transfer)}, time);
}

Result<std::string> SharedTransfers::Add(Transfer transfer, base::Nanos time) {
  std::string token = RandomId();
  transfer.alarm = std::make_unique<grpc::Alarm>();
  grpc::Alarm* const alarm = transfer.alarm.get();
  const std::scoped_lock lock(state_->mutex);
  state_->transfers.emplace(token, std::move(transfer));
  alarm->Set(std::chrono::system_clock::now() + time, [state = state_, token, pool = &pool_](bool expired) {
    if (!expired) return;  // Taken, or the daemon ends.
    Transfer ended;        // It goes when the lock is released.
    const std::scoped_lock held(state->mutex);
    const auto found = state->transfers.find(token);
    if (state->over || found == state->transfers.end()) return;
    // To unmap gigabytes takes longer than gRPC's thread has.
    if (pool->Post([state, token] { (void)Take(*state, token); })) return;
    ended = std::move(found->second);
    state->transfers.erase(found);
  });
  return token;
}

SharedTransfers::Transfer SharedTransfers::Take(State& state, std::string_view token) {
  const std::scoped_lock lock(state.mutex);
  const auto found = state.transfers.find(token);
  if (found == state.transfers.end()) return {};
  Transfer transfer = std::move(found->second);
  state.transfers.erase(found);
  return transfer;
}

Result<SharedTransfers::Transfer> SharedTransfers::TakeOf(std::string_view session, std::string_view token) {
  {
    const std::scoped_lock lock(state_->mutex);
    const auto found = state_->transfers.find(token);
    if (found == state_->transfers.end() || found->second.session != session) return NoTransfer(token, idle_);
  }
  Transfer transfer = Take(*state_, token);
  if (transfer.is_none()) return NoTransfer(token, idle_);
  return transfer;
}

void SharedTransfers::Exchange(base::Fd socket, std::string_view token, std::vector<base::Fd> brought,
                               std::string_view principal) {
  const std::scoped_lock lock(state_->mutex);  // Keeps the memory from going meanwhile.
  const auto found = state_->transfers.find(token);
  if (found == state_->transfers.end()) return;
  Transfer& transfer = found->second;
  if (transfer.given || transfer.principal != principal || transfer.nodes != nullptr) return;
  if (transfer.devices != nullptr) {
    transfer.given = transfer.devices->Offer(std::move(brought)).ok();
    if (transfer.given) SendDescriptors(socket, {});
    return;
  }
  transfer.given = true;
  std::vector<base::Fd> opened;
  std::vector<int> fds;
  for (const SharedPart& part : transfer.upload ? transfer.upload->Parts() : transfer.download->Parts()) {
    if (part.memory->bytes() == 0) continue;
    // A client that fills memory writes it; one that reads a tensor, as others may, does not unless it is its own.
    Result<base::Fd> fd = part.memory->Share(transfer.upload != nullptr || transfer.download->is_writable());
    if (!fd.ok()) return spdlog::warn("no memory is shared error={}", base::Quoted(fd.status().ToString()));
    fds.push_back(fd->get());
    opened.push_back(*std::move(fd));
  }
  if (!fds.empty()) SendDescriptors(socket, fds);
}

Result<SharedTransfers::Committed> SharedTransfers::Take(std::string_view session, std::string_view token) {
  HIR_ASSIGN(Transfer transfer, TakeOf(session, token));
  if (transfer.upload != nullptr) return Committed(std::move(transfer.upload));
  if (transfer.devices != nullptr) return Committed(std::move(transfer.devices));
  if (transfer.nodes != nullptr && transfer.nodes->is_upload()) return Committed(std::move(transfer.nodes));
  return InvalidArgument("Commit of a tensor that is read: release it");
}

Result<std::unique_ptr<NodeTransfer>> SharedTransfers::Release(std::string_view session, std::string_view token) {
  HIR_ASSIGN(Transfer transfer, TakeOf(session, token));
  return std::move(transfer.nodes);
}

void SharedTransfers::EndSession(std::string_view session) {
  std::vector<Transfer> ended;  // They go when the lock is released.
  const std::scoped_lock lock(state_->mutex);
  for (auto at = state_->transfers.begin(); at != state_->transfers.end();) {
    const auto each = at++;
    if (each->second.session != session) continue;
    ended.push_back(std::move(each->second));
    state_->transfers.erase(each);
  }
}

}  // namespace hir::service
