// Goal: what a tensor keeps of an error has a bound, and is shared by all that have it. Method: by itself.
#include <gtest/gtest.h>

#include <string>

#include "csrc/base/shortened.h"
#include "service/store/tensor.h"

namespace hir::service {
namespace {

TEST(Readiness, WhatPoisonedManyIsKeptOnce) {
  const Status cause = Unavailable("rank 1 died");
  Readiness first(TensorState::kPending), second(TensorState::kPending);
  first.Settle(cause);
  second.Settle(first.condition().error);
  EXPECT_EQ(second.condition().error.message().data(), cause.message().data());
}

TEST(Readiness, ALongErrorIsKeptShort) {
  const Status cause = Unavailable("rank 1 died" + std::string(1 << 20, '.'));
  Readiness poisoned(TensorState::kPending), lost(TensorState::kReady);
  poisoned.Settle(cause);
  lost.Lose(cause);
  EXPECT_EQ(poisoned.condition().error.message().size(), base::kErrorBytesMax);
  EXPECT_EQ(lost.condition().error.message().size(), base::kErrorBytesMax);
  EXPECT_TRUE(lost.condition().error.message().starts_with("rank 1 died"));
}

}  // namespace
}  // namespace hir::service
