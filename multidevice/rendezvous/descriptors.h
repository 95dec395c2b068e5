// DescriptorExchange: file descriptors from rank to rank, for ranks on one machine; the rendezvous carries bytes alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// One per rank; a socket in the abstract namespace, whose name and token only those know who read the rendezvous. One
// thread at a time.
class DescriptorExchange {
 public:
  // Collective over [0, size) but for those `absent`, ascending; `key` begins the keys that it publishes. Errors:
  // kUnavailable, the same on every rank: they are not all on one machine and in one network namespace;
  // kDeadlineExceeded: a rank did not come.
  static Result<std::unique_ptr<DescriptorExchange>> Create(int64_t rank, int64_t size, std::string_view key,
                                                            Rendezvous& rendezvous, base::Nanos timeout,
                                                            std::span<const int64_t> absent = {});

  // Collective over `ranks`, this one among them: every other gets `fd`, or learns that there is none (-1). The
  // descriptors of the others, in their order; invalid of a rank that has none, and in this rank's place. `what` names
  // the exchange: the same on all of them, and never used before by these. Errors: kDeadlineExceeded: a rank did not
  // come; kInternal: it cannot be reached.
  Result<std::vector<base::Fd>> Swap(std::string_view what, std::span<const int64_t> ranks, int fd,
                                     base::Nanos timeout);

  // Collective over `ranks`: whether all of them say yes. `what`, errors: as Swap's.
  Result<bool> AllAgree(std::string_view what, std::span<const int64_t> ranks, bool yes, base::Nanos timeout);

 private:
  struct Peer {
    std::string address = {};  // Of its socket, as bind takes it, without the leading 0.
    std::string token = {};
  };
  DescriptorExchange(int64_t rank, base::Fd socket, std::vector<Peer> peers)
      : rank_(rank), socket_(std::move(socket)), peers_(std::move(peers)) {}
  struct Message {
    bool yes = false;
    base::Fd fd = {};
  };
  // To all other ranks, then from all: by their order.
  Result<std::vector<Message>> Exchange(std::string_view what, std::span<const int64_t> ranks, bool yes, int fd,
                                        base::Nanos timeout);
  Status Send(const Peer& peer, std::string_view what, bool yes, int fd, base::Nanos end) const;
  // Takes the next connection or message, into connections_ or arrived_.
  Status Receive(base::Nanos end);
  void Read(const base::Fd& connection);

  const int64_t rank_;
  const base::Fd socket_;
  const std::vector<Peer> peers_;
  std::vector<base::Fd> connections_;                           // Whoever has said nothing yet.
  std::map<std::pair<std::string, int64_t>, Message> arrived_;  // By name and sender.
};

}  // namespace hir::comm
