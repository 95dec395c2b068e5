#include "service/supervise/child_error.h"

namespace hir::service {

Status FromError(const ::hostir::v1::Error& error) {
  if (error.code() == 0) return {};
  const bool known = error.code() > 0 && error.code() <= static_cast<int>(Code::kUnauthenticated);
  return {known ? static_cast<Code>(error.code()) : Code::kUnknown, error.message()};
}

}  // namespace hir::service
