// Goal: a program means the same as text and as message. Method: text -> graph -> message -> bytes -> graph -> text is
// the identity; one bad message for each thing only a message can get wrong, with the whole error.
#include "csrc/ir/proto/program_proto.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "hostir/v1/program.pb.h"
#include "tests/csrc/ir/test_ops.h"

namespace hir::ir {
namespace {

using base::Cat;
using hostir::v1::Program;

TEST(Proto, RoundTripIsTheIdentity) {
  const std::string_view text = R"(mesh @m = [3, 1, 2, 0]
mesh @g = [[0, 1], [2, 3]]
test @all(
    %x: bf16[i0, 8192] {mesh=@m, outer_split(1, 4), parallelize(1, mesh_x), stride_order(1, 0)},
    %y: f32[i0, b, b:4096, r:i1] {mesh=@g, inner_split(0, 2), merge(1), parallelize(0, mesh_y)},
    %s: f64,
    %e: event[4]) {
  %p: bf16[i0, r:8192] {mesh=@m, outer_split(1, 4), parallelize(1, mesh_x)} = sum(%x) {axis=1}
  every() {int=-3, float=-0.5, bool=true, name=x, string="\"\\\n", ints=[1, -2], expr=4*i0 + 3, exprs=[i0 / 4], mesh=@g}
  %a: f32[i0], %b: f64 = make(%x, %y, %s)
  for() {end=ceildiv(i0, 4)} { |%i: index|
    use(%x, %e) {at=4*%i + @g.y}
    choose() {
      use(%a) {at=min(i0, i1)}
    } {
    }
  }
  return %a, %x, %p alias %x
}
)";
  const auto graph = Parse(text, kTestOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  Program program;
  ToProto(**graph, program);
  Program received;
  ASSERT_TRUE(received.ParseFromString(program.SerializeAsString()));
  const auto again = FromProto(received, kTestOps);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(Print(**again), Print(**graph));
  EXPECT_NE(Print(**again).find("inner_split(0, 2), merge(1), parallelize(0, mesh_y)"), std::string::npos);
}

// The printed program that protobuf text `message` makes, or the error.
std::string Convert(std::string_view message) {
  Program program;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(message), &program)) return "bad test";
  if (program.op_set().empty()) program.set_op_set("test");
  if (program.name().empty()) program.set_name("p");
  const auto graph = FromProto(program, kTestOps);
  return graph.ok() ? Print(**graph) : graph.status().ToString();
}

constexpr std::string_view kX =
    "meshes {name: 'm' mesh {shape: 2 devices: [0, 1]}} "
    "params {name: 'x' type {tensor {dtype: 'f32' axes {extent {text: 'i0'}} axes {extent {value: "
    "8}}}} location: 'a.py:1: x'} ";

TEST(Proto, AClientInfersNothing) {
  EXPECT_EQ(Convert(Cat(kX, "meshes {name: 'same' mesh {shape: 2 devices: [0, 1]}} ",
                        "annotations {value: 'y' kind: STRIDE_ORDER order: [1, 0]} ",  // May come before the mesh.
                        "annotations {value: 'x' kind: MESH mesh: 'm'} annotations {value: 'y' kind: MESH mesh: "
                        "'same'} ",
                        "ops {name: 'relu' operands: 'x' results {name: 'y'}} ",
                        "ops {name: 'every' attrs {name: 'exprs' ints {values: [1, 2]}} attrs {name: 'float' "
                        "int: 2} ",
                        "attrs {name: 'ints' extents {values {value: 3}}} attrs {name: 'expr' int: 7} attrs "
                        "{name: 'int' int: 1} ",
                        "attrs {name: 'bool' bool: true} attrs {name: 'name' word: 'w'} attrs {name: 'string' "
                        "string: 's'} ",
                        "attrs {name: 'mesh' mesh: 'same'}} ",
                        "annotations {value: 'y' kind: SHARD axis: -2 parallel_type: 'mesh_x'} ",
                        "outputs {value: 'y' alias: 'x'}")),
            "mesh @m = [0, 1]\n"
            "test @p(%x: f32[i0, 8] {mesh=@m}) {\n"
            "  %y: f32[i0, 8] {mesh=@m, outer_split(0, 2), parallelize(0, mesh_x), stride_order(1, 0)} = "
            "relu(%x)\n"
            "  every() {int=1, float=2.0, bool=true, name=w, string=\"s\", ints=[3], expr=7, exprs=[1, "
            "2], mesh=@m}\n"
            "  return %y alias %x\n"
            "}\n");
}

struct Bad {
  std::string message;
  std::string error;
};
void PrintTo(const Bad& c, std::ostream* out) { *out << testing::PrintToString(c.message); }
class ProtoErrors : public testing::TestWithParam<Bad> {};
TEST_P(ProtoErrors, AreWhole) { EXPECT_EQ(Convert(GetParam().message), "INVALID_ARGUMENT: " + GetParam().error); }

std::string With(std::string_view more) { return Cat(kX, more); }

INSTANTIATE_TEST_SUITE_P(
    Messages, ProtoErrors,
    testing::Values(
        Bad{"name: 'a b'", "'a b' cannot name a program: letters, digits, _ and ., at most 256"},
        Bad{"op_set: 'host'", "expected a test program, got 'host'"},
        Bad{"meshes {name: 'm.x' mesh {shape: 1 devices: 0}}", "mesh 'm.x': a mesh's name is letters, digits and _"},
        Bad{"meshes {name: 'm' mesh {shape: 2 devices: [4, 4]}}", "mesh @m: mesh names device 4 twice"},
        Bad{With("meshes {name: 'm' mesh {shape: 1 devices: 0}}"), "mesh @m is defined twice"},
        Bad{"params {name: 'x' location: 'a.py:1: x'}", "x: an input needs a type (a.py:1: x)"},
        Bad{"params {type {scalar: 'f64'}}", "'' cannot name a value: letters, digits, _ and ., at most 256"},
        Bad{"params {name: 'x' type {scalar: 'float'}}",
            "x: 'float' is no dtype (bool, u8, i8, i32, i64, f16, bf16, f32, f64)"},
        Bad{"params {name: 'x' type {tensor {dtype: 'f32' axes {}}}}", "x: an extent is neither number nor text"},
        Bad{"params {name: 'x' type {tensor {dtype: 'f32' axes {extent {value: -2}}}}}",
            "x: f32[-2]: extent -2 is negative"},
        Bad{"params {name: 'x' type {tensor {dtype: 'f32' axes {extent {value: "
            "-9223372036854775808}}}}}",
            "x: an extent overflows 64 bits"},
        Bad{"params {name: 'x' type {tensor {dtype: 'f32' axes {extent {text: 'i0 +'}}}}}",
            "x: expected an extent, got the end of the text"},
        Bad{"params {name: 'x' type {tensor {dtype: 'f32' axes {extent {text: 'i0 i1'}}}}}",
            "x: expected the end of the extent, got 'i1'"},
        Bad{"params {name: 'x' type {events: 0}}", "x: event[0]: an event array holds 1 to 65536 events"},
        Bad{With("params {name: 'x' type {scalar: 'f64'} location: 'a.py:2: y'}"), "%x is defined twice (a.py:2: y)"},
        Bad{With("ops {name: 'rel' operands: 'x' results {name: 'y'} location: 'a.py:3: y = "
                 "rel(x)'}"),
            "rel: no such op in the test op set; did you mean relu? (a.py:3: y = rel(x))"},
        Bad{With("ops {name: 'a b'}"), "op: an op's name is a word of at most 256 letters"},
        Bad{With("ops {name: 'relu' operands: 'z' results {name: 'y'} location: 'a.py:3: y'}"),
            "relu: undefined value %z (a.py:3: y)"},
        Bad{With("ops {name: 'relu' operands: 'x' results {name: 'x'} location: 'a.py:3: y'}"),
            "relu: %x is defined twice (a.py:3: y)"},
        Bad{With("ops {name: 'relu' operands: ['x', 'x'] results {name: 'y'} location: 'a.py:3: "
                 "y'}"),
            "relu: takes 1 operand, got 2 (a.py:3: y)"},
        Bad{With("ops {name: 'sum' operands: 'x' results {name: 'y'} attrs {name: 'axis' word: "
                 "'one'}}"),
            "sum: attribute axis is an integer, got a word"},
        Bad{With("ops {name: 'sum' operands: 'x' results {name: 'y'} attrs {name: 'axis'}}"),
            "sum: attribute axis: has no value"},
        Bad{With("ops {name: 'sum' operands: 'x' results {name: 'y'} attrs {name: 'axes' int: 0} "
                 "location: 'a.py:3: y'}"),
            "sum: no attribute axes; did you mean axis? (a.py:3: y)"},
        Bad{With("ops {name: 'sum' operands: 'x' results {name: 'y'} attrs {name: 'axis' int: 7} "
                 "location: 'a.py:3: y'}"),
            "sum: axis is out of range (a.py:3: y)"},
        Bad{With("ops {name: 'every' attrs {name: 'name' word: 'two words'}}"),
            "every: attribute name is a word of letters, digits, _ and ., at most 256"},
        Bad{With("ops {name: 'every' attrs {name: 'mesh' mesh: 'q'}}"), "every: attribute mesh: undefined mesh @q"},
        Bad{With("ops {name: 'choose' blocks {}}"), "choose: takes 2 blocks, got 1"},
        Bad{With("outputs {value: 'q' location: 'a.py:9: add_output(q)'}"),
            "return: undefined value %q (a.py:9: add_output(q))"},
        Bad{With("annotations {value: 'q' kind: MESH mesh: 'm'}"), "annotation: undefined value %q"},
        Bad{With("annotations {value: 'x' kind: MESH mesh: 'q' location: 'a.py:5: x'}"),
            "x: undefined mesh @q (a.py:5: x)"},
        Bad{With("annotations {value: 'x'}"), "x: no annotation kind 0"},
        Bad{With("annotations {value: 'x' kind: PARALLELIZE parallel_type: 'tid'}"),
            "x: 'tid' is no parallel type (mesh_x, mesh_y, mesh_z, stream or serial)"},
        Bad{With("annotations {value: 'x' kind: PARALLELIZE axis: 0 parallel_type: 'mesh_x' location: 'a.py:6: "
                 "x.axis(0)'}"),
            "x: parallelize: the value has no mesh yet; set it first (a.py:6: x.axis(0))"},
        Bad{With("annotations {value: 'x' kind: MESH mesh: 'm'} "
                 "annotations {value: 'x' kind: SHARD axis: 2 parallel_type: 'mesh_x' location: "
                 "'a.py:6: x'}"),
            "x: shard: axis 2 is out of range: the value has 2 axes (a.py:6: x)"}));

TEST(Proto, LongLocationsAreCut) {
  std::string location;
  for (int i = 0; i < 300; ++i) location += "\xc3\xa9";  // Two bytes each.
  const std::string error = Convert(With(Cat("outputs {value: 'q' location: '", location, "'}")));
  EXPECT_EQ(error, Cat("INVALID_ARGUMENT: return: undefined value %q (", location.substr(0, 400), "...)"));
}

std::string Limit(const Program& program) {
  const auto graph = FromProto(program, kTestOps);
  return graph.ok() ? "OK" : graph.status().ToString();
}

TEST(ProtoLimits, AreTheParsers) {
  Program program;
  program.set_op_set("test");
  program.set_name("p");
  const auto use = [](hostir::v1::ProgramOp& op) {
    op.set_name("use");
    op.add_attrs()->set_name("at");
    op.mutable_attrs(0)->set_int_(0);
  };
  Program many = program;
  for (int64_t i = 0; i < kOpsMax; ++i) use(*many.add_ops());
  EXPECT_EQ(Limit(many), "OK");
  use(*many.add_ops());
  EXPECT_EQ(Limit(many), "RESOURCE_EXHAUSTED: the program has more than 65536 ops");

  Program nested = program;
  auto* ops = nested.mutable_ops();
  for (int i = 0; i <= kNestingMax; ++i) {
    EXPECT_EQ(Limit(nested), "OK");
    hostir::v1::ProgramOp* op = ops->Add();
    op->set_name("for");
    op->add_attrs()->set_name("end");
    op->mutable_attrs(0)->set_int_(4);
    ops = op->add_blocks()->mutable_ops();
  }
  EXPECT_EQ(Limit(nested), "RESOURCE_EXHAUSTED: for: blocks are nested deeper than 32");

  Program wide = program;
  wide.add_params()->set_name("x");
  wide.mutable_params(0)->mutable_type()->set_scalar("f64");
  use(*wide.add_ops());
  for (int64_t i = 0; i < kOperandsMax; ++i) wide.mutable_ops(0)->add_operands("x");
  EXPECT_EQ(Limit(wide), "OK");
  wide.mutable_ops(0)->add_operands("x");
  EXPECT_EQ(Limit(wide), "RESOURCE_EXHAUSTED: use: has 1025 operands; the limit is 1024");

  Program inputs = program;
  for (int64_t i = 0; i < kParamsMax; ++i) {
    inputs.add_params()->set_name(Cat("x", i));
    inputs.mutable_params(static_cast<int>(i))->mutable_type()->set_scalar("f64");
  }
  EXPECT_EQ(Limit(inputs), "OK");
  inputs.add_params();
  EXPECT_EQ(Limit(inputs), "RESOURCE_EXHAUSTED: the program has more than 4096 inputs");

  Program axes = program;
  axes.add_params()->set_name("x");
  auto& tensor = *axes.mutable_params(0)->mutable_type()->mutable_tensor();
  tensor.set_dtype("f32");
  for (int64_t i = 0; i < kAxesMax; ++i) tensor.add_axes()->mutable_extent()->set_value(1);
  EXPECT_EQ(Limit(axes), "OK");
  tensor.add_axes()->mutable_extent()->set_value(1);
  EXPECT_EQ(Limit(axes), "RESOURCE_EXHAUSTED: x: a tensor has 17 axes; the limit is 16");
  tensor.mutable_axes()->RemoveLast();
  tensor.mutable_axes(0)->mutable_extent()->set_text(std::string(kExtentBytesMax, ' ') + "1");
  EXPECT_EQ(Limit(axes), "RESOURCE_EXHAUSTED: x: an extent's text has 65537 bytes; the limit is 65536");

  Program big = program;
  big.add_ops()->set_location(std::string(kTextBytesMax, 'x'));
  EXPECT_EQ(Limit(big).substr(0, 40), "RESOURCE_EXHAUSTED: the program has 6710");
}

}  // namespace
}  // namespace hir::ir
