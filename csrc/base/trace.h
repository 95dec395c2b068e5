// Trace: what ranks did when, as a file that trace viewers open (ui.perfetto.dev, chrome://tracing).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"

namespace hir::base {

// Work of one stream of one rank. All times are of one clock.
struct TraceSpan {
  int64_t rank = 0;
  int stream = 0;
  std::string name = {};
  std::string kind = {};               // What viewers colour and search by: "launch", "communication", "wait", ...
  Nanos queued = {}, queued_end = {};  // On the host.
  Nanos began = {}, ended = {};        // On the stream.
  std::string trace = {};              // The trace that the rank worked for (traceparent.h); empty: it knew of none.
};

// A JSON document in the Trace Event Format: a process for each rank; in it a track for the host, which queues, and one
// for each stream; an arrow from where work was queued to where it began. Times start at 0 with the first of `spans`.
// `traceparent`: of the request that asked for all of it; empty: it had none.
std::string TraceJson(std::string_view title, std::span<const TraceSpan> spans, std::string_view traceparent = {});

}  // namespace hir::base
