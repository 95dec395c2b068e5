// Graph: work that was queued once, was kept instead of run, and is queued again by one call.
#pragma once

#include <string>

#include "csrc/base/status.h"
#include "csrc/device/stream.h"

namespace hir::device {

// Made by Device::EndCapture. Outlives the work it launched; the streams and events of the capture,
// and the buffers and kernels that its work names, outlive it. One thread at a time.
//
// Updating gives the same work other arguments: what is queued on updater() between BeginUpdate and
// EndUpdate is not run, but compared with what was captured, call by call; where a launch has other
// arguments or another grid, a copy other addresses, a fill another pattern or address, the graph
// changes, for later launches. Records and waits are not compared. What was captured as fixed
// (Device::CaptureFixed) cannot be updated, and is left out.
class Graph {
 public:
  virtual ~Graph() = default;
  // Queues all of it on `stream`, in whose order it runs. Failures belong to the stream.
  virtual void Launch(Stream& stream) = 0;

  // What it is made of, for people: "10 kernels; 9 edges, 9 of them programmatic".
  virtual std::string Describe() const = 0;

  virtual void BeginUpdate() = 0;
  virtual Stream& updater() = 0;
  // kFailedPrecondition when what was queued is other work than what was captured, or changes what
  // this device cannot change: then the graph is of no use any more, and the work must be captured
  // again.
  virtual Status EndUpdate() = 0;
};

}  // namespace hir::device
