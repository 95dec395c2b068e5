// Goal: what a message costs is known before it is parsed, whatever it holds; what costs too much is refused unparsed.
// Method: messages built to be dear, their cost beside what protobuf says that they take; bytes that are no messages.
#include "service/rpc/admission.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "hostir/v1/service.pb.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

grpc::ByteBuffer BytesOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// The cost of a message that is `bytes` on the wire, which protobuf says takes as much.
void CheckCost(const google::protobuf::Message& like, const std::string& wire, const std::string& what) {
  const std::unique_ptr<google::protobuf::Message> parsed(like.New());
  ASSERT_TRUE(parsed->ParseFromString(wire)) << what;
  const auto taken = static_cast<int64_t>(parsed->SpaceUsedLong());
  grpc::ByteBuffer bytes = BytesOf(wire);
  const int64_t cost = CostOf(bytes, like, int64_t{1} << 60).value_or(-1);
  EXPECT_GE(cost, taken) << what;
  EXPECT_LE(cost, 5 * taken) << what;
  Admission enough(cost), little(cost - 1);
  Charge charge;
  EXPECT_TRUE(enough.Parse(bytes, "It", *parsed, charge).ok()) << what;
  EXPECT_EQ(charge.amount(), cost);
  parsed->Clear();
  EXPECT_EQ(little.Parse(bytes, "It", *parsed, charge).code(), Code::kResourceExhausted) << what;
  EXPECT_EQ(parsed->ByteSizeLong(), 0u) << what;
  EXPECT_EQ(charge.amount(), 0);
}

TEST(Admission, CostsWhatItTakes) {
  constexpr int kMany = 10000;
  pb::RunRequest run;
  CheckCost(run, run.SerializeAsString(), "nothing");
  for (int i = 0; i < kMany; ++i) run.add_args();
  CheckCost(run, run.SerializeAsString(), "empty arguments");
  for (pb::RunArg& arg : *run.mutable_args()) arg.set_handle("h");
  CheckCost(run, run.SerializeAsString(), "short handles");
  for (pb::RunArg& arg : *run.mutable_args()) arg.set_float_value(1);
  CheckCost(run, run.SerializeAsString(), "numbers");
  pb::FreeRequest free;
  for (int i = 0; i < kMany; ++i) free.add_handles("");
  CheckCost(free, free.SerializeAsString(), "empty handles");
  pb::UploadRequest upload;
  for (int i = 0; i < kMany; ++i) upload.mutable_header()->add_shape(1);
  CheckCost(upload, upload.SerializeAsString(), "a packed shape");
  upload.set_chunk(std::string(kMany, 'x'));
  CheckCost(upload, upload.SerializeAsString(), "a chunk");
  pb::ExplainRequest explain;
  for (int i = 0; i < kMany; ++i) (*explain.mutable_sizes())[std::to_string(i)] = i;
  CheckCost(explain, explain.SerializeAsString(), "a map");
  std::string unknown;
  for (int i = 0; i < kMany; ++i) unknown += std::string("\xa2\x06\x00", 3);  // Field 100, of no bytes.
  CheckCost(pb::StatusRequest(), unknown, "fields that nobody knows");
  unknown.clear();
  for (int i = 0; i < kMany; ++i) unknown += std::string("\xa3\x06\xa4\x06", 4);  // An empty group 100.
  CheckCost(pb::StatusRequest(), unknown, "groups that nobody knows");
  unknown.clear();
  for (int i = 0; i < kMany; ++i) unknown += std::string("\x10\x40", 2);  // A number in the place of a chunk.
  CheckCost(pb::UploadRequest(), unknown, "fields of another type");
}

// 16 MB of empty ops, each of which is hundreds of bytes, are counted no further than the limit.
TEST(Admission, RefusesWithoutObjects) {
  std::string ops;
  for (int i = 0; i < 1 << 23; ++i) ops += std::string("\x2a\x00", 2);
  pb::CompileRequest like;
  like.mutable_program()->mutable_program()->add_ops();
  ASSERT_NE(like.SerializeAsString().find(ops.substr(0, 2)), std::string::npos) << "the ops are field 5";
  const auto inside = [](int field, const std::string& body) {
    std::string length;
    for (size_t left = body.size(); left > 0; left >>= 7)
      length += static_cast<char>((left & 127) | (left > 127 ? 128 : 0));
    return static_cast<char>(field << 3 | 2) + length + body;
  };
  grpc::ByteBuffer bytes = BytesOf(inside(2, inside(2, ops)));
  Admission admission(int64_t{1} << 28);
  Charge charge;
  pb::CompileRequest request;
  const Status status = admission.Parse(bytes, "CompileRequest", request, charge);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(status.message().starts_with("requests_bytes_max = 268435456: 0 bytes of requests are in use, 268435"))
      << status.ToString();
  EXPECT_FALSE(request.has_program());
}

// Protobuf makes room for a text of the length that it claims, as far as 50 MB, before it sees that it is not there.
TEST(Admission, MakesNoRoomForClaims) {
  grpc::ByteBuffer bytes = BytesOf("\x0a\x80\x80\x80\x10only");  // 32 MiB of session_id.
  EXPECT_EQ(CostOf(bytes, pb::RunRequest(), int64_t{1} << 60), std::nullopt);
  Admission admission(1 << 20);
  Charge charge;
  pb::RunRequest request;
  EXPECT_EQ(admission.Parse(bytes, "RunRequest", request, charge).ToString(),
            "INVALID_ARGUMENT: the 9 bytes are no RunRequest");
  EXPECT_LT(request.SpaceUsedLong(), 1000u);
  EXPECT_EQ(charge.amount(), 0);
}

// Else the parser makes objects of bytes that were counted as the text that they are for who heeds the outer length.
TEST(Admission, AMessageThatEndsBehindItsHolder) {
  const std::string inner("\x12\x20\x2a\x00", 4);                                    // A program of 32 bytes,
  const std::string bytes = "\x12\x04" + inner + "\x0a\x1c" + std::string(28, 'x');  // in a source of 4.
  grpc::ByteBuffer buffer = BytesOf(bytes);
  EXPECT_EQ(CostOf(buffer, pb::CompileRequest(), int64_t{1} << 60), std::nullopt);
}

TEST(Admission, BytesThatAreNone) {
  google::protobuf::SetLogHandler(nullptr);
  pb::RunRequest run;
  run.set_session_id("session");
  run.add_args()->set_handle("handle");
  run.add_free("gone");
  const std::string whole = run.SerializeAsString();
  Admission admission(1 << 20);
  std::mt19937_64 random(1);
  int none = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (size_t k = random() % 3; k > 0 && !bytes.empty(); --k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    grpc::ByteBuffer buffer = BytesOf(bytes);
    Charge charge;
    pb::RunRequest parsed, expected;
    const Status status = admission.Parse(buffer, "RunRequest", parsed, charge);
    ASSERT_EQ(status.ok(), expected.ParseFromString(bytes));
    if (status.ok()) continue;
    ++none;
    EXPECT_EQ(status.ToString(), base::Cat("INVALID_ARGUMENT: the ", bytes.size(), " bytes are no RunRequest"));
  }
  EXPECT_GT(none, 1000);
  EXPECT_LT(none, 19000);
}

}  // namespace
}  // namespace hir::service
