#include "service/convert/status.h"

#include <string>

#include "csrc/base/shortened.h"

namespace hir::service {

#define HIR_SAME_CODE(ours, grpcs) \
  static_assert(static_cast<int>(Code::ours) == static_cast<int>(grpc::StatusCode::grpcs))
HIR_SAME_CODE(kOk, OK);
HIR_SAME_CODE(kCancelled, CANCELLED);
HIR_SAME_CODE(kUnknown, UNKNOWN);
HIR_SAME_CODE(kInvalidArgument, INVALID_ARGUMENT);
HIR_SAME_CODE(kDeadlineExceeded, DEADLINE_EXCEEDED);
HIR_SAME_CODE(kNotFound, NOT_FOUND);
HIR_SAME_CODE(kAlreadyExists, ALREADY_EXISTS);
HIR_SAME_CODE(kPermissionDenied, PERMISSION_DENIED);
HIR_SAME_CODE(kResourceExhausted, RESOURCE_EXHAUSTED);
HIR_SAME_CODE(kFailedPrecondition, FAILED_PRECONDITION);
HIR_SAME_CODE(kAborted, ABORTED);
HIR_SAME_CODE(kOutOfRange, OUT_OF_RANGE);
HIR_SAME_CODE(kUnimplemented, UNIMPLEMENTED);
HIR_SAME_CODE(kInternal, INTERNAL);
HIR_SAME_CODE(kUnavailable, UNAVAILABLE);
HIR_SAME_CODE(kDataLoss, DATA_LOSS);
HIR_SAME_CODE(kUnauthenticated, UNAUTHENTICATED);
#undef HIR_SAME_CODE

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(base::Shortened(status).message())};
}

void ToProto(const Status& status, ::hostir::v1::Error* error) {
  if (status.ok()) return;
  error->set_code(static_cast<int>(status.code()));
  error->set_message(std::string(base::Shortened(status).message()));
}

}  // namespace hir::service
