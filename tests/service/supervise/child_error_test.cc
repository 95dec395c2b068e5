// Goal: a child's error is a status whatever it sends. Method: codes that are ours, and ones that are not.
#include "service/supervise/child_error.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace hir::service {
namespace {

std::string Of(int32_t code) {
  ::hostir::v1::Error error;
  error.set_code(code);
  error.set_message("words");
  return FromError(error).ToString();
}

TEST(ChildError, IsAStatus) {
  EXPECT_EQ(Of(0), "OK");
  EXPECT_EQ(Of(static_cast<int32_t>(Code::kInvalidArgument)), "INVALID_ARGUMENT: words");
  EXPECT_EQ(Of(static_cast<int32_t>(Code::kUnauthenticated)), "UNAUTHENTICATED: words");
  for (const int32_t other : {-1, static_cast<int32_t>(Code::kUnauthenticated) + 1, std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(Of(other), "UNKNOWN: words") << other;
  }
}

}  // namespace
}  // namespace hir::service
