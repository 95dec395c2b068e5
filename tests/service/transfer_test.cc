// Goal: tensors come back as they were put, for every dtype and sharding; what is wrong with an upload
// is said, and nothing is left of it. Method: a real daemon on two devices.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "tests/service/support/daemon.h"

namespace hir::service {
namespace {

constexpr int64_t kElementBytes[] = {0, 1, 4, 8, 2, 2, 4, 8};  // By pb::DType.

std::string RandomBytes(base::Prng& prng, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  for (char& byte : bytes) byte = static_cast<char>(prng.Below(256));
  return bytes;
}

class Transfer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon = new Daemon({"--devices=cpu:4", "--chunk-bytes-max=65536", "--tensor-bytes-max=1000000"});
  }
  static void TearDownTestSuite() {
    delete daemon;
    daemon = nullptr;
  }
  // What the upload of `bytes` under `header` answers; nothing must be left of it.
  std::string Refusal(const pb::UploadHeader& header, const std::string& bytes, size_t chunk_bytes = 1 << 16) {
    const std::string text = Text(client.Upload(header, bytes, chunk_bytes).status);
    EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 0; })) << text;
    return text;
  }

  static Daemon* daemon;
  Client client{*daemon};
};
Daemon* Transfer::daemon = nullptr;

TEST_F(Transfer, RandomTensorsComeBack) {
  struct Layout {
    std::vector<int64_t> mesh, axes;
  };
  const std::vector<Layout> layouts = {{{}, {}},         {{4}, {-1}},      {{4}, {0}},        {{2}, {2}},
                                       {{2, 2}, {0, 1}}, {{2, 2}, {1, 1}}, {{2, 2}, {-1, 2}}, {{2, 1, 2}, {2, -1, 0}}};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Prng prng(seed);
    const auto dtype = static_cast<pb::DType>(prng.Between(pb::DTYPE_BOOL, pb::DTYPE_FLOAT64));
    const Layout& layout = layouts[static_cast<size_t>(prng.Below(std::ssize(layouts)))];
    std::vector<int64_t> shape = {4 * prng.Between(0, 3), 4 * prng.Between(1, 5), 4 * prng.Between(1, 5)};
    pb::UploadHeader header = Header(dtype, shape, layout.mesh, layout.axes);
    int64_t sent = kElementBytes[dtype];
    for (int64_t& extent : shape) {
      header.add_sent_once(prng.OneIn(4));
      sent *= header.sent_once(header.sent_once_size() - 1) && extent > 0 ? 1 : extent;
    }
    if (prng.OneIn(2)) {
      for (const int64_t axis : prng.OneIn(2) ? std::vector<int64_t>{2, 0, 1} : std::vector<int64_t>{1, 0, 2})
        header.add_memory_order(axis);
    }
    const std::string bytes = RandomBytes(prng, sent);
    const Client::Put put = client.Upload(header, bytes, static_cast<size_t>(prng.Between(1, 3000)));
    ASSERT_EQ(Text(put.status), "OK") << "seed " << seed << " " << header.ShortDebugString();
    const Client::Got got = client.Download(put.tensor.handle());
    ASSERT_EQ(Text(got.status), "OK") << "seed " << seed;
    EXPECT_EQ(got.bytes, bytes) << "seed " << seed << " " << header.ShortDebugString();
    EXPECT_EQ(got.header.shape_size(), 3);
    EXPECT_EQ(put.tensor.spec().shape(2), shape[2]);
    EXPECT_EQ(got.header.shape(2),
              shape[static_cast<size_t>(header.memory_order_size() > 0 ? header.memory_order(2) : 2)]);
    EXPECT_EQ(got.header.total_bytes(), sent);
    EXPECT_EQ(Text(client.Free({put.tensor.handle()})), "OK");
  }
  // The last download lets go of its tensor a moment after its last byte.
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 0; }));
}

TEST_F(Transfer, OneShardAlone) {
  const Client::Put put = client.Upload(Header(pb::DTYPE_BOOL, {4, 2}, {2, 2}, {1, 0}), "abcdefgh");
  ASSERT_EQ(Text(put.status), "OK");
  // Mesh [[0, 1], [2, 3]]: rows split over mesh_x, columns over mesh_y.
  EXPECT_EQ(client.Download(put.tensor.handle(), 0).bytes, "ac");
  EXPECT_EQ(client.Download(put.tensor.handle(), 1).bytes, "eg");
  EXPECT_EQ(client.Download(put.tensor.handle(), 2).bytes, "bd");
  EXPECT_EQ(client.Download(put.tensor.handle(), 3).bytes, "fh");
  EXPECT_EQ(Text(client.Download(put.tensor.handle(), 4).status),
            "INVALID_ARGUMENT: device 4 holds no shard: the tensor lies on [[0, 1], [2, 3]], axis "
            "0 split 2 ways over "
            "mesh_x; axis 1 split 2 ways over mesh_y");
  EXPECT_EQ(Text(client.Download(put.tensor.handle(), -5).status),
            "INVALID_ARGUMENT: device -5 holds no shard: the tensor lies on [[0, 1], [2, 3]], axis "
            "0 split 2 ways over mesh_x; axis 1 split 2 ways over mesh_y");
  pb::ShardsRequest request;
  request.set_session_id(client.session());
  request.set_handle(put.tensor.handle());
  pb::ShardsReply reply;
  const auto context = client.Context();
  ASSERT_EQ(Text(client.stub().Shards(context.get(), request, &reply)), "OK");
  ASSERT_EQ(reply.shards_size(), 4);
  EXPECT_EQ(reply.shards(1).ShortDebugString(), "device: 1 start: 2 start: 0 extent: 2 extent: 1 step: 1 step: 1");
}

TEST_F(Transfer, AxesInTheOrderOfMemory) {
  pb::UploadHeader header = Header(pb::DTYPE_BOOL, {2, 3}, {2}, {0});
  for (const int64_t axis : {1, 0}) header.add_memory_order(axis);
  const Client::Put put = client.Upload(header, "abcdef");  // Columns, one after the other.
  ASSERT_EQ(Text(put.status), "OK");
  EXPECT_EQ(client.Download(put.tensor.handle()).bytes, "abcdef");
  EXPECT_EQ(client.Download(put.tensor.handle(), 0).bytes, "ace");
  const Client::Got row = client.Download(put.tensor.handle(), 1);
  EXPECT_EQ(row.bytes, "bdf");
  EXPECT_EQ(row.header.ShortDebugString(),
            "dtype: DTYPE_BOOL shape: 3 shape: 1 sent_once: false sent_once: false total_bytes: 3 memory_order: 1 "
            "memory_order: 0");
  EXPECT_EQ(put.tensor.spec().shape(0), 2);
  EXPECT_EQ(put.tensor.spec().memory_order(0), 1);
  header.add_memory_order(0);
  EXPECT_EQ(Text(client.Upload(header, "abcdef").status),
            "INVALID_ARGUMENT: memory_order [1, 0, 0] is not a permutation of the 2 axes");
}

TEST_F(Transfer, DealtShards) {
  pb::UploadHeader header = Header(pb::DTYPE_BOOL, {6, 2}, {2, 2}, {1, 0});
  for (const bool dealt : {false, true}) header.mutable_sharding()->add_dealt(dealt);
  const Client::Put put = client.Upload(header, "abcdefghijkl");
  ASSERT_EQ(Text(put.status), "OK");
  // Rows dealt over mesh_x, columns split over mesh_y.
  EXPECT_EQ(client.Download(put.tensor.handle()).bytes, "abcdefghijkl");
  EXPECT_EQ(client.Download(put.tensor.handle(), 0).bytes, "aei");
  EXPECT_EQ(client.Download(put.tensor.handle(), 1).bytes, "cgk");
  EXPECT_EQ(client.Download(put.tensor.handle(), 3).bytes, "dhl");
  pb::ShardsRequest request;
  request.set_session_id(client.session());
  request.set_handle(put.tensor.handle());
  pb::ShardsReply reply;
  const auto context = client.Context();
  ASSERT_EQ(Text(client.stub().Shards(context.get(), request, &reply)), "OK");
  EXPECT_EQ(reply.shards(3).ShortDebugString(), "device: 3 start: 1 start: 1 extent: 3 extent: 1 step: 2 step: 1");
  header.set_shape(0, 5);
  EXPECT_EQ(Text(client.Upload(header, "abcdefghij").status),
            "INVALID_ARGUMENT: axis 0 dealt 2 ways over mesh_x has 5 elements, and elements are "
            "dealt in whole turns: make its extent a multiple of 2 (pad), or use an outer split");
}

TEST_F(Transfer, UnevenShards) {
  const Client::Put put = client.Upload(Header(pb::DTYPE_BOOL, {5, 3}, {4}, {0}), "abcdefghijklmno");
  ASSERT_EQ(Text(put.status), "OK");
  EXPECT_EQ(put.tensor.stored_bytes(), 4 * 2 * 3);  // With padding.
  EXPECT_EQ(client.Download(put.tensor.handle()).bytes, "abcdefghijklmno");
  EXPECT_EQ(client.Download(put.tensor.handle(), 0).bytes, "abcdef");
  const Client::Got last = client.Download(put.tensor.handle(), 2);
  EXPECT_EQ(last.bytes, "mno");
  EXPECT_EQ(last.header.shape(0), 1);
  const Client::Got none = client.Download(put.tensor.handle(), 3);
  EXPECT_EQ(Text(none.status), "OK");
  EXPECT_EQ(none.bytes, "");
  EXPECT_EQ(none.header.shape(0), 0);
  // Along the inner axis, rows of a shard lie a whole block apart.
  const Client::Put columns = client.Upload(Header(pb::DTYPE_BOOL, {2, 5}, {2}, {1}), "abcdefghij");
  ASSERT_EQ(Text(columns.status), "OK");
  EXPECT_EQ(client.Download(columns.tensor.handle()).bytes, "abcdefghij");
  EXPECT_EQ(client.Download(columns.tensor.handle(), 1).bytes, "deij");
}

TEST_F(Transfer, LongerOrShorterThanDeclared) {
  const pb::UploadHeader header = Header(pb::DTYPE_FLOAT32, {2, 3});
  EXPECT_EQ(Refusal(header, std::string(23, 'x')),
            "INVALID_ARGUMENT: the upload ended after 23 of the 24 bytes of f32[2, 3] on [0], "
            "replicated");
  EXPECT_EQ(Refusal(header, std::string(25, 'x')),
            "INVALID_ARGUMENT: the upload is longer than the 24 bytes of f32[2, 3] on [0], replicated");
  EXPECT_EQ(Refusal(header, ""),
            "INVALID_ARGUMENT: the upload ended after 0 of the 24 bytes of f32[2, 3] on [0], replicated");
  EXPECT_EQ(Refusal(Header(pb::DTYPE_FLOAT32, {0, 3}), "x"),
            "INVALID_ARGUMENT: the upload is longer than the 0 bytes of f32[0, 3] on [0], replicated");
}

TEST_F(Transfer, NothingIsLeftOfOneThatIsCancelledAfterItsLastByte) {
  const auto context = client.Context();
  pb::UploadReply reply;
  const auto writer = client.stub().Upload(context.get(), &reply);
  pb::UploadRequest request;
  *request.mutable_header() = Header(pb::DTYPE_BOOL, {4});
  request.mutable_header()->set_session_id(client.session());
  writer->Write(request);
  request.set_chunk("abcd");
  writer->Write(request);
  EXPECT_TRUE(client.WaitUntil([](const pb::StatusReply& status) { return status.tensor_bytes() == 4; }));
  context->TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  pb::StatusReply after;
  EXPECT_TRUE(client.WaitUntil([&](const pb::StatusReply& status) {
    after = status;
    // This one alone; the other's bytes go a moment after it is counted as over.
    return status.requests_under_way() == 1 && status.tensor_bytes() == 0;
  }));
  EXPECT_EQ(after.tensors(), 0);
}

TEST_F(Transfer, HeadersThatMakeNoSense) {
  EXPECT_EQ(Refusal(Header(pb::DTYPE_UNSPECIFIED, {2}), ""), "INVALID_ARGUMENT: no dtype has the number 0");
  EXPECT_EQ(Refusal(Header(pb::DTYPE_BOOL, {-2}), ""), "INVALID_ARGUMENT: axis 0 has extent -2; it must be 0 or more");
  EXPECT_EQ(Refusal(Header(pb::DTYPE_BOOL, {5}, {5}, {0}), ""),
            "INVALID_ARGUMENT: mesh [0, 1, 2, 3, 4] names device 4; this daemon has devices 0 to 3");
  EXPECT_EQ(Refusal(Header(pb::DTYPE_BOOL, {4}, {2}, {1}), ""),
            "INVALID_ARGUMENT: a sharding splits axis 1 of a tensor of 1 axes");
  EXPECT_EQ(Refusal(Header(pb::DTYPE_BOOL, {4}, {2}, {0, 0}), ""),
            "INVALID_ARGUMENT: a sharding names 2 axes for a mesh of 1 dimensions");
  pb::UploadHeader twice = Header(pb::DTYPE_BOOL, {4}, {2}, {0});
  twice.mutable_sharding()->mutable_mesh()->set_devices(1, 0);
  EXPECT_NE(Refusal(twice, "").find("INVALID_ARGUMENT: "), std::string::npos);
  pb::UploadHeader flags = Header(pb::DTYPE_BOOL, {4});
  flags.add_sent_once(true);
  flags.add_sent_once(true);
  EXPECT_EQ(Refusal(flags, ""), "INVALID_ARGUMENT: 2 sent-once flags for 1 axes");
  pb::UploadHeader stranger = Header(pb::DTYPE_BOOL, {4});
  stranger.set_session_id("nobody");
  EXPECT_EQ(Refusal(stranger, "abcd"), "FAILED_PRECONDITION: no such session: its Connect stream has ended");
}

TEST_F(Transfer, MessagesOutOfOrder) {
  const auto refused = [&](const std::vector<pb::UploadRequest>& requests) {
    const auto context = client.Context();
    pb::UploadReply reply;
    const auto writer = client.stub().Upload(context.get(), &reply);
    for (const pb::UploadRequest& request : requests) writer->Write(request);
    writer->WritesDone();
    return Text(writer->Finish());
  };
  pb::UploadRequest header, chunk;
  *header.mutable_header() = Header(pb::DTYPE_BOOL, {2});
  header.mutable_header()->set_session_id(client.session());
  chunk.set_chunk("ab");
  EXPECT_EQ(refused({}), "INVALID_ARGUMENT: an upload without a header");
  EXPECT_EQ(refused({chunk}), "INVALID_ARGUMENT: a chunk before the header of an upload");
  EXPECT_EQ(refused({header, header}), "INVALID_ARGUMENT: a second header in an upload");
  EXPECT_EQ(refused({header, {}}), "INVALID_ARGUMENT: an empty message in an upload");
  EXPECT_EQ(refused({header, chunk}), "OK");
}

TEST_F(Transfer, AtTheLimits) {
  const pb::UploadHeader header = Header(pb::DTYPE_BOOL, {65537});
  EXPECT_EQ(Refusal(header, std::string(65537, 'x'), 65537),
            "RESOURCE_EXHAUSTED: chunk_bytes_max = 65536: a chunk has 65537 bytes; send smaller ones");
  EXPECT_EQ(Text(client.Upload(header, std::string(65537, 'x'), 65536).status), "OK");
  // 65537 bytes are in use; replicated on 4 devices, 233615 fit exactly, 233616 do not.
  const Client::Put fits = client.Upload(Header(pb::DTYPE_BOOL, {233615}, {4}, {-1}), std::string(233615, 'x'));
  EXPECT_EQ(Text(fits.status), "OK");
  EXPECT_EQ(client.Status().tensor_bytes(), 65537 + 4 * 233615);
  EXPECT_EQ(Text(client.Free({fits.tensor.handle()})), "OK");
  const Client::Put exceeds = client.Upload(Header(pb::DTYPE_BOOL, {233616}, {4}, {-1}), std::string(233616, 'x'));
  EXPECT_EQ(Text(exceeds.status),
            "RESOURCE_EXHAUSTED: tensor_bytes_max = 1000000: 851969 bytes of tensors are in use, "
            "148032 more were asked "
            "for; free some, or start the daemon with a higher limit");
  // The next is served, and what never came costs nothing.
  EXPECT_EQ(Text(client.Upload(Header(pb::DTYPE_BOOL, {3}), "abc").status), "OK");
  EXPECT_EQ(client.Status().tensor_bytes(), 65537 + 3);
  EXPECT_EQ(Text(client.Upload(Header(pb::DTYPE_BOOL, {int64_t{1} << 40}), "abc").status),
            "RESOURCE_EXHAUSTED: tensor_bytes_max = 1000000: bool[1099511627776] on [0], "
            "replicated takes 1099511627776 "
            "bytes on each of 1 devices; start the daemon with a higher limit");
}

}  // namespace
}  // namespace hir::service
