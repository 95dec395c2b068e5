// Status, Result and their macros: what is returned, and that nothing runs after a failure.
#include "csrc/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace hir {
namespace {

TEST(Status, DefaultIsOkAndFree) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::kOk);
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.ToString(), "OK");
  EXPECT_TRUE(ok.WithContext("ignored").ok());
}

TEST(Status, KeepsCodeAndMessage) {
  const Status status = InvalidArgument("no such op: ad");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.ToString(), "INVALID_ARGUMENT: no such op: ad");
}

TEST(Status, ContextGoesInFrontAndLeavesTheOriginal) {
  const Status inner = Unavailable("rank 3 left");
  const Status outer = inner.WithContext("run 7").WithContext("session 1");
  EXPECT_EQ(outer.ToString(), "UNAVAILABLE: session 1: run 7: rank 3 left");
  EXPECT_EQ(inner.message(), "rank 3 left");
}

TEST(Status, EveryCodeOfGrpcHasItsName) {
  const std::string_view names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  for (int code = 0; code < 17; ++code) EXPECT_EQ(CodeName(static_cast<Code>(code)), names[code]);
  EXPECT_EQ(CodeName(static_cast<Code>(99)), "UNKNOWN");
}

TEST(StatusDeathTest, AnErrorIsNotOk) { EXPECT_DEATH(Status(Code::kOk, "x"), "check failed"); }

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::string> value("text");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, "text");
  EXPECT_EQ(value->size(), 4u);
  EXPECT_TRUE(value.status().ok());

  const Result<std::string> failed(Internal("lost"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().ToString(), "INTERNAL: lost");
}

TEST(Result, ConvertsLikeAReturnStatement) {
  const auto derived_to_base = []() -> Result<std::shared_ptr<const int>> { return std::make_shared<int>(7); };
  EXPECT_EQ(**derived_to_base(), 7);
  static_assert(std::is_convertible_v<int, Result<int64_t>>);
}

TEST(ResultDeathTest, HasNoValueAfterAFailure) {
  Result<int> failed(Internal("lost"));
  EXPECT_DEATH((void)*failed, "check failed");
  EXPECT_DEATH(Result<int>(Status{}), "check failed");
}

Status Fail(bool fail) { return fail ? ResourceExhausted("queue: 8 of 8") : Status(); }

Status TryThenCount(bool fail, int& count) {
  HIR_TRY(Fail(fail));
  ++count;
  return {};
}

TEST(HirTry, ReturnsTheFirstFailureAndRunsNothingAfterIt) {
  int count = 0;
  EXPECT_TRUE(TryThenCount(false, count).ok());
  EXPECT_EQ(count, 1);
  EXPECT_EQ(TryThenCount(true, count).code(), Code::kResourceExhausted);
  EXPECT_EQ(count, 1);
}

Result<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return InvalidArgument("negative");
  return std::make_unique<int>(value);
}

Result<int> Sum(int a, int b) {
  HIR_ASSIGN(const std::unique_ptr<int> x, Make(a));
  HIR_ASSIGN(auto y, Make(b));                                 // A second one in the same scope.
  HIR_ASSIGN(*y, [&]() -> Result<int> { return *y + *x; }());  // Into what exists already.
  return *y;
}

TEST(HirAssign, MovesOutOfTheResult) {
  Result<int> sum = Sum(2, 3);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(*sum, 5);
  EXPECT_EQ(Sum(2, -3).status().message(), "negative");
  EXPECT_EQ(Sum(-2, 3).status().message(), "negative");
}

}  // namespace
}  // namespace hir
