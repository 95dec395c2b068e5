// Arrays that are made up: what does not fit the memory of a machine is refused before it is made.
#include "tools/arrays/made_up.h"

#include <gtest/gtest.h>

namespace hir::arrays {
namespace {

TEST(MadeUp, BytesAreCountedUpToTheirLimit) {
  EXPECT_EQ(*BytesOf({}, {}, DType::kFloat64), 8);
  const int64_t empty[] = {0, int64_t{1} << 50}, small[] = {64, 3};
  EXPECT_EQ(*BytesOf(empty, {false, false}, DType::kFloat64), 0);
  EXPECT_EQ(*BytesOf(small, {false, false}, DType::kBFloat16), 384);
  const int64_t tall[] = {int64_t{1} << 50, 4};
  EXPECT_EQ(*BytesOf(tall, {true, false}, DType::kFloat32), 16) << "one row is stored";
  const int64_t most[] = {int64_t{1} << 62}, beyond[] = {int64_t{1} << 50, int64_t{1} << 50};
  EXPECT_EQ(*BytesOf(most, {false}, DType::kBool), int64_t{1} << 62);
  EXPECT_FALSE(BytesOf(most, {false}, DType::kBFloat16).ok());
  const Result<int64_t> bytes = BytesOf(beyond, {false, false}, DType::kBool);
  EXPECT_EQ(bytes.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(bytes.status().message(), "more than 2^63 bytes are to be made up: make it smaller");
}

TEST(MadeUp, WhatFitsMemory) {
  EXPECT_TRUE(FitsMemory(0).ok());
  EXPECT_TRUE(FitsMemory(1 << 15).ok());
  const Status status = FitsMemory(int64_t{1} << 54);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(status.message().starts_with("18014398509481984 bytes are to be made up; this machine has "))
      << status.ToString();
}

}  // namespace
}  // namespace hir::arrays
