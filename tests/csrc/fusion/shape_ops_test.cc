// Goal: each op that moves, reduces or contracts elements gives the right ones. Method: small tensors that count,
// results by hand.
#include <cmath>
#include <limits>

#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The elements of %y after one op on %x.
Numbers Of(const std::string& op, const std::string& type, const HostTensor& x) {
  return ToDoubles(Execute(Program("%x: " + type, "%y = " + op), {x}));
}
Numbers OfCounting(const std::string& op, const Shape& shape) {
  std::string type = "f32[";
  for (size_t i = 0; i < shape.size(); ++i) type += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return Of(op, type + "]", Counting(DType::kFloat32, shape));
}

TEST(ShapeOps, SetAndSegmentSetCopy) {
  EXPECT_EQ(OfCounting("set(%x)", {3}), (Numbers{0, 1, 2}));
  EXPECT_EQ(OfCounting("segment_set(%x)", {3}), (Numbers{0, 1, 2}));
}

TEST(ShapeOps, Broadcasts) {
  EXPECT_EQ(OfCounting("broadcast(%x) {is_broadcast_dim=[1, 0, 1]}", {3}), (Numbers{0, 1, 2}));
  EXPECT_EQ(OfCounting("broadcast_in_dim(%x) {shape=[2, 3, 2], dims=[1]}", {3}),
            (Numbers{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(OfCounting("broadcast_in_dim(%x) {shape=[2, 3], dims=[-2, -1]}", {2, 1}), (Numbers{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(OfCounting("expand(%x) {shape=[-1, 3]}", {2, 1}), (Numbers{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(OfCounting("squeeze(%x) {axes=[0, 2]}", {1, 2, 1}), (Numbers{0, 1}));
}

TEST(ShapeOps, PermuteAndReshape) {
  EXPECT_EQ(OfCounting("permute(%x) {dims=[1, 0]}", {2, 3}), (Numbers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(OfCounting("permute(%x) {dims=[2, 0, 1]}", {2, 2, 2}), (Numbers{0, 2, 4, 6, 1, 3, 5, 7}));
  for (const char* shape : {"[6]", "[3, 2]", "[2, 3]", "[1, 6, 1]", "[-1, 2]", "[3, 1, 2]"}) {
    EXPECT_EQ(OfCounting(std::string("reshape(%x) {shape=") + shape + "}", {2, 3}), (Numbers{0, 1, 2, 3, 4, 5}))
        << shape;
  }
  // Of a permuted and of a broadcast tensor.
  const std::string permuted = "%p = permute(%x) {dims=[1, 0]}\n%y = reshape(%p) {shape=[2, 3]}";
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[2, 3]", permuted), {Counting(DType::kFloat32, {2, 3})})),
            (Numbers{0, 3, 1, 4, 2, 5}));
  const std::string expanded = "%p = expand(%x) {shape=[2, 2, 2]}\n%y = reshape(%p) {shape=[4, 2]}";
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[2, 1, 2]", expanded), {Counting(DType::kFloat32, {2, 1, 2})})),
            (Numbers{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(ShapeOps, Slice) {
  EXPECT_EQ(OfCounting("slice(%x) {start=[1], end=[4], strides=[1]}", {5}), (Numbers{1, 2, 3}));
  EXPECT_EQ(OfCounting("slice(%x) {start=[0], end=[5], strides=[2]}", {5}), (Numbers{0, 2, 4}));
  EXPECT_EQ(OfCounting("slice(%x) {start=[-2], end=[9223372036854775807], strides=[]}", {5}), (Numbers{3, 4}));
  EXPECT_EQ(OfCounting("slice(%x) {start=[4], end=[1], strides=[1]}", {5}), Numbers{});
  EXPECT_EQ(OfCounting("slice(%x) {start=[0, 1], end=[2, 3], strides=[1, 1]}", {2, 3}), (Numbers{1, 2, 4, 5}));
}

TEST(ShapeOps, PadPutsValuesAround) {
  EXPECT_EQ(OfCounting("pad(%x) {widths=[1, 2], value=9.0}", {2}), (Numbers{9, 0, 1, 9, 9}));
  // Pairs from the last axis backwards.
  EXPECT_EQ(OfCounting("pad(%x) {widths=[0, 1, 1, 0], value=-1.0}", {1, 2}), (Numbers{-1, -1, -1, 0, 1, -1}));
  EXPECT_EQ(OfCounting("pad(%x) {widths=[-1, 1], value=7.0}", {3}), (Numbers{1, 2, 7}));
  EXPECT_EQ(OfCounting("pad(%x) {widths=[-4, 4], value=7.0}", {3}), (Numbers{7, 7, 7}));
  EXPECT_EQ(OfCounting("pad(%x) {widths=[2, 1], value=7.0}", {0}), (Numbers{7, 7, 7}));
  EXPECT_EQ(Of("pad(%x) {widths=[0, 1], value=2.9}", "i64[1]", I64({1}, {5})), (Numbers{5, 2}));
}

TEST(ShapeOps, CatJoinsPieces) {
  const std::string text = Program("%a: f32[2, 2], %b: f32[2, 0], %c: i64[2, 1]", "%y = cat(%a, %b, %c, %a) {axis=1}");
  const HostTensor y = Execute(text, {Counting(DType::kFloat32, {2, 2}), F32({2, 0}, {}), I64({2, 1}, {8, 9})});
  EXPECT_EQ(TypeName(y), "f32[2, 5]");
  EXPECT_EQ(ToDoubles(y), (Numbers{0, 1, 8, 0, 1, 2, 3, 9, 2, 3}));
}

TEST(ShapeOps, TakeAlongAxis) {
  const auto of = [](const std::string& axis, const HostTensor& indices, const std::string& type) {
    return ToDoubles(Execute(Program("%x: f32[2, 3], %k: " + type, "%y = take_along_axis(%x, %k) {axis=" + axis + "}"),
                             {Counting(DType::kFloat32, {2, 3}), indices}));
  };
  EXPECT_EQ(of("1", I64({2, 2}, {2, 0, 1, 1}), "i64[2, 2]"), (Numbers{2, 0, 4, 4}));
  EXPECT_EQ(of("-2", I64({1, 3}, {1, 0, 1}), "i64[1, 3]"), (Numbers{3, 1, 5}));
  // The other axes broadcast, on either side.
  EXPECT_EQ(of("1", I64({1, 2}, {2, 0}), "i64[1, 2]"), (Numbers{2, 0, 5, 3}));
  EXPECT_EQ(of("0", I64({3, 1}, {1, 0, 1}), "i64[3, 1]"), (Numbers{3, 4, 5, 0, 1, 2, 3, 4, 5}));
  // Negative indices count from the end; beyond either end lies the element at that end.
  EXPECT_EQ(of("1", I64({1, 7}, {-1, -3, -4, -1000, 2, 3, INT64_MAX}), "i64[1, 7]"),
            (Numbers{2, 0, 0, 0, 2, 2, 2, 5, 3, 3, 3, 5, 5, 5}));
  EXPECT_EQ(of("1", TensorOfInts(DType::kInt32, {2, 1}, std::vector<int64_t>{-2, INT32_MIN}), "i32[2, 1]"),
            (Numbers{1, 3}));
  EXPECT_EQ(of("1", I64({2, 0}, {}), "i64[2, 0]"), Numbers{});
}

TEST(ShapeOps, GatherAndIndexSelect) {
  const auto of = [](const std::string& op, const HostTensor& indices, const std::string& type) {
    return ToDoubles(
        Execute(Program("%x: f32[3, 4], %k: " + type, "%y = " + op), {Counting(DType::kFloat32, {3, 4}), indices}));
  };
  EXPECT_EQ(of("gather(%x, %k) {axis=1}", I64({2, 2}, {3, 0, -1, 9}), "i64[2, 2]"), (Numbers{3, 0, 7, 7}));
  EXPECT_EQ(of("gather(%x, %k) {axis=0}", I64({2, 3}, {2, 0, 1, -9, 5, 0}), "i64[2, 3]"), (Numbers{8, 1, 6, 0, 9, 2}));
  EXPECT_EQ(of("index_select(%x, %k) {axis=0}", I64({2}, {2, -3}), "i64[2]"), (Numbers{8, 9, 10, 11, 0, 1, 2, 3}));
  EXPECT_EQ(of("index_select(%x, %k) {axis=-1}", I32({3}, {1, 1, 100}), "i32[3]"),
            (Numbers{1, 1, 3, 5, 5, 7, 9, 9, 11}));
  EXPECT_EQ(of("index_select(%x, %k) {axis=0}", I64({0}, {}), "i64[0]"), Numbers{});
}

TEST(ShapeOps, IndexSum) {
  const auto of = [](const std::string& attrs, const HostTensor& x, const HostTensor& indices) {
    return ToDoubles(
        Execute(Program("%x: f32[i0, i1], %k: i64[i2]", "%y = index_sum(%x, %k) {" + attrs + "}"), {x, indices}));
  };
  const HostTensor x = F32({3, 2}, {1, 2, 10, 20, 100, 200});
  EXPECT_EQ(of("axis=0, size=4", x, I64({3}, {2, 0, 2})), (Numbers{10, 20, 0, 0, 101, 202, 0, 0}));
  EXPECT_EQ(of("axis=-1, size=1", x, I64({2}, {0, 0})), (Numbers{3, 30, 300}));
  // Negative indices count from the end; beyond either end lies the row at that end.
  EXPECT_EQ(of("axis=0, size=3", x, I64({3}, {-1, -4, 7})), (Numbers{10, 20, 0, 0, 101, 202}));
  EXPECT_EQ(of("axis=0, size=2", F32({0, 2}, {}), I64({0}, {})), (Numbers{0, 0, 0, 0}));
  // Infinities stay in their row.
  EXPECT_EQ(of("axis=0, size=3", F32({3, 1}, {kInf, 2, 3}), I64({3}, {1, 0, 0})), (Numbers{5, kInf, 0}));
}

TEST(ShapeOps, ScatterPutsTheLastOfEqualIndices) {
  const auto of = [](const std::string& attrs, const HostTensor& indices, const HostTensor& z) {
    const std::string types = "%x: f32[2, 4], %k: i64[i0, i1], %z: f32[i2, i3]";
    return ToDoubles(Execute(Program(types, "%y = scatter(%x, %k, %z) {" + attrs + "}"),
                             {Counting(DType::kFloat32, {2, 4}), indices, z}));
  };
  EXPECT_EQ(of("axis=1", I64({2, 3}, {0, 0, -1, 7, -5, 2}), F32({2, 3}, {10, 20, 30, 40, 50, 60})),
            (Numbers{20, 1, 2, 30, 4, 5, 60, 7}));
  EXPECT_EQ(of("axis=0", I64({1, 4}, {1, 0, 1, -3}), F32({1, 4}, {10, 20, 30, 40})),
            (Numbers{0, 20, 2, 3, 10, 5, 30, 7}));
}

TEST(ShapeOps, Select) {
  const std::string type = "%x: f32[2, 3], %k: i64";
  const auto of = [&](int64_t index, const std::string& axis) {
    return ToDoubles(Execute(Program(type, "%y = select(%x, %k) {axis=" + axis + "}"),
                             {Counting(DType::kFloat32, {2, 3}), I64({}, {index})}));
  };
  EXPECT_EQ(of(1, "0"), (Numbers{3, 4, 5}));
  EXPECT_EQ(of(-1, "-1"), (Numbers{2, 5}));
  EXPECT_EQ(of(100, "1"), (Numbers{2, 5}));
  EXPECT_EQ(of(-100, "1"), (Numbers{0, 3}));
}

TEST(ShapeOps, SqueezeExpanded) {
  EXPECT_EQ(Of("squeeze_expanded(%x) {axes=[0]}", "f32[b:3, 2]", WrittenOut(F32({1, 2}, {5, 6}), {3, 2})),
            (Numbers{5, 6}));
}

TEST(ShapeOps, Triu) {
  EXPECT_EQ(OfCounting("triu(%x) {diagonal=0}", {3, 3}), (Numbers{0, 1, 2, 0, 4, 5, 0, 0, 8}));
  EXPECT_EQ(OfCounting("triu(%x) {diagonal=1}", {1, 2, 3}), (Numbers{0, 1, 2, 0, 0, 5}));
  EXPECT_EQ(OfCounting("triu(%x) {diagonal=-1}", {3, 2}), (Numbers{0, 1, 2, 3, 0, 5}));
  // Nothing of what goes remains, not even a NaN.
  EXPECT_EQ(Of("triu(%x) {diagonal=0}", "f64[2, 2]", F64({2, 2}, {1, 2, kNan, 3})), (Numbers{1, 2, 0, 3}));
}

TEST(ShapeOps, Tril) {
  EXPECT_EQ(OfCounting("tril(%x) {diagonal=0}", {3, 3}), (Numbers{0, 0, 0, 3, 4, 0, 6, 7, 8}));
  EXPECT_EQ(OfCounting("tril(%x) {diagonal=1}", {1, 2, 3}), (Numbers{0, 1, 0, 3, 4, 5}));
  EXPECT_EQ(OfCounting("tril(%x) {diagonal=-1}", {3, 2}), (Numbers{0, 0, 2, 0, 4, 5}));
  EXPECT_EQ(Of("tril(%x) {diagonal=0}", "f64[2, 2]", F64({2, 2}, {1, kNan, 2, 3})), (Numbers{1, 0, 2, 3}));
}

TEST(ShapeOps, Flip) {
  EXPECT_EQ(OfCounting("flip(%x) {axes=[1]}", {2, 3}), (Numbers{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(OfCounting("flip(%x) {axes=[-2]}", {2, 3}), (Numbers{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(OfCounting("flip(%x) {axes=[]}", {2, 3}), (Numbers{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(OfCounting("flip(%x) {axes=[0]}", {0, 3}), Numbers{});
  EXPECT_EQ(Of("flip(%x) {axes=[0, 1]}", "f32[i0, b:2]", WrittenOut(F32({3, 1}, {1, kNan, 3}), {3, 2}))[5], 1);
}

TEST(ShapeOps, OneHot) {
  EXPECT_EQ(Of("one_hot(%x) {classes=3, dtype=f32}", "i64[4]", I64({4}, {2, -1, 3, 0})),
            (Numbers{0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(Of("one_hot(%x) {classes=2, dtype=bool}", "i32[2, 1]", I32({2, 1}, {1, INT32_MIN})), (Numbers{0, 1, 0, 0}));
  EXPECT_EQ(Of("one_hot(%x) {classes=0, dtype=f32}", "i64[2]", I64({2}, {0, 1})), Numbers{});
}

TEST(ShapeOps, RunningSums) {
  EXPECT_EQ(OfCounting("cumsum(%x) {axis=1, dtype=null}", {2, 3}), (Numbers{0, 1, 3, 3, 7, 12}));
  EXPECT_EQ(OfCounting("cumsum(%x) {axis=-2, dtype=null}", {2, 3}), (Numbers{0, 1, 2, 3, 5, 7}));
  EXPECT_EQ(OfCounting("cumsum(%x) {axis=0, dtype=i32}", {4}), (Numbers{0, 1, 3, 6}));
  EXPECT_EQ(OfCounting("cumsum(%x) {axis=0, dtype=null}", {0, 3}), Numbers{});
  EXPECT_EQ(OfCounting("cumprod(%x) {axis=1, dtype=null}", {2, 3}), (Numbers{0, 0, 0, 3, 12, 60}));
  EXPECT_EQ(Of("cumsum(%x) {axis=0, dtype=null}", "bool[3]", Bools({3}, {1, 0, 1})), (Numbers{1, 1, 2}));
  // Integers wrap; 16 bits do not bound the sum before its end.
  EXPECT_EQ(Of("cumsum(%x) {axis=0, dtype=null}", "i32[2]", I32({2}, {INT32_MAX, 1})),
            (Numbers{2147483647, 2147483648}));
  EXPECT_EQ(Of("cumsum(%x) {axis=0, dtype=i32}", "i32[2]", I32({2}, {INT32_MAX, 1})),
            (Numbers{2147483647, -2147483648}));
  EXPECT_EQ(Of("cumsum(%x) {axis=0, dtype=null}", "f16[3]", Tensor(DType::kFloat16, {3}, {2048, 1, 1})),
            (Numbers{2048, 2048, 2050}));
  // Nothing of what comes later.
  const Numbers sums = Of("cumsum(%x) {axis=0, dtype=null}", "f32[4]", F32({4}, {1, kInf, -kInf, 1}));
  EXPECT_EQ(sums[0], 1);
  EXPECT_EQ(sums[1], kInf);
  EXPECT_TRUE(std::isnan(sums[2]) && std::isnan(sums[3]));
}

TEST(ShapeOps, Argsort) {
  const auto of = [](const std::string& type, const HostTensor& x, const std::string& attrs) {
    return Of("argsort(%x) {" + attrs + "}", type, x);
  };
  const HostTensor x = F32({2, 5}, {2, 0, -0.0, 2, 1, kNan, kInf, -kInf, kNan, 0});
  EXPECT_EQ(of("f32[2, 5]", x, "axis=1, descending=false"), (Numbers{1, 2, 4, 0, 3, 2, 4, 1, 0, 3}));
  EXPECT_EQ(of("f32[2, 5]", x, "axis=1, descending=true"), (Numbers{0, 3, 4, 1, 2, 0, 3, 1, 4, 2}));
  EXPECT_EQ(of("f32[2, 5]", x, "axis=0, descending=false"), (Numbers{0, 0, 1, 0, 1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(of("bool[4]", Bools({4}, {1, 0, 1, 0}), "axis=0, descending=false"), (Numbers{1, 3, 0, 2}));
  EXPECT_EQ(of("i64[3]", I64({3}, {INT64_MAX, INT64_MIN, INT64_MAX - 1}), "axis=-1, descending=true"),
            (Numbers{0, 2, 1}));
  EXPECT_EQ(of("f32[2, 0]", F32({2, 0}, {}), "axis=1, descending=false"), Numbers{});
}

TEST(ShapeOps, Sequences) {
  const auto of = [](const std::string& type, int64_t start, const std::string& step, const std::string& offset) {
    const std::string body = "%d = constant() {value=" + step +
                             ", dtype=f64}\n%e = cast(%d) {dtype=" + (type[0] == 'i' ? "i64" : "f64") +
                             "}\n%y = iota(%s, %e) {shape=[i0], offset=[" + offset + "], dtype=" + type + "}";
    return ToDoubles(Execute(Program("%x: f32[i0], %s: i64", body), {F32({3}, {0, 0, 0}), I64({}, {start})}));
  };
  EXPECT_EQ(of("i32", 5, "-2.0", "0"), (Numbers{5, 3, 1}));
  EXPECT_EQ(of("i64", 0, "1.0", "2*i0"), (Numbers{6, 7, 8}));
  EXPECT_EQ(of("bf16", 1, "0.001953125", "0"), (Numbers{1, 1, 1}));
  EXPECT_EQ(of("f64", -1, "0.25", "1"), (Numbers{-0.75, -0.5, -0.25}));
}

TEST(ShapeOps, SizesAsNumbers) {
  const std::string body =
      "%n = size(%x) {axis=-1}\n%e = extent() {value=2*i0 + i1}\n%m = mul(%n, %e)\n%y = add(%x, "
      "%m)";
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[i0, i1]", body), {Counting(DType::kFloat32, {2, 3})})),
            (Numbers{21, 22, 23, 24, 25, 26}));
}

TEST(ShapeOps, NewValues) {
  EXPECT_EQ(
      ToDoubles(Execute(Program("%x: f32[i0]", "%y = full() {shape=[i0, 2], value=1.5, dtype=f16}"), {F32({1}, {0})})),
      (Numbers{1.5, 1.5}));
  EXPECT_EQ(ToInts(Execute(Program("%x: f32[i0]", "%y = full() {shape=[], value=1.5, dtype=i32}"), {F32({1}, {0})})),
            std::vector<int64_t>{1});
}

TEST(Reductions, Values) {
  const std::string attrs = "keepdim=false, dtype=null}";
  EXPECT_EQ(OfCounting("sum(%x) {axes=[0], " + attrs, {2, 3}), (Numbers{3, 5, 7}));
  EXPECT_EQ(OfCounting("sum(%x) {axes=[1], " + attrs, {2, 3}), (Numbers{3, 12}));
  EXPECT_EQ(OfCounting("sum(%x) {axes=[], " + attrs, {2, 3}), (Numbers{15}));
  EXPECT_EQ(OfCounting("sum(%x) {axes=[0, 2], keepdim=true, dtype=null}", {2, 2, 2}), (Numbers{10, 18}));
  EXPECT_EQ(OfCounting("prod(%x) {axes=[0], " + attrs, {2, 3}), (Numbers{0, 4, 10}));
  EXPECT_EQ(OfCounting("max(%x) {axes=[1], " + attrs, {2, 3}), (Numbers{2, 5}));
  EXPECT_EQ(OfCounting("min(%x) {axes=[-1], " + attrs, {2, 3}), (Numbers{0, 3}));
  EXPECT_EQ(OfCounting("sum(%x) {axes=[0], " + attrs, {0, 2}), (Numbers{0, 0}));
  EXPECT_EQ(OfCounting("prod(%x) {axes=[0], " + attrs, {0, 2}), (Numbers{1, 1}));
  EXPECT_EQ(Of("max(%x) {axes=[0], " + attrs, "f32[3]", F32({3}, {-kInf, -kInf, -kInf})), Numbers{-kInf});
  EXPECT_TRUE(std::isnan(Of("max(%x) {axes=[0], " + attrs, "f32[3]", F32({3}, {1, kNan, 2}))[0]));
  EXPECT_TRUE(std::isnan(Of("min(%x) {axes=[0], " + attrs, "f32[3]", F32({3}, {1, kNan, 2}))[0]));
}

TEST(Reductions, TypesOfAccumulation) {
  const std::string attrs = "axes=[0], keepdim=false, dtype=";
  EXPECT_EQ(Of("sum(%x) {" + attrs + "null}", "i32[2]", I32({2}, {2147483647, 1})), Numbers{2147483648.0});
  EXPECT_EQ(Of("sum(%x) {" + attrs + "null}", "bool[4]", Bools({4}, {1, 0, 1, 1})), Numbers{3});
  EXPECT_EQ(Of("max(%x) {" + attrs + "null}", "bool[2]", Bools({2}, {1, 0})), Numbers{1});
  EXPECT_EQ(Of("min(%x) {" + attrs + "null}", "bool[2]", Bools({2}, {1, 0})), Numbers{0});
  // The operand is converted first, then summed.
  EXPECT_EQ(Of("sum(%x) {" + attrs + "i64}", "f32[2]", F32({2}, {1.75, 1.75})), Numbers{2});
  // 16-bit sums are carried out in more.
  EXPECT_EQ(Of("sum(%x) {" + attrs + "null}", "bf16[512]", Tensor(DType::kBFloat16, {512}, Numbers(512, 1))),
            Numbers{512});
}

// A sum over a broadcast axis is a multiple of what is stored.
TEST(Reductions, OverBroadcastAxes) {
  const HostTensor x = WrittenOut(F32({1, 2}, {1.5, 2}), {4, 2});
  EXPECT_EQ(Of("sum(%x) {axes=[0], keepdim=false, dtype=null}", "f32[b:4, 2]", x), (Numbers{6, 8}));
  EXPECT_EQ(Of("sum(%x) {axes=[0, 1], keepdim=false, dtype=null}", "f32[b:i0, 2]", x), (Numbers{14}));
  EXPECT_EQ(Of("prod(%x) {axes=[0], keepdim=false, dtype=null}", "f32[b:4, 2]", x), (Numbers{5.0625, 16}));
  EXPECT_EQ(Of("max(%x) {axes=[0], keepdim=true, dtype=null}", "f32[b:4, 2]", x), (Numbers{1.5, 2}));
}

// Neither inf nor a read outside, which what is stored may then stand for, makes a sum of no elements other than 0.
TEST(Reductions, OverBroadcastAxesWithoutElements) {
  const auto of = [](const std::string& kind, double stored) {
    const std::string body = "%s = slice(%x) {start=[1, 0], end=[i0, 2], strides=[1, 1]}\n  %y = " + kind +
                             "(%s) {axes=[0], keepdim=false, dtype=null}";
    return ToDoubles(Execute(Program("%x: f32[b:i0, 2]", body), {F32({1, 2}, {stored, 2})}));
  };
  EXPECT_EQ(of("sum", 3), (Numbers{0, 0}));
  EXPECT_EQ(of("sum", kInf), (Numbers{0, 0}));
  EXPECT_EQ(of("prod", kInf), (Numbers{1, 1}));
}

TEST(Reductions, Moments) {
  const auto of = [](const std::string& op, const Shape& shape) { return OfCounting(op, shape); };
  EXPECT_EQ(of("mean(%x) {axes=[0], keepdim=false}", {2, 3}), (Numbers{1.5, 2.5, 3.5}));
  EXPECT_EQ(of("mean(%x) {axes=[], keepdim=true}", {2, 3}), (Numbers{2.5}));
  EXPECT_EQ(of("var(%x) {axes=[1], correction=0, keepdim=false}", {2, 4}), (Numbers{1.25, 1.25}));
  EXPECT_EQ(of("var(%x) {axes=[-1], correction=1, keepdim=true}", {2, 3}), (Numbers{1, 1}));
  EXPECT_EQ(of("var(%x) {axes=[0, 1], correction=2, keepdim=false}", {2, 3}), (Numbers{4.375}));
  EXPECT_EQ(of("var_sum(%x) {axes=[], keepdim=false}", {2, 3}), (Numbers{17.5}));
  // Too few elements, and none.
  EXPECT_TRUE(std::isnan(of("var(%x) {axes=[0], correction=1, keepdim=false}", {1})[0]));
  EXPECT_EQ(of("var(%x) {axes=[0], correction=2, keepdim=false}", {2}), Numbers{kInf});
  EXPECT_TRUE(std::isnan(of("mean(%x) {axes=[0], keepdim=false}", {0})[0]));
  EXPECT_EQ(of("var_sum(%x) {axes=[0], keepdim=false}", {0}), Numbers{0});
  // Nothing cancels, and 16 bits do not bound the sum.
  EXPECT_EQ(Of("var(%x) {axes=[0], correction=0, keepdim=false}", "f64[2]", F64({2}, {1e9, 1e9 + 1})), Numbers{0.25});
  EXPECT_EQ(Of("mean(%x) {axes=[0], keepdim=false}", "bf16[512]", Tensor(DType::kBFloat16, {512}, Numbers(512, 3))),
            Numbers{3});
  EXPECT_EQ(Of("mean(%x) {axes=[0], keepdim=false}", "bool[4]", Bools({4}, {1, 0, 1, 1})), Numbers{0.75});
}

TEST(Reductions, AnyAndAll) {
  const auto of = [](const std::string& op, const std::string& type, const HostTensor& x) {
    return Of(op + "(%x) {axes=[1], keepdim=false}", type, x);
  };
  const HostTensor x = F32({4, 2}, {0, -0.0, 0, kNan, 1e-45, kInf, -1, 0});
  EXPECT_EQ(of("any", "f32[4, 2]", x), (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(of("all", "f32[4, 2]", x), (Numbers{0, 0, 1, 0}));
  EXPECT_EQ(of("any", "bool[2, 2]", Bools({2, 2}, {0, 0, 1, 0})), (Numbers{0, 1}));
  EXPECT_EQ(of("all", "i64[2, 2]", I64({2, 2}, {INT64_MIN, 4, 0, 1})), (Numbers{1, 0}));
  EXPECT_EQ(of("any", "f32[2, 0]", F32({2, 0}, {})), (Numbers{0, 0}));
  EXPECT_EQ(of("all", "f32[2, 0]", F32({2, 0}, {})), (Numbers{1, 1}));
}

TEST(Reductions, PlacesOfTheEnds) {
  const auto of = [](const std::string& op, const std::string& type, const HostTensor& x) {
    return Of(op + "(%x) {axis=1, keepdim=false}", type, x);
  };
  const HostTensor x = F32({5, 3}, {1, 3, 3, 0, -0.0, 0, 2, kNan, kNan, -kInf, -kInf, kInf, -kInf, -kInf, -kInf});
  EXPECT_EQ(of("argmax", "f32[5, 3]", x), (Numbers{1, 0, 1, 2, 0}));
  EXPECT_EQ(of("argmin", "f32[5, 3]", x), (Numbers{0, 0, 1, 0, 0}));
  EXPECT_EQ(of("argmax", "i64[1, 3]", I64({1, 3}, {INT64_MIN, INT64_MAX - 1, INT64_MAX})), (Numbers{2}));
  EXPECT_EQ(of("argmin", "bool[2, 2]", Bools({2, 2}, {1, 0, 1, 1})), (Numbers{1, 0}));
  EXPECT_EQ(OfCounting("argmax(%x) {axis=-2, keepdim=true}", {2, 3}), (Numbers{1, 1, 1}));
}

TEST(Contractions, Matmul) {
  const auto matmul = [](const std::string& a, const HostTensor& x, const std::string& b, const HostTensor& y) {
    return ToDoubles(Execute(Program("%a: " + a + ", %b: " + b, "%y = matmul(%a, %b)"), {x, y}));
  };
  const HostTensor a = Counting(DType::kFloat32, {2, 3}), b = Counting(DType::kFloat32, {3, 2});
  EXPECT_EQ(matmul("f32[m, k]", a, "f32[k, n]", b), (Numbers{10, 13, 28, 40}));
  EXPECT_EQ(matmul("f32[3]", F32({3}, {0, 1, 2}), "f32[3]", F32({3}, {0, 1, 2})), (Numbers{5}));
  EXPECT_EQ(matmul("f32[2, 3]", a, "f32[3]", F32({3}, {1, 1, 1})), (Numbers{3, 12}));
  EXPECT_EQ(matmul("f32[3]", F32({3}, {1, 1, 1}), "f32[3, 2]", b), (Numbers{6, 9}));
  EXPECT_EQ(matmul("f32[2, 0]", F32({2, 0}, {}), "f32[0, 1]", F32({0, 1}, {})), (Numbers{0, 0}));
  EXPECT_EQ(matmul("i64[1, 2]", I64({1, 2}, {3, 4}), "i64[2, 1]", I64({2, 1}, {5, -6})), (Numbers{-9}));
  // Batches: [2, 1] x [3] -> [2, 3].
  const HostTensor batch = F32({2, 1, 1, 2}, {1, 2, 3, 4});
  const HostTensor other = F32({3, 2, 1}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(matmul("f32[2, 1, 1, 2]", batch, "f32[3, 2, 1]", other), (Numbers{1, 2, 3, 3, 4, 7}));
}

TEST(Contractions, Linear) {
  const HostTensor x = Counting(DType::kFloat32, {2, 3});
  const HostTensor w = F32({2, 3}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[i0, 3], %w: f32[2, 3]", "%y = linear(%x, %w)"), {x, w})),
            (Numbers{0, 3, 3, 12}));
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[i0, 3], %w: f32[2, 3], %b: f32[2]", "%y = linear(%x, %w, %b)"),
                              {x, w, F32({2}, {10, 20})})),
            (Numbers{10, 23, 13, 32}));
}

// Sizes only known when inputs bind.
TEST(Symbols, BindFromShapes) {
  const std::string text =
      Program("%x: f32[i0, 12], %s: f32[i1]",
              "%r = reshape(%x) {shape=[i0, 3, 4]}\n%m = sum(%r) {axes=[2], keepdim=false, dtype=null}\n"
              "%e = broadcast_in_dim(%s) {shape=[i0, i1], dims=[1]}\n%y = add(%m, %e)");
  const HostTensor y = Execute(text, {Counting(DType::kFloat32, {2, 12}), F32({3}, {100, 200, 300})});
  EXPECT_EQ(TypeName(y), "f32[2, 3]");
  EXPECT_EQ(ToDoubles(y), (Numbers{106, 222, 338, 154, 270, 386}));
}

}  // namespace
}  // namespace hir::fusion
