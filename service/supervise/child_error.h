// The error that a child process reports.
#pragma once

#include "csrc/base/status.h"
#include "hostir/v1/tensor.pb.h"

namespace hir::service {

// OK where `error` has no code. One that is none of ours is kUnknown: the child may be of another build.
Status FromError(const ::hostir::v1::Error& error);

}  // namespace hir::service
