// Goal: requests are carried out by rpc_threads threads; queued_rpcs_max wait for one, and the next is refused; so is
// the next when requests_max are under way.
// Method: a server in this process, whose threads the test keeps busy. Its engine has no workers: status needs none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/check.h"
#include "service/engine/engine.h"
#include "service/rpc/server.h"
#include "tests/service/support/daemon.h"

namespace hir::service {
namespace {

class RequestQueue : public testing::Test {
 protected:
  ~RequestQueue() override {
    Open();
    client_ = nullptr;
    server_ = nullptr;
    std::filesystem::remove_all(directory_);
  }

  void Serve(int64_t rpc_threads, int64_t queued_rpcs_max, int64_t requests_max = Limits().requests_max) {
    EngineOptions options;
    options.worker_path = "/nowhere/hostir-worker";
    options.limits = Resolved({}, {.memory_bytes = int64_t{1} << 30});
    options.limits.rpc_threads = rpc_threads;
    options.limits.queued_rpcs_max = queued_rpcs_max;
    options.limits.requests_max = requests_max;
    engine_ = std::make_unique<Engine>(options);
    std::string directory = (std::filesystem::temp_directory_path() / "hostir-test-XXXXXX").string();
    HIR_CHECK(mkdtemp(directory.data()) != nullptr);
    directory_ = directory;
    auto held = HeldAddress::Take({true, directory_ + "/socket"});
    HIR_CHECK(held.ok());
    auto server = Server::Start(*std::move(held), {}, *engine_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    client_ = std::make_unique<Client>(server_->address());
  }
  // Returns when one more thread is busy until Open.
  void Occupy() { Occupy(server_->pool()); }
  void OccupyTransfers() { Occupy(server_->bulk()); }
  void Occupy(base::WorkPool& pool) {
    auto begun = std::make_shared<std::promise<void>>();
    ASSERT_TRUE(pool.Post([begun, gate = gate_] {
      begun->set_value();
      gate.wait();
    }));
    begun->get_future().wait();
  }
  void Open() {
    if (!open_) opened_.set_value();
    open_ = true;
  }
  std::string Ask() {
    const auto context = client_->Context();
    pb::StatusReply reply;
    return Text(client_->stub().Status(context.get(), {}, &reply));
  }
  std::future<std::string> AskInBackground() {
    return std::async(std::launch::async, [this] { return Ask(); });
  }
  // Returns when `count` ask, and wait for a thread.
  std::vector<std::future<std::string>> AskAndWait(size_t count) {
    std::vector<std::future<std::string>> waiting;
    while (waiting.size() < count) {
      waiting.push_back(AskInBackground());
      WaitForQueued(waiting.size());
    }
    return waiting;
  }
  void WaitForQueued(size_t count) {
    while (server_->pool().num_queued() != count) std::this_thread::yield();
  }
  void WaitForQueuedTransfers(size_t count) {
    while (server_->bulk().num_queued() != count) std::this_thread::yield();
  }
  void QueueTransfer() {
    ASSERT_TRUE(server_->bulk().Post([] {}));
  }
  Client& client() { return *client_; }

 private:
  std::promise<void> opened_;
  const std::shared_future<void> gate_ = opened_.get_future().share();
  bool open_ = false;
  std::string directory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(RequestQueue, AtQueuedRpcsMax) {
  Serve(/*rpc_threads=*/1, /*queued_rpcs_max=*/2);
  Occupy();
  OccupyTransfers();
  for (int i = 0; i < 2; ++i) QueueTransfer();
  std::vector<std::future<std::string>> waiting = AskAndWait(2);
  const std::string refused =
      "RESOURCE_EXHAUSTED: queued_rpcs_max = 2: as many requests wait for a thread; try again "
      "later";
  EXPECT_EQ(Ask(), refused);
  EXPECT_EQ(Text(client().Upload(Header(pb::DTYPE_BOOL, {2}), "ab").status), refused);
  EXPECT_EQ(Text(client().Download("handle").status), refused);
  Open();
  for (auto& answer : waiting) EXPECT_EQ(answer.get(), "OK");
  EXPECT_EQ(Ask(), "OK");
}

TEST_F(RequestQueue, AtRequestsMax) {
  Serve(/*rpc_threads=*/1, /*queued_rpcs_max=*/100, /*requests_max=*/2);
  Occupy();
  std::vector<std::future<std::string>> waiting = AskAndWait(2);
  const std::string refused = "RESOURCE_EXHAUSTED: requests_max = 2: as many are under way; try again later";
  EXPECT_EQ(Ask(), refused);
  EXPECT_EQ(Text(client().Upload(Header(pb::DTYPE_BOOL, {2}), "ab").status), refused);
  EXPECT_EQ(Text(client().Download("handle").status), refused);
  EXPECT_EQ(Text(client().Run("program", {}).status), refused) << "though it needs no thread";
  EXPECT_EQ(Text(client().Free({"handle"})), refused);
  Open();
  for (auto& answer : waiting) EXPECT_EQ(answer.get(), "OK");
  // gRPC may have to be done with those first.
  EXPECT_TRUE(client().WaitUntil([](const pb::StatusReply& status) {
    return status.requests_under_way() == 1;  // This one.
  }));
}

// A byte may stand for gigabytes: who moves those has threads of its own.
TEST_F(RequestQueue, TransfersHoldUpNobodyElse) {
  Serve(/*rpc_threads=*/1, /*queued_rpcs_max=*/2);
  OccupyTransfers();
  EXPECT_EQ(Ask(), "OK");
}

TEST_F(RequestQueue, TransfersAreUnderWay) {
  Serve(/*rpc_threads=*/1, /*queued_rpcs_max=*/100, /*requests_max=*/2);
  OccupyTransfers();
  const auto uploading = client().Context(), downloading = client().Context();
  pb::UploadReply reply;
  const auto writer = client().stub().Upload(uploading.get(), &reply);
  pb::UploadRequest upload;
  *upload.mutable_header() = Header(pb::DTYPE_BOOL, {2});
  writer->Write(upload);
  WaitForQueuedTransfers(1);
  const auto reader = client().stub().Download(downloading.get(), {});
  WaitForQueuedTransfers(2);
  EXPECT_EQ(Ask(), "RESOURCE_EXHAUSTED: requests_max = 2: as many are under way; try again later");
  Open();
  EXPECT_NE(Text(writer->Finish()), "OK") << "no session";
  EXPECT_NE(Text(reader->Finish()), "OK");
  EXPECT_TRUE(client().WaitUntil([](const pb::StatusReply& status) { return status.requests_under_way() == 1; }));
}

TEST_F(RequestQueue, AtRpcThreads) {
  Serve(/*rpc_threads=*/2, /*queued_rpcs_max=*/2);
  Occupy();
  EXPECT_EQ(Ask(), "OK") << "the second thread";
  Occupy();
  auto waiting = AskInBackground();
  WaitForQueued(1);  // No third thread takes it.
  Open();
  EXPECT_EQ(waiting.get(), "OK");
}

}  // namespace
}  // namespace hir::service
