// How a command ended.
#pragma once

#include <string_view>
#include <utility>

#include "csrc/base/status.h"
#include "service/os/exit_code.h"

namespace hir::cli {

// A status, and the exit code of one that is not OK.
struct Outcome {
  Status status = {};
  int code = service::kExitFailed;

  bool ok() const { return status.ok(); }
};

inline Outcome Usage(Status status) { return {std::move(status), service::kExitUsage}; }

// How a command ends that has printed its answer: kUnavailable where stdout did not take all of it (a full disk).
Outcome FlushOutput();
// `text`, and all before it. Errors: as above.
Outcome WriteOutput(std::string_view text);

}  // namespace hir::cli
