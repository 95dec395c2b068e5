// Goal: what a tensor keeps of an error has a bound, and is shared by all that have it; who waits is called once, in
// order, or forgotten with all that it held. Method: by itself.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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

TEST(Readiness, WhoWaitsIsCalledInOrderOnce) {
  const auto readiness = std::make_shared<Readiness>(TensorState::kPending);
  Subscriptions subscriptions;
  std::vector<int> called;
  for (int i = 0; i < 3; ++i) subscriptions.WhenSettled(readiness, [&called, i] { called.push_back(i); });
  EXPECT_EQ(called, std::vector<int>());
  readiness->Settle({});
  EXPECT_EQ(called, (std::vector<int>{0, 1, 2}));
  subscriptions.WhenSettled(readiness, [&called] { called.push_back(3); });
  subscriptions.End();
  EXPECT_EQ(called, (std::vector<int>{0, 1, 2, 3})) << "at once";
}

TEST(Readiness, WhoHasGoneHoldsNothingAndIsNotCalled) {
  const auto readiness = std::make_shared<Readiness>(TensorState::kPending);
  Subscriptions gone, other;
  const auto held = std::make_shared<int>();
  bool called = false, others = false;
  const auto wait = [&] { gone.WhenSettled(readiness, [&called, held] { called = true; }); };
  wait();
  wait();
  other.WhenSettled(readiness, [&others] { others = true; });
  EXPECT_EQ(held.use_count(), 3);
  gone.End();
  EXPECT_EQ(held.use_count(), 1);
  wait();
  EXPECT_EQ(held.use_count(), 1) << "after its end";
  readiness->Settle({});
  EXPECT_FALSE(called);
  EXPECT_TRUE(others);
}

// As a call does that waits: what it waits with holds it.
TEST(Readiness, OneThatEndsFromWhatItCallsIsFine) {
  const auto readiness = std::make_shared<Readiness>(TensorState::kPending);
  auto subscriptions = std::make_shared<Subscriptions>();
  subscriptions->WhenSettled(readiness, [subscriptions] { subscriptions->End(); });
  std::weak_ptr<Subscriptions> left = subscriptions;
  subscriptions = nullptr;
  readiness->Settle({});
  EXPECT_TRUE(left.expired());
}

}  // namespace
}  // namespace hir::service
