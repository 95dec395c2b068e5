// Status to and from the wire: gRPC statuses, and the Error of tensors and workers.
#pragma once

#include <grpcpp/support/status.h>

#include "csrc/base/status.h"
#include "hostir/v1/tensor.pb.h"

namespace hir::service {

grpc::Status ToGrpc(const Status& status);

// Nothing is set for OK.
void ToProto(const Status& status, ::hostir::v1::Error* error);

}  // namespace hir::service
