#include "service/engine/node_transfer.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::service {

Result<std::unique_ptr<NodeTransfer>> NodeTransfer::In(TensorStore& store, const std::string& session,
                                                       const TensorSpec& spec, const std::vector<bool>& sent_once,
                                                       std::span<const LocalDevice> devices) {
  HIR_ASSIGN(std::unique_ptr<DeviceTransfer> whole, DeviceTransfer::In(store, session, spec, sent_once));
  std::unique_ptr<NodeTransfer> transfer(new NodeTransfer(std::move(whole)));
  HIR_TRY(transfer->MakeTickets(devices));
  return transfer;
}

Result<std::unique_ptr<NodeTransfer>> NodeTransfer::Out(std::shared_ptr<Tensor> tensor, std::optional<int64_t> device,
                                                        std::span<const LocalDevice> devices) {
  HIR_ASSIGN(std::unique_ptr<DeviceTransfer> whole, DeviceTransfer::Out(std::move(tensor), device));
  std::unique_ptr<NodeTransfer> transfer(new NodeTransfer(std::move(whole)));
  HIR_TRY(transfer->MakeTickets(devices));
  return transfer;
}

Status NodeTransfer::MakeTickets(std::span<const LocalDevice> devices) {
  const mesh::DeviceMesh& mesh = tensor()->spec().sharding.mesh;
  const auto is_none = [](const mesh::Range& range) { return range.size() == 0; };
  for (SharedPart& part : whole_->Parts()) {
    // Blocks without elements are written, with zeros, but nobody reads them.
    if (part.bytes == 0 || (!is_upload() && std::ranges::any_of(part.elements, is_none))) continue;
    const LocalDevice& device = devices[static_cast<size_t>(part.device)];
    const int64_t shard = tensor()->shards().shards()[static_cast<size_t>(*mesh.PositionOf(part.device))].id;
    const std::string node = device.is_here ? "" : device.node;
    // Replicas on one node are sent there once.
    const auto same = std::ranges::find_if(
        parts_, [&](const NodePart& other) { return other.node == node && other.part.elements == part.elements; });
    if (is_upload() && same != parts_.end()) {
      same->ticket.shards.push_back(shard);
      continue;
    }
    Ticket ticket = {.secret = RandomId(),
                     .receipt = RandomId(),
                     .writes = is_upload(),
                     .rank = part.device,
                     .shards = {shard},
                     .bytes = part.bytes};
    parts_.push_back({.part = std::move(part), .node = node, .ticket = std::move(ticket)});
  }
  const bool is_all_here = std::ranges::all_of(parts_, [](const NodePart& part) { return part.node.empty(); });
  if (is_all_here) return {Code::kFailedPrecondition, "all of it is on the node that heads"};
  return {};
}

int64_t NodeTransfer::total_bytes() const {
  int64_t bytes = 0;
  for (const NodePart& part : parts_) bytes += part.part.bytes;
  return bytes;
}

std::vector<Ticket> NodeTransfer::Tickets() const {
  std::vector<Ticket> tickets;
  for (const NodePart& part : parts_) tickets.push_back(part.ticket);
  return tickets;
}

Status NodeTransfer::CheckWritten(std::span<const std::string> receipts) const {
  if (receipts.size() != parts_.size())
    return InvalidArgument(base::Cat(receipts.size(), " receipts for ", parts_.size(), " shards"));
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (receipts[i] == parts_[i].ticket.receipt) continue;
    return InvalidArgument(base::Cat("shard ", i, " (of device ", parts_[i].part.device,
                                     ") is not written: its node gives a receipt to who has"));
  }
  if (grant_ != nullptr) HIR_TRY(grant_->failure());
  const Readiness::Condition condition = tensor()->condition();
  return condition.state == TensorState::kReady ? Status() : condition.error;
}

}  // namespace hir::service
