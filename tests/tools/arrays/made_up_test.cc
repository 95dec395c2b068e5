// Arrays that are made up: what does not fit the memory of a machine is refused before it is made.
#include "tools/arrays/made_up.h"

#include <gtest/gtest.h>

namespace hir::arrays {
namespace {

TEST(MadeUp, WhatFitsMemory) {
  EXPECT_TRUE(FitsMemory({}, {}, DType::kFloat64).ok());
  const int64_t empty[] = {0, int64_t{1} << 50}, small[] = {64, 64};
  EXPECT_TRUE(FitsMemory(empty, {false, false}, DType::kFloat64).ok());
  EXPECT_TRUE(FitsMemory(small, {false, false}, DType::kFloat64).ok());
  const int64_t tall[] = {int64_t{1} << 50, 4};
  EXPECT_TRUE(FitsMemory(tall, {true, false}, DType::kFloat32).ok()) << "one row is stored";
  const Status status = FitsMemory(tall, {false, false}, DType::kFloat32);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(
      status.message().starts_with("18014398509481984 bytes are to be made up; this machine has "))
      << status.ToString();
  const int64_t beyond[] = {int64_t{1} << 50, int64_t{1} << 50};
  EXPECT_TRUE(FitsMemory(beyond, {false, false}, DType::kBool)
                  .message()
                  .starts_with("more than 2^63 bytes are to be made up; "));
}

}  // namespace
}  // namespace hir::arrays
