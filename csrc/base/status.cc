#include "csrc/base/status.h"

#include "csrc/base/text.h"

namespace hir {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kCancelled: return "CANCELLED";
    case Code::kUnknown: return "UNKNOWN";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kAlreadyExists: return "ALREADY_EXISTS";
    case Code::kPermissionDenied: return "PERMISSION_DENIED";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
    case Code::kAborted: return "ABORTED";
    case Code::kOutOfRange: return "OUT_OF_RANGE";
    case Code::kUnimplemented: return "UNIMPLEMENTED";
    case Code::kInternal: return "INTERNAL";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kDataLoss: return "DATA_LOSS";
    case Code::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Status::Status(Code code, std::string message) : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {
  HIR_CHECK(code != Code::kOk);
}

std::string_view Status::message() const {
  return rep_ == nullptr ? std::string_view() : std::string_view(rep_->message);
}

std::string Status::ToString() const { return ok() ? "OK" : base::Cat(CodeName(code()), ": ", message()); }

Status Status::WithContext(std::string_view context) const {
  return ok() ? Status() : Status(code(), base::Cat(context, ": ", message()));
}

}  // namespace hir
