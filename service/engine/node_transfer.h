// NodeTransfer: a tensor on its way between a client and the nodes of a cluster that keep its shards, past the head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "service/engine/session_slots.h"
#include "service/engine/transfer.h"
#include "service/store/store.h"
#include "service/supervise/devices.h"
#include "service/supervise/ranks.h"

namespace hir::service {

// The use of one ticket: elements on one node, where several devices may have them.
struct NodePart {
  SharedPart part = {};
  std::string node = {};  // Its address; empty: this daemon's.
  Ticket ticket = {};
};

// Threads: one at a time.
class NodeTransfer {
 public:
  // `devices`: all that there are, by number.
  // A new tensor, all of it charged, which a client writes. The store outlives it.
  // Errors: as of DeviceTransfer::In; kFailedPrecondition: all of it is here.
  static Result<std::unique_ptr<NodeTransfer>> In(TensorStore& store, const std::string& session,
                                                  const TensorSpec& spec, const std::vector<bool>& sent_once,
                                                  std::span<const LocalDevice> devices);
  // As of DeviceTransfer::Out, of a tensor that is ready.
  static Result<std::unique_ptr<NodeTransfer>> Out(std::shared_ptr<Tensor> tensor, std::optional<int64_t> device,
                                                   std::span<const LocalDevice> devices);

  bool is_upload() const { return whole_->way() == DeviceTransfer::Way::kIn; }
  const std::shared_ptr<Tensor>& tensor() const { return whole_->tensor(); }
  const TensorSpec& sent() const { return whole_->sent(); }  // As of Download.
  const std::vector<NodePart>& parts() const { return parts_; }
  int64_t total_bytes() const;  // That travel.
  // To be granted, which Hold then takes: they are good as long as this lives.
  std::vector<Ticket> Tickets() const;
  void Hold(std::unique_ptr<Grant> grant) { grant_ = std::move(grant); }
  void Hold(SessionSlots::Slot slot) { slot_ = std::move(slot); }

  // OK: a client has written all of it. `receipts`: one for each part.
  // Errors: kInvalidArgument: it has not; kUnavailable, kDataLoss: what it wrote is not there any more.
  Status CheckWritten(std::span<const std::string> receipts) const;

 private:
  explicit NodeTransfer(std::unique_ptr<DeviceTransfer> whole) : whole_(std::move(whole)) {}
  Status MakeTickets(std::span<const LocalDevice> devices);

  const std::unique_ptr<DeviceTransfer> whole_;
  std::vector<NodePart> parts_;
  SessionSlots::Slot slot_;
  std::unique_ptr<Grant> grant_;  // Goes first: then nobody writes what goes.
};

}  // namespace hir::service
