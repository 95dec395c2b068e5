// The probe: a process that opens each device once, to say which can be used and what they are.
#pragma once

#include "csrc/base/fd.h"
#include "host_ir/rank/backends.h"
#include "hostir/v1/worker.pb.h"

namespace hir::service {

// Every device in its own thread: opening one takes a second.
::hostir::v1::Probed Probe(const rank::Backends& backends, const ::hostir::v1::Probe& probe);

// Answers one message and exits.
[[noreturn]] void ServeProbe(base::Fd socket, const rank::Backends& backends);

}  // namespace hir::service
