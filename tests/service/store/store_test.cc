// Tensors of a cluster: what each node has room for, what a later head is told, and what it makes of it.
#include "service/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes down what it is told.
class Diary final : public Journal {
 public:
  void Opened(const std::string&, const std::string& principal, int64_t lease_ms) override {
    lines.push_back(base::Cat("opened ", principal, " ", lease_ms));
  }
  void Closed(const std::string&) override { lines.emplace_back("closed"); }
  void Added(const std::string&, const std::string&, const Tensor& tensor) override {
    lines.push_back(base::Cat("added ", tensor.shards().shards().front().id));
  }
  void Freed(const std::string&) override { lines.emplace_back("freed"); }
  void Named(const std::string& owner, const std::string& name, bool everyone, const Tensor* tensor,
             const std::string* program) override {
    lines.push_back(base::Cat("named ", owner, " ", name, everyone ? " for all" : "",
                              tensor != nullptr ? " tensor" : "", program != nullptr ? " program" : ""));
  }
  void Withdrawn(const std::string& owner, const std::string& name) override {
    lines.push_back(base::Cat("withdrawn ", owner, " ", name));
  }
  void Drained(int64_t, bool) override {}
  void WhenKept(std::function<void(const Status&)> done) override { done({}); }

  std::vector<std::string> lines;
};

TensorSpec SpecOn(std::vector<int64_t> devices, int64_t elements) {
  TensorSpec spec;
  spec.shape = {elements};
  spec.stored_once = {false};
  spec.sharding = mesh::Sharding::Replicated(*mesh::DeviceMesh::Make({std::ssize(devices)}, devices), 1);
  return spec;
}

struct StoreTest : ::testing::Test {
  std::shared_ptr<ReleasedShards> released = std::make_shared<ReleasedShards>([] {});
  std::shared_ptr<Diary> diary = std::make_shared<Diary>();
  StoreOptions options = {.num_devices = 4,
                          .on_devices = true,
                          .journal = diary,
                          .first_shard = 1000,
                          .nodes = {{"node 0 (a)", 2, 100}, {"node 1 (b)", 2, 50}}};
};

TEST_F(StoreTest, ANodeThatHasNoRoomIsNamed) {
  TensorStore store(options, released);
  const std::string session = *store.OpenSession();
  const auto output = [&](std::vector<int64_t> devices, int64_t elements) {
    return store.Allocate(session, SpecOn(std::move(devices), elements), TensorStore::Use::kOutput);
  };
  auto all = output({0, 1, 2, 3}, 5);  // 20 bytes each: 40 of each node.
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  const auto more = output({3}, 5);
  EXPECT_EQ(more.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(more.status().ToString(), HasSubstr("tensor_bytes_max of node 1 (b) = 50: 40 bytes of tensors there"));
  EXPECT_TRUE(output({0}, 5).ok());
  EXPECT_EQ(store.tensor_bytes(), 80);  // What was refused took nothing.
  all = Status(Code::kCancelled, "freed");
  EXPECT_TRUE(output({3}, 5).ok());
}

// A handle goes on with another tensor in its memory where nobody else can read that: not by a handle, a name, a
// pointer or what a download holds; nor where a later daemon would find it.
TEST_F(StoreTest, AHandleGoesOnInItsMemory) {
  const StoreOptions on_host = {.num_devices = 1};
  TensorStore store(on_host, released);
  const std::string session = *store.OpenSession();
  const TensorSpec spec = SpecOn({0}, 4);
  const auto make = [&] {
    return std::make_shared<Tensor>(spec, *store.Allocate(session, spec, TensorStore::Use::kOutput),
                                    TensorState::kReady);
  };
  std::shared_ptr<Tensor> old = make();
  const std::string handle = *store.AddHandle(session, old);
  const auto made = [&] { return std::make_shared<Tensor>(spec, old->shared_shards(), TensorState::kPending); };

  const std::string second = *store.AddHandle(session, old);
  EXPECT_FALSE(store.Replace(session, handle, old, made()));
  ASSERT_TRUE(store.Free(session, std::vector<std::string>{second}).ok());
  ASSERT_TRUE(store.Publish(session, handle, "weights", /*everyone=*/false).ok());
  EXPECT_FALSE(store.Replace(session, handle, old, made()));
  ASSERT_TRUE(store.Withdraw(session, "weights").ok());
  {
    const std::shared_ptr<Tensor> reader = old;
    EXPECT_FALSE(store.Replace(session, handle, old, made()));
  }
  {
    const std::shared_ptr<HostShards> download = old->shards().host();
    EXPECT_FALSE(store.Replace(session, handle, old, made()));
  }
  old->shards().is_seen_by_others = true;
  EXPECT_FALSE(store.Replace(session, handle, old, made()));
  old->shards().is_seen_by_others = false;
  EXPECT_FALSE(store.Replace(session, handle, make(), made())) << "it stands for another";
  EXPECT_FALSE(store.Replace("nobody's", handle, old, made()));

  const std::shared_ptr<Tensor> next = made();
  ASSERT_TRUE(store.Replace(session, handle, old, next));
  EXPECT_EQ(*store.Find(session, handle), next);
  EXPECT_EQ(store.num_tensors(), 1);
  const int64_t bytes = store.tensor_bytes();
  store.PutBack(session, handle, old);  // The run was refused.
  EXPECT_EQ(*store.Find(session, handle), old);
  EXPECT_EQ(store.num_tensors(), 1);
  EXPECT_EQ(store.tensor_bytes(), bytes);
  ASSERT_TRUE(store.Free(session, std::vector<std::string>{handle}).ok());
  EXPECT_EQ(store.num_tensors(), 0);
  store.PutBack(session, handle, old);  // It was freed meanwhile.
  EXPECT_EQ(store.num_tensors(), 0);

  TensorStore followed(options, released);
  const std::string there = *followed.OpenSession();
  auto shards = *followed.Allocate(there, SpecOn({1}, 4), TensorStore::Use::kOutput);
  const auto kept = std::make_shared<Tensor>(SpecOn({1}, 4), std::move(shards), TensorState::kReady);
  const std::string of_kept = *followed.AddHandle(there, kept);
  EXPECT_FALSE(followed.Replace(there, of_kept, kept,
                                std::make_shared<Tensor>(kept->spec(), kept->shared_shards(), TensorState::kPending)));
}

TEST_F(StoreTest, ALaterOneIsToldInOrder) {
  TensorStore store(options, released);
  const std::string session = *store.OpenSession("alice", 5000);
  auto shards = *store.Allocate(session, SpecOn({1, 2}, 4), TensorStore::Use::kOutput);
  const auto tensor = std::make_shared<Tensor>(SpecOn({1, 2}, 4), std::move(shards), TensorState::kReady);
  const std::string handle = *store.AddHandle(session, tensor);
  ASSERT_TRUE(store.Publish(session, handle, "weights", /*everyone=*/true).ok());
  ASSERT_TRUE(store.PublishProgram(session, "text", "mlp", /*everyone=*/false).ok());
  ASSERT_TRUE(store.Free(session, std::vector<std::string>{handle}).ok());
  ASSERT_TRUE(store.Withdraw(session, "weights").ok());
  const std::string again = *store.AddHandle(session, tensor);
  store.CloseSession(session);
  EXPECT_THAT(diary->lines, ElementsAre("opened alice 5000", "added 1000", "named alice weights for all tensor",
                                        "named alice mlp program", "freed", "withdrawn alice weights", "added 1000",
                                        "freed", "closed"));
  diary->lines.clear();
  const std::string other = *store.OpenSession("bob", 0);
  store.EndJournal();
  store.CloseSession(other);
  EXPECT_THAT(diary->lines, ElementsAre("opened bob 0"));
}

// Sessions end with the daemon, and what they have does not go: nodes that heard of it would drop their parts.
TEST_F(StoreTest, WhatALaterOneGoesOnWithIsNotReleased) {
  TensorStore store(options, released);
  const std::string session = *store.OpenSession("alice", 5000);
  const auto add = [&] {
    auto shards = *store.Allocate(session, SpecOn({1, 2}, 4), TensorStore::Use::kOutput);
    return *store.AddHandle(session,
                            std::make_shared<Tensor>(SpecOn({1, 2}, 4), std::move(shards), TensorState::kReady));
  };
  const std::string freed = add();
  add();
  ASSERT_TRUE(store.Free(session, std::vector<std::string>{freed}).ok());
  EXPECT_EQ(released->Take().size(), 2U);
  store.EndJournal();
  store.CloseSession(session);
  EXPECT_THAT(released->Take(), ElementsAre());
}

TEST_F(StoreTest, ItGoesOnWithWhatThereWas) {
  const TensorSpec spec = SpecOn({0, 2}, 4);
  Inheritance inheritance;
  inheritance.sessions = {{"s", "alice", 5000}};
  const Inheritance::Tensor kept = {spec, {{0, 7, 16}, {2, 8, 16}}, {}};
  const Inheritance::Tensor gone = {spec, {{0, 9, 16}, {2, 10, 16}}, Status(Code::kDataLoss, "it was on node 1")};
  inheritance.handles = {{"s", "h", kept}, {"s", "g", gone}, {"nobody's", "x", kept}};
  inheritance.names = {{.owner = "alice", .name = "weights", .everyone = true, .tensor = kept},
                       {.owner = "bob", .name = "mlp", .everyone = false, .program = "text"}};
  TensorStore store(options, released);
  const auto tensors = store.Inherit(inheritance);
  EXPECT_EQ(tensors.size(), 2U);
  EXPECT_EQ(store.PrincipalOf("s"), "alice");
  const auto found = store.Find("s", "h");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)->condition().state, TensorState::kReady);
  EXPECT_EQ((*store.Find("s", "g"))->condition().state, TensorState::kLost);
  EXPECT_EQ((*store.Find("s", "g"))->condition().error.code(), Code::kDataLoss);
  EXPECT_EQ(store.FindNamed("s", "", "weights")->tensor, *found);  // One tensor, by two names.
  EXPECT_EQ(store.FindNamed("s", "bob", "mlp").status().code(), Code::kNotFound);
  EXPECT_EQ(*store.FindNamed(*store.OpenSession("bob"), "", "mlp")->program, "text");
  EXPECT_EQ(store.tensor_bytes(), 32 + 4);
  // New shards have numbers that no other head gave.
  const auto made = *store.Allocate("s", spec, TensorStore::Use::kOutput);
  EXPECT_EQ(made->shards().front().id, 1000);
}

}  // namespace
}  // namespace hir::service
