// Goal: programs run on tensors that fit them, and what does not fit is refused with both sides.
// Method: a real daemon on two devices, with its planner and workers.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

class Run : public testing::Test {
 protected:
  static void SetUpTestSuite() { daemon = new Daemon({"--devices=cpu:2", "--program-bytes-max=4096"}); }
  static void TearDownTestSuite() {
    delete daemon;
    daemon = nullptr;
  }
  std::string Put(const std::vector<float>& values, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& mesh = {}, const std::vector<int64_t>& axes = {}) {
    const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, shape, mesh, axes), Bytes(values));
    EXPECT_EQ(Text(put.status), "OK");
    return put.tensor.handle();
  }
  std::string Id(const std::string& text) {
    const Client::Compiled compiled = client.Compile(text);
    EXPECT_EQ(Text(compiled.status), "OK") << text;
    return compiled.reply.program_id();
  }
  std::vector<float> Values(const pb::Tensor& tensor) {
    const Client::Got got = client.Download(tensor.handle());
    EXPECT_EQ(Text(got.status), "OK");
    return Floats(got.bytes);
  }

  static Daemon* daemon;
  Client client{*daemon};
};
Daemon* Run::daemon = nullptr;

TEST_F(Run, ResultsStayAndGoIntoTheNextRun) {
  const std::string double_it = Id(R"(mesh @m = [0, 1]
fusion @double(%x: f32[i0, i1] {mesh=@m, shard(0, mesh_x)}) {
  %y = add(%x, %x)
  return %y
}
)");
  const std::string x = Put({1, 2, 3, 4}, {2, 2}, {2}, {0});
  // Queued without waiting: the order is kept.
  const Client::Ran first = client.Run(double_it, {x}, /*wait=*/false);
  ASSERT_EQ(Text(first.status), "OK");
  const Client::Ran second = client.Run(double_it, {first.reply.outputs(0).handle()}, /*wait=*/false);
  ASSERT_EQ(Text(second.status), "OK");
  EXPECT_EQ(second.reply.run_id(), first.reply.run_id() + 1);
  const Client::Ran sums = client.Run(Id(kColumnSums), {second.reply.outputs(0).handle()});
  ASSERT_EQ(Text(sums.status), "OK");
  EXPECT_EQ(sums.reply.outputs(0).state(), pb::TENSOR_STATE_READY);
  EXPECT_EQ(Values(sums.reply.outputs(0)), (std::vector<float>{16, 24}));
  EXPECT_EQ(Values(first.reply.outputs(0)), (std::vector<float>{2, 4, 6, 8}));
}

// Elements in the request: of two ranks' input, beside one by handle; freed with the run, or with its refusal.
TEST_F(Run, TakesInputsByValue) {
  const std::string sum = Id(R"(mesh @m = [0, 1]
fusion @sum(%x: f32[i0, i1] {mesh=@m, shard(0, mesh_x)}, %y: f32[i1] {mesh=@m}) {
  %z = add(%x, %y)
  return %z
}
)");
  const std::string x = Put({1, 2, 3, 4}, {2, 2}, {2}, {0});
  const int64_t tensors = client.Status().tensors(), requests = client.Status().requests();
  pb::RunRequest request;
  request.set_session_id(client.session());
  request.set_program_id(sum);
  request.set_wait(true);
  request.add_args()->set_handle(x);
  pb::TensorValue& y = *request.add_args()->mutable_tensor();
  y.set_dtype(pb::DTYPE_FLOAT32);
  y.add_shape(2);
  y.set_elements(Bytes({10, 20}));
  const auto run = [&] {
    pb::RunReply reply;
    const auto context = client.Context();
    const grpc::Status status = client.stub().Run(context.get(), request, &reply);
    return std::pair(Text(status), reply);
  };
  const auto [status, reply] = run();
  ASSERT_EQ(status, "OK");
  EXPECT_EQ(Values(reply.outputs(0)), (std::vector<float>{11, 22, 13, 24}));
  EXPECT_EQ(client.Status().tensors(), tensors + 1) << "the result's";
  EXPECT_EQ(client.Status().requests(), requests + 4) << "three looks, a download and the run";
  y.add_sent_once(true);
  y.set_elements(Bytes({10}));
  EXPECT_EQ(Values(run().second.outputs(0)), (std::vector<float>{11, 12, 13, 14}));
  y.clear_sent_once();
  EXPECT_EQ(run().first,
            "INVALID_ARGUMENT: input 1: the upload ended after 4 of the 8 bytes "
            "of f32[2] on [0, 1], replicated");
  y.set_dtype(pb::DTYPE_FLOAT64);
  EXPECT_EQ(run().first, "INVALID_ARGUMENT: input 1 (y): the tensor is f64; the program wants f32");
  y.set_dtype(pb::DTYPE_FLOAT32);
  y.set_elements(Bytes({10, 20, 30}));
  y.set_shape(0, 3);
  EXPECT_EQ(run().first,
            "INVALID_ARGUMENT: input 1 (y): axis 0 has extent 3; "
            "the program wants i1 = 2 (i0 = 2, i1 = 2)");
  request.mutable_args(0)->mutable_tensor()->set_dtype(pb::DTYPE_FLOAT32);
  EXPECT_EQ(run().first, "INVALID_ARGUMENT: input 0 (x): the tensor has 0 axes; the program wants f32[i0, i1]");
  EXPECT_EQ(client.Status().tensors(), tensors + 2) << "the results'";
}

// What is gone already is passed over, what is not is freed whatever comes of the run, and what the run reads is not
// there.
TEST_F(Run, FreesFirst) {
  const std::string negate = Id(R"(fusion @negate(%x: f32[i0]) {
  %y = neg(%x)
  return %y
}
)");
  const std::string x = Put({1, 2}, {2}), old = Put({3}, {1}), gone = Put({4}, {1});
  ASSERT_EQ(Text(client.Free({gone})), "OK");
  const int64_t tensors = client.Status().tensors(), requests = client.Status().requests();
  const Client::Ran ran = client.Run(negate, {x}, true, {gone, old, old, "nobody's"});
  ASSERT_EQ(Text(ran.status), "OK");
  EXPECT_EQ(client.Status().tensors(), tensors) << "one came, one went";
  EXPECT_EQ(client.Status().requests(), requests + 3) << "the run, and two questions";
  EXPECT_EQ(Values(ran.reply.outputs(0)), (std::vector<float>{-1, -2}));
  EXPECT_EQ(client.Download(old).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  const std::string y = ran.reply.outputs(0).handle();
  EXPECT_EQ(client.Run("no program", {x}, true, {y}).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client.Download(y).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.Run(negate, {x}, true, {x}).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// More than gRPC's own thread lets go of.
TEST_F(Run, FreesMuchFirst) {
  const std::string negate = Id(R"(fusion @negate(%x: f32[i0]) {
  %y = neg(%x)
  return %y
}
)");
  const std::vector<float> ones(1 << 19, 1.0F);
  std::string before = Put(ones, {1 << 19});
  const std::string x = Put(ones, {1 << 19});
  const int64_t bytes = client.Status().tensor_bytes();
  for (int round = 0; round < 8; ++round) {
    const Client::Ran ran = client.Run(negate, {x}, round % 2 == 0, {before});
    ASSERT_EQ(Text(ran.status), "OK");
    before = ran.reply.outputs(0).handle();
  }
  EXPECT_EQ(Values(client.Run(negate, {before}).reply.outputs(0)).back(), 1.0F);
  ASSERT_EQ(Text(client.Free({before})), "OK");
  EXPECT_EQ(client.Status().tensor_bytes(), bytes) << "x, and what the last run made";
}

TEST_F(Run, TheSameProgramIsPlannedOnce) {
  const int64_t before = client.Status().programs();
  EXPECT_EQ(Id(kColumnSums), Id(kColumnSums));
  EXPECT_LE(client.Status().programs(), before + 1);
}

// Only a kernel would compute it: 8 * 2^60 is beyond 64 bits.
TEST_F(Run, AnExtentOverflowsThatNoTensorInMemoryHas) {
  const std::string id = Id(R"(fusion @f(%x: f32[i0]) {
  %y = full() {shape=[i0 * 1152921504606846976], value=1.0, dtype=f32}
  %z = sum(%y) {axes=[0], keepdim=false, dtype=null}
  %w = add(%x, %z)
  return %w
}
)");
  const Client::Ran ran = client.Run(id, {Put({1, 2, 3, 4, 5, 6, 7, 8}, {8})});
  EXPECT_EQ(Text(ran.status), "INVALID_ARGUMENT: extent 1152921504606846976*i0 overflows 64 bits");
}

TEST_F(Run, ArgumentsThatDoNotFit) {
  const std::string sums = Id(kColumnSums);
  const auto refusal = [&](const std::vector<std::string>& handles) { return Text(client.Run(sums, handles).status); };
  EXPECT_EQ(refusal({}), "INVALID_ARGUMENT: column_sums has 1 inputs, 0 were given");
  EXPECT_EQ(refusal({"made up"}), "NOT_FOUND: input 0 (x): no handle \"made up\" in this session");
  EXPECT_EQ(refusal({Put({1, 2}, {2})}),
            "INVALID_ARGUMENT: input 0 (x): the tensor has 1 axes; the program wants f32[i0, i1]");
  EXPECT_EQ(refusal({Put({1, 2}, {2, 1})}),
            "INVALID_ARGUMENT: input 0 (x): the tensor lies on [0], replicated; the program wants "
            "it on [0, 1], axis 0 "
            "split 2 ways over mesh_x; reshard it, or put it as this input");
  const Client::Put ints = client.Upload(Header(pb::DTYPE_INT32, {2, 1}, {2}, {0}), std::string(8, '\0'));
  EXPECT_EQ(refusal({ints.tensor.handle()}), "INVALID_ARGUMENT: input 0 (x): the tensor is i32; the program wants f32");
  pb::UploadHeader once = Header(pb::DTYPE_FLOAT32, {2, 3}, {2}, {0});
  once.add_sent_once(false);
  once.add_sent_once(true);
  const Client::Put thin = client.Upload(once, Bytes({1, 2}));
  EXPECT_EQ(refusal({thin.tensor.handle()}),
            "INVALID_ARGUMENT: input 0 (x): axis 1 is stored once in the tensor, but in full in "
            "the program; put it as "
            "this input");
  EXPECT_EQ(Text(client.Run("made up", {}).status),
            "NOT_FOUND: no program \"made up\" here, or no longer: compile it again");
  pb::RunRequest number;
  number.set_session_id(client.session());
  number.set_program_id(sums);
  number.add_args()->set_float_value(1);
  pb::RunReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Run(context.get(), number, &reply)),
            "INVALID_ARGUMENT: input 0 (x): a tensor is wanted, f32[i0, i1], not a number");
}

TEST_F(Run, SizesThatDoNotAgree) {
  const std::string add = Id(R"(fusion @add(%x: f32[i0, 3], %y: f32[i1, 3]) {
  %z = add(%x, %y)
  return %z
}
)");
  const std::string two = Put({1, 2, 3, 4, 5, 6}, {2, 3}), one = Put({1, 2, 3}, {1, 3}), narrow = Put({1, 2}, {1, 2});
  EXPECT_EQ(Text(client.Run(add, {two, two}).status), "OK");
  EXPECT_EQ(Text(client.Run(add, {two, one}).status),
            "INVALID_ARGUMENT: input 1 (y): axis 0 has extent 1; the program wants i0 = 2 (i0 = 2)");
  EXPECT_EQ(Text(client.Run(add, {narrow, one}).status),
            "INVALID_ARGUMENT: input 0 (x): axis 1 has extent 2; the program wants 3");
}

TEST_F(Run, AnUploadForAnInput) {
  const std::string sums = Id(kColumnSums);
  pb::UploadHeader header = Header(pb::DTYPE_FLOAT32, {2, 2});
  header.mutable_input()->set_program_id(sums);
  header.add_sent_once(true);  // Sent once, but stored in full: the program says so.
  header.add_sent_once(false);
  const Client::Put put = client.Upload(header, Bytes({1, 2}));
  ASSERT_EQ(Text(put.status), "OK");
  EXPECT_EQ(client.Download(put.tensor.handle()).bytes, Bytes({1, 2, 1, 2}));
  const Client::Ran ran = client.Run(sums, {put.tensor.handle()});
  ASSERT_EQ(Text(ran.status), "OK");
  EXPECT_EQ(Values(ran.reply.outputs(0)), (std::vector<float>{2, 4}));

  header.set_shape(0, 3);  // Blocks of 2 and 1.
  header.set_sent_once(0, false);
  const Client::Put uneven = client.Upload(header, Bytes({1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(Text(uneven.status), "OK");
  const Client::Ran three = client.Run(sums, {uneven.tensor.handle()});
  ASSERT_EQ(Text(three.status), "OK");
  EXPECT_EQ(Values(three.reply.outputs(0)), (std::vector<float>{9, 12}));
  header.mutable_input()->set_index(1);
  EXPECT_EQ(Text(client.Upload(header, "").status), "INVALID_ARGUMENT: input 1 of a program that has 1");
  header.mutable_input()->set_program_id("gone");
  EXPECT_EQ(Text(client.Upload(header, "").status),
            "NOT_FOUND: no program \"gone\" here, or no longer: compile it again");
}

TEST_F(Run, OutputsThatAreOtherValues) {
  const std::string program = Id(R"(fusion @twice(%x: f32[i0]) {
  %y = neg(%x)
  return %y, %x, %y
}
)");
  const std::string x = Put({1, 2}, {2});
  const Client::Ran ran = client.Run(program, {x});
  ASSERT_EQ(Text(ran.status), "OK");
  ASSERT_EQ(ran.reply.outputs_size(), 3);
  EXPECT_EQ(Text(client.Free({x, ran.reply.outputs(0).handle()})), "OK");
  EXPECT_EQ(Values(ran.reply.outputs(1)), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values(ran.reply.outputs(2)), (std::vector<float>{-1, -2}));
}

TEST_F(Run, AnOutputThatReplacesAnInput) {
  // The grammar of an alias is in docs/ir.md.
  const std::string program = Id(R"(fusion @step(%x: f32[i0]) {
  %y = neg(%x)
  return %y alias %x
}
)");
  const std::string x = Put({1, 2}, {2});
  const Client::Ran ran = client.Run(program, {x});
  ASSERT_EQ(Text(ran.status), "OK");
  EXPECT_EQ(ran.reply.outputs(0).handle(), x);  // In its memory.
  EXPECT_EQ(Values(ran.reply.outputs(0)), (std::vector<float>{-1, -2}));
  const Client::Ran again = client.Run(program, {x});
  ASSERT_EQ(Text(again.status), "OK");
  EXPECT_EQ(Values(again.reply.outputs(0)), (std::vector<float>{1, 2}));
}

// Whoever else has the input goes on to read it as it was: it is consumed, and its memory stays.
TEST_F(Run, AnInputThatSomebodyElseHasIsNotWritten) {
  const std::string program = Id(R"(fusion @step(%x: f32[i0], %z: f32[i0]) {
  %y = sub(%z, %x)
  return %y alias %x
}
)");
  const std::string zeros = Put({0, 0}, {2});
  const std::string twice = Put({1, 2}, {2});
  const Client::Ran same = client.Run(program, {twice, twice});  // It is the other input, too.
  ASSERT_EQ(Text(same.status), "OK");
  EXPECT_EQ(Values(same.reply.outputs(0)), (std::vector<float>{0, 0}));
  EXPECT_EQ(Text(client.Run(program, {twice, zeros}).status),
            "FAILED_PRECONDITION: input 0 (x): handle " + twice + " was freed");

  const std::string echo = Id("fusion @echo(%x: f32[i0]) {\n  return %x\n}\n");
  const std::string named = Put({3, 4}, {2});
  const Client::Ran echoed = client.Run(echo, {named});  // Another handle of one tensor.
  ASSERT_EQ(Text(echoed.status), "OK");
  const Client::Ran apart = client.Run(program, {named, zeros});
  ASSERT_EQ(Text(apart.status), "OK");
  EXPECT_NE(apart.reply.outputs(0).handle(), named);
  EXPECT_EQ(Values(apart.reply.outputs(0)), (std::vector<float>{-3, -4}));
  EXPECT_EQ(Values(echoed.reply.outputs(0)), (std::vector<float>{3, 4}));
}

// A client that goes on with the input asks for it to stay where nothing is made in its memory.
TEST_F(Run, AnInputThatIsKeptUnlessItIsWritten) {
  const std::string program = Id(R"(fusion @step(%x: f32[i0]) {
  %y = neg(%x)
  return %y alias %x
}
)");
  const std::string echo = Id("fusion @echo(%x: f32[i0]) {\n  return %x\n}\n");
  const std::string x = Put({1, 2}, {2});
  const Client::Ran echoed = client.Run(echo, {x});
  ASSERT_EQ(Text(echoed.status), "OK");
  pb::RunRequest request;
  request.set_session_id(client.session());
  request.set_program_id(program);
  request.add_args()->set_handle(x);
  request.set_wait(true);
  request.set_keeps_inputs(true);
  const auto run = [&] {
    pb::RunReply reply;
    const auto context = client.Context();
    EXPECT_EQ(Text(client.stub().Run(context.get(), request, &reply)), "OK");
    return reply.outputs(0);
  };
  const pb::Tensor apart = run();
  EXPECT_NE(apart.handle(), x);
  EXPECT_EQ(Values(apart), (std::vector<float>{-1, -2}));
  EXPECT_EQ(Values(echoed.reply.outputs(0)), (std::vector<float>{1, 2}));
  ASSERT_EQ(Text(client.Free({echoed.reply.outputs(0).handle()})), "OK");
  const pb::Tensor there = run();
  EXPECT_EQ(there.handle(), x);
  EXPECT_FALSE(there.has_spec());  // It is as the client knows it.
  EXPECT_EQ(Values(there), (std::vector<float>{-1, -2}));
  request.set_keeps_inputs(false);
  const pb::Tensor replaced = run();
  EXPECT_EQ(replaced.handle(), x);
  EXPECT_TRUE(replaced.has_spec());
}

TEST_F(Run, ProgramsThatAreNone) {
  EXPECT_EQ(Text(client.Compile("fusion @f(%x: f32[2]) {\n  %y = nag(%x)\n  return %y\n}\n").status),
            "INVALID_ARGUMENT: line 2: nag: no such op in the fusion op set; did you mean neg?");
  EXPECT_EQ(Text(client.Compile(std::string(5000, '/')).status),
            "RESOURCE_EXHAUSTED: program_bytes_max = 4096: the program has 5003 bytes; split it");
  EXPECT_EQ(Text(client.Compile("mesh @m = [0, 2]\nfusion @f(%x: f32[2] {mesh=@m}) {\n  return %x\n}\n").status),
            "INVALID_ARGUMENT: mesh @m = [0, 2] names device 2; this daemon has devices 0 to 1");
  pb::CompileRequest nothing;
  nothing.set_session_id(client.session());
  pb::CompileReply reply;
  const auto context = client.Context();
  EXPECT_EQ(Text(client.stub().Compile(context.get(), nothing, &reply)),
            "INVALID_ARGUMENT: the request has no program");
}

TEST_F(Run, ExplainWithSizes) {
  pb::ExplainRequest request;
  request.set_session_id(client.session());
  request.mutable_program()->set_text(kColumnSums);
  (*request.mutable_sizes())["i0"] = 8;
  (*request.mutable_sizes())["i1"] = 20;  // Fewer would be a constant of the plan.
  pb::ExplainReply reply;
  auto context = client.Context();
  ASSERT_EQ(Text(client.stub().Explain(context.get(), request, &reply)), "OK");
  ASSERT_EQ(reply.explanation().communications_size(), 1);
  const pb::CommunicationRecord& record = reply.explanation().communications(0);
  EXPECT_EQ(record.type(), "Allreduce");
  EXPECT_EQ(record.bytes(), "4*i1");
  EXPECT_EQ(record.bytes_value(), 80);
  (*request.mutable_sizes())["i7"] = 8;
  context = client.Context();
  EXPECT_EQ(Text(client.stub().Explain(context.get(), request, &reply)),
            "INVALID_ARGUMENT: column_sums has no size i7; its sizes are i0, i1");
  request.mutable_sizes()->erase("i7");
  (*request.mutable_sizes())["i0"] = 7;
  context = client.Context();
  ASSERT_EQ(Text(client.stub().Explain(context.get(), request, &reply)), "OK");  // Uneven blocks.
  EXPECT_EQ(reply.explanation().communications(0).bytes_value(), 80);
}

// As an upload of that shape is refused, and a run whose output is one.
// One element and others, in turn: each has a plan that is right for it, whichever was made first.
TEST_F(Run, SizesOfOneHavePlansOfTheirOwn) {
  const std::string sums = Id(R"(fusion @ones(%x: f32[i0, i1]) {
  %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
  %d = sub(%x, %s)
  %y = permute(%d) {dims=[1, 0]}
  return %y
}
)");
  const std::string wide = Put({1, 2, 3, 4, 5, 6}, {2, 3}), row = Put({1, 2, 3}, {1, 3}), column = Put({1, 2}, {2, 1}),
                    one = Put({7}, {1, 1}), none = Put({}, {0, 3});
  for (int i = 0; i < 2; ++i) {
    const auto run = [&](const std::string& x) { return Values(client.Run(sums, {x}).reply.outputs(0)); };
    EXPECT_EQ(run(wide), (std::vector<float>{-5, -11, -4, -10, -3, -9}));
    EXPECT_EQ(run(row), (std::vector<float>{-5, -4, -3}));
    EXPECT_EQ(run(column), (std::vector<float>{0, 0}));
    EXPECT_EQ(run(one), (std::vector<float>{0}));
    EXPECT_EQ(run(none), std::vector<float>());
  }
}

// Rows of few elements are constants of plans of their own, on CPUs, too; longer ones share one.
TEST_F(Run, NarrowRowsHavePlansOfTheirOwn) {
  const std::string sums = Id(R"(fusion @narrow(%x: f32[i0, i1], %w: f32[i2]) {
  %y = mul(%x, %w)
  %s = sum(%y) {axes=[1], keepdim=true, dtype=null}
  %d = sub(%y, %s)
  return %d
}
)");
  for (int i = 0; i < 2; ++i) {
    for (const int64_t columns : {3, 40, 16, 17, 0, 1, 16, 200, 5}) {
      const std::vector<float> ones(static_cast<size_t>(2 * columns), 1), twos(static_cast<size_t>(columns), 2);
      const auto reply = client.Run(sums, {Put(ones, {2, columns}), Put(twos, {columns})}).reply;
      const std::vector<float> wanted(static_cast<size_t>(2 * columns), 2 - 2 * static_cast<float>(columns));
      ASSERT_EQ(reply.outputs_size(), 1) << columns;
      EXPECT_EQ(Values(reply.outputs(0)), wanted) << columns;
    }
  }
}

TEST_F(Run, ExplainWithSizesThatNoTensorHas) {
  const auto explain = [&](const char* text, const std::map<std::string, int64_t>& sizes) {
    pb::ExplainRequest request;
    request.set_session_id(client.session());
    request.mutable_program()->set_text(text);
    request.mutable_sizes()->insert(sizes.begin(), sizes.end());
    pb::ExplainReply reply;
    const auto context = client.Context();
    return Text(client.stub().Explain(context.get(), request, &reply));
  };
  constexpr int64_t kMany = int64_t{1} << 62;
  const std::string input = "INVALID_ARGUMENT: input 0 (x): a tensor of shape [4611686018427387904";
  const std::string limit = " and dtype f32 has more bytes than fit in 63 bits";
  EXPECT_EQ(explain(kColumnSums, {{"i0", kMany}, {"i1", 3}}), input + ", 3]" + limit);
  EXPECT_EQ(explain(kColumnSums, {{"i0", kMany}}), input + ", i1]" + limit);
  EXPECT_EQ(explain(kColumnSums, {{"i0", kMany}, {"i1", 0}}), input + ", 0]" + limit);
  EXPECT_EQ(explain(kColumnSums, {{"i0", kMany / 4}, {"i1", 1}}), "OK");
  const char* const widened = "fusion @f(%x: bool[i0]) {\n  %y = cast(%x) {dtype=f32}\n  return %y\n}\n";
  EXPECT_EQ(explain(widened, {{"i0", kMany}}),
            "INVALID_ARGUMENT: output 0 (y): a tensor of shape [4611686018427387904]" + limit);
  const char* const twice = "fusion @f(%x: bool[i0]) {\n  %y = cat(%x, %x) {axis=0}\n  return %y\n}\n";
  EXPECT_EQ(explain(twice, {{"i0", kMany}}), "INVALID_ARGUMENT: output 0 (y): extent 2*i0 overflows 64 bits");
}

}  // namespace
}  // namespace hir::service
