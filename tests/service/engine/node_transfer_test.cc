// Goal: each ticket of a transfer past the head is for elements that travel: what is written goes once to all devices
// of a node that want it, and what is read comes from one shard each. Method: NodeTransfer alone, over devices made up.
#include "service/engine/node_transfer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

class NodeTransferTest : public testing::Test {
 protected:
  static constexpr int64_t kDevices = 8;
  static constexpr int64_t kDevicesOfNode = 4;

  NodeTransferTest() : session_(*store_.OpenSession("uid:1")) {
    for (int64_t device = 0; device < kDevices; ++device)
      devices_.push_back({.node = base::Cat("node", device / kDevicesOfNode), .is_here = device < kDevicesOfNode});
  }
  // A tensor of bytes, its first axis split.
  static TensorSpec Split(int64_t rows, int64_t columns) {
    std::vector<int64_t> all(kDevices);
    for (int64_t device = 0; device < kDevices; ++device) all[static_cast<size_t>(device)] = device;
    mesh::Sharding sharding = mesh::Sharding::Replicated(*mesh::DeviceMesh::Make({kDevices}, all), 2);
    sharding.axes[0] = {mesh::ParallelType::kMeshX};
    return {.dtype = DType::kBool, .shape = {rows, columns}, .stored_once = {false, false}, .sharding = sharding};
  }

  std::shared_ptr<ReleasedShards> released_ = std::make_shared<ReleasedShards>([] {});
  TensorStore store_{{.num_devices = kDevices, .tensor_bytes_max = 1 << 20, .on_devices = true}, released_};
  const std::string session_;
  std::vector<LocalDevice> devices_;
};

TEST_F(NodeTransferTest, WhatIsReadHasOneShardEachAndElements) {
  for (const int64_t rows : {2, 5, 7, 8, 9, 16, 17}) {
    SCOPED_TRACE(rows);
    const auto in = NodeTransfer::In(store_, session_, Split(rows, 100), {}, devices_);
    ASSERT_TRUE(in.ok()) << in.status().ToString();
    size_t shards = 0;
    for (const NodePart& part : (*in)->parts()) shards += part.ticket.shards.size();
    EXPECT_EQ(shards, static_cast<size_t>(kDevices));
    const auto out = NodeTransfer::Out((*in)->tensor(), std::nullopt, devices_);
    // Where the first node has all, it goes by the head.
    if (rows <= kDevicesOfNode) {
      EXPECT_EQ(out.status().code(), Code::kFailedPrecondition);
      continue;
    }
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    int64_t read = 0;
    for (const NodePart& part : (*out)->parts()) {
      EXPECT_EQ(part.ticket.shards.size(), 1U);
      EXPECT_GT(part.part.elements[0].size(), 0);
      read += part.part.elements[0].size();
    }
    EXPECT_EQ(read, rows);
  }
}

TEST_F(NodeTransferTest, WhatIsEmptyGoesByTheHead) {
  const auto in = NodeTransfer::In(store_, session_, Split(0, 100), {}, devices_);
  EXPECT_EQ(in.status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace hir::service
