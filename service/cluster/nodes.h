// Nodes: the seam between the head of a cluster and its nodes: messages to each, and what comes from all of them. Links
// over a network (node_links.h), or simulated ones on a clock of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/node.pb.h"

namespace hir::service {

struct NodeEvent {
  int64_t node = 0;
  // OK: `message`. Else the link is lost, with all that was on its way; it is tried again until the node joins.
  Status lost = {};
  ::hostir::v1::FromNode message = {};
};

// Threads: one, but for Interrupt.
class Nodes {
 public:
  virtual ~Nodes() = default;

  virtual int64_t size() const = 0;
  virtual std::string NameOf(int64_t node) const = 0;  // "node 1 (tcp:10.0.0.2:7001)"
  virtual const base::Clock& clock() const = 0;

  // In order, unless the link is lost meanwhile: then nothing, and an event says it. May wait until there is room.
  virtual void Send(int64_t node, ::hostir::v1::ToNode message) = 0;
  // The next event, if there is one.
  virtual std::optional<NodeEvent> Take() = 0;
  // Waits until there is an event, Interrupt was called since the last time, one of these is readable, or `deadline`.
  virtual void Wait(int wake_fd, base::Nanos deadline) = 0;
  virtual void Interrupt() = 0;
};

}  // namespace hir::service
