// The log of a process of the service: standard output, without ever waiting for who reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"

namespace hir::service {

// From now on spdlog's default logger logs lines of `level` and above there, from any thread; lines that are not taken
// in time are dropped (LineQueue). Once in a process, before it logs.
void StartLog(const std::string& level);
// Before the process ends, or may be killed: until what was logged is written, for `timeout` at most.
void FlushLog(base::Nanos timeout = std::chrono::seconds(1));
// `line`, with its newline, among the log's: as it is.
void AddToLog(std::string_view line);
// Since the start.
int64_t LogLinesDropped();

}  // namespace hir::service
