// Device: what owns memory and runs streams. One subclass per kind of device, in its own folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/graph.h"
#include "csrc/device/kernel.h"
#include "csrc/device/marks.h"
#include "csrc/device/stream.h"

namespace hir::device {

// Every allocation starts at a multiple of this many bytes.
inline constexpr int64_t kAlignmentBytes = 64;

// Owned by the process that drives it; outlives the streams, events and allocations made from it.
// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "host:0"

  // kResourceExhausted, naming the limit, when there are too many.
  virtual Result<std::unique_ptr<Stream>> CreateStream() = 0;
  // One whose work goes first where several streams have work and the device is full: for what others wait for.
  virtual Result<std::unique_ptr<Stream>> CreateUrgentStream() { return CreateStream(); }
  virtual Result<std::unique_ptr<Event>> CreateEvent() = 0;
  // May block for some microseconds, to compare the device's clock with the machine's.
  virtual Result<std::unique_ptr<Marks>> CreateMarks() { return Unimplemented("this device keeps no times"); }

  // Uninitialised memory. kResourceExhausted, naming the limit, what is in use and what was asked,
  // when it does not fit. bytes may be 0. REQUIRES: bytes >= 0.
  virtual Result<std::unique_ptr<Allocation>> Allocate(int64_t bytes) = 0;
  virtual int64_t allocated_bytes() const = 0;
  virtual int64_t memory_bytes_max() const = 0;

  // What only some devices do: from BeginCapture to EndCapture, what is queued on `origin`, and on
  // streams that wait for an event recorded in the capture, is kept instead of run. Streams must
  // have come back to `origin` by events when it ends. A wait for an event that was recorded before
  // the capture means nothing in it, and one outside for an event recorded in it neither: work
  // around a graph is ordered by the stream that launches it. A host callback, an AsyncOp and a
  // Synchronize cannot be captured. Both calls come from the thread that queues, and all work
  // queued in between from that thread.
  virtual bool can_capture() const { return false; }
  virtual Status BeginCapture(Stream& origin) {
    static_cast<void>(origin);
    return Unimplemented("this device captures no graphs");
  }
  // In a capture: whether what is queued from here on is fixed: part of the graph, but no part of
  // what an update compares and changes. For what communicators and libraries queue.
  virtual void CaptureFixed(bool fixed) { static_cast<void>(fixed); }
  // Errors: the first that queueing met in the capture; the streams are as before it.
  virtual Result<std::unique_ptr<Graph>> EndCapture(Stream& origin) {
    static_cast<void>(origin);
    return Unimplemented("this device captures no graphs");
  }
};

}  // namespace hir::device
