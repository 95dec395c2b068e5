// Goal: result types and axes are what docs/ops.md says. Method: the inferred type of a one-op program, as text.
#include <gmock/gmock.h>

#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

using testing::HasSubstr;

TEST(Promotion, FollowsPyTorch) {
  const auto of = [](const std::string& a, const std::string& b, const std::string& op = "add") {
    return TypeOfY("%a: " + a + ", %b: " + b, "%y = " + op + "(%a, %b)");
  };
  EXPECT_EQ(of("bf16[2]", "bf16[2]"), "bf16[2]");
  EXPECT_EQ(of("bf16[2]", "f16[2]"), "f32[2]");
  EXPECT_EQ(of("f16[2]", "f64[2]"), "f64[2]");
  EXPECT_EQ(of("i64[2]", "f16[2]"), "f16[2]");
  EXPECT_EQ(of("i32[2]", "i64[2]"), "i64[2]");
  EXPECT_EQ(of("bool[2]", "i32[2]"), "i32[2]");
  EXPECT_EQ(of("bool[2]", "bool[2]"), "bool[2]");
  // A host scalar counts only where its category is above the tensors'.
  EXPECT_EQ(of("bf16[2]", "f64"), "bf16[2]");
  EXPECT_EQ(of("i32[2]", "i64"), "i32[2]");
  EXPECT_EQ(of("i64[2]", "f64"), "f32[2]");
  EXPECT_EQ(of("bool[2]", "i32"), "i64[2]");
  EXPECT_EQ(of("f64", "i64[2]"), "f32[2]");
  // So do two that a bool tensor chooses from.
  const auto chosen = [](const std::string& c, const std::string& a, const std::string& b) {
    return TypeOfY("%c: " + c + ", %a: " + a + ", %b: " + b, "%y = where(%c, %a, %b)");
  };
  EXPECT_EQ(chosen("bool[2]", "f64", "f64"), "f32[2]");
  EXPECT_EQ(chosen("bool[2]", "i64", "i64"), "i64[2]");
  EXPECT_EQ(chosen("bool[2]", "bool", "bool"), "bool[2]");
  EXPECT_EQ(chosen("bool[2]", "bf16[2]", "f64"), "bf16[2]");
  // Division and comparison.
  EXPECT_EQ(of("i64[2]", "i64[2]", "div"), "i64[2]");
  EXPECT_EQ(of("i64[2]", "i64[2]", "truediv"), "f32[2]");
  EXPECT_EQ(of("bf16[2]", "i64[2]", "lt"), "bool[2]");
  EXPECT_EQ(TypeOfY("%x: i32[2]", "%y = exp(%x)"), "f32[2]");
  EXPECT_EQ(TypeOfY("%x: f16[2]", "%y = exp(%x)"), "f16[2]");
}

TEST(Broadcasting, AlignsAtTheLastAxis) {
  const auto of = [](const std::string& a, const std::string& b) {
    return TypeOfY("%a: f32" + a + ", %b: f32" + b, "%y = add(%a, %b)");
  };
  EXPECT_EQ(of("[4, 1, 3]", "[5, 1]"), "f32[4, 5, 3]");
  EXPECT_EQ(of("[]", "[i0]"), "f32[i0]");
  EXPECT_EQ(of("[i0, i1]", "[i2]"), "f32[i0, i1]");
  EXPECT_EQ(of("[i0, 8]", "[4, i1]"), "f32[4, 8]");
  EXPECT_EQ(of("[0, 1]", "[1, 3]"), "f32[0, 3]");
  EXPECT_EQ(of("[b, i0]", "[b, i0]"), "f32[b, i0]");
  EXPECT_EQ(of("[b, 2]", "[1, 2]"), "f32[1, 2]");
  EXPECT_EQ(of("[b:4, 2]", "[b, 2]"), "f32[b:4, 2]");
  EXPECT_EQ(of("[b:i0, 2]", "[i1, 2]"), "f32[i0, 2]");
  EXPECT_EQ(of("[b:4, 2]", "[1, 2]"), "f32[b:4, 2]");
}

TEST(Reduction, KeepsReducedAxes) {
  const auto of = [](const std::string& op, const std::string& type, const std::string& attrs) {
    return TypeOfY("%x: " + type, "%y = " + op + "(%x) {" + attrs + "}");
  };
  EXPECT_EQ(of("sum", "f32[i0, i1]", "axes=[0], keepdim=false, dtype=null"), "f32[r:i0, i1]");
  EXPECT_EQ(of("sum", "f32[i0, i1]", "axes=[-1], keepdim=true, dtype=null"), "f32[i0, b]");
  EXPECT_EQ(of("sum", "f32[i0, 3]", "axes=[], keepdim=false, dtype=null"), "f32[r:i0, r:3]");
  EXPECT_EQ(of("sum", "i32[4]", "axes=[0], keepdim=false, dtype=null"), "i64[r:4]");
  EXPECT_EQ(of("prod", "bool[4]", "axes=[0], keepdim=false, dtype=null"), "i64[r:4]");
  EXPECT_EQ(of("sum", "bf16[4]", "axes=[0], keepdim=false, dtype=f32"), "f32[r:4]");
  EXPECT_EQ(of("max", "i32[4, b:8]", "axes=[1], keepdim=false, dtype=null"), "i32[4, r:8]");
  // Consumers do not see reduced axes.
  EXPECT_EQ(TypeOfY("%x: f32[i0, i1]", "%s = sum(%x) {axes=[0], keepdim=false, dtype=null}\n%y = neg(%s)"), "f32[i1]");
}

TEST(Shape, Types) {
  const auto of = [](const std::string& type, const std::string& op) { return TypeOfY("%x: " + type, "%y = " + op); };
  EXPECT_EQ(of("f32[i0]", "broadcast(%x) {is_broadcast_dim=[1, 0, 1]}"), "f32[b, i0, b]");
  EXPECT_EQ(of("f32[i0, 1]", "broadcast_in_dim(%x) {shape=[7, i0, 4], dims=[1, 2]}"), "f32[b:7, i0, b:4]");
  EXPECT_EQ(of("f32[i0, 1, b]", "expand(%x) {shape=[-1, 5, 1]}"), "f32[i0, b:5, b]");
  EXPECT_EQ(of("f32[i0, 1, b]", "squeeze(%x) {axes=[-1, 1]}"), "f32[i0]");
  EXPECT_EQ(of("f32[i0, 3, b]", "permute(%x) {dims=[2, 0, -2]}"), "f32[b, i0, 3]");
  EXPECT_EQ(of("f32[i0, 12]", "reshape(%x) {shape=[i0, 3, 4]}"), "f32[i0, 3, 4]");
  EXPECT_EQ(of("f32[i0, 12]", "reshape(%x) {shape=[-1]}"), "f32[12*i0]");
  EXPECT_EQ(of("f32[i0, i1, 8]", "reshape(%x) {shape=[-1, i1, 2, 4]}"), "f32[i0, i1, 2, 4]");
  EXPECT_EQ(of("f32[i0, i1]", "reshape(%x) {shape=[i1, -1]}"), "f32[i1, i0]");
  EXPECT_EQ(of("f32[2, b:4, 3]", "reshape(%x) {shape=[2, 2, 2, 3]}"), "f32[2, b:2, b:2, 3]");
  EXPECT_EQ(of("f32[2, b:4, 3]", "reshape(%x) {shape=[8, 3]}"), "f32[8, 3]");
  EXPECT_EQ(of("f32[i0, 12]", "slice(%x) {start=[0, 2], end=[i0, -1], strides=[1, 3]}"), "f32[i0, 3]");
  EXPECT_EQ(of("f32[i0, 12]", "slice(%x) {start=[2, 20], end=[8, 30], strides=[]}"), "f32[6, 0]");
  EXPECT_EQ(of("f32[i0, 4]", "pad(%x) {widths=[1, -2], value=0.0}"), "f32[i0, 3]");
  EXPECT_EQ(of("f32[i0, 4]", "pad(%x) {widths=[0, 0, 0, 3], value=0.0}"), "f32[i0 + 3, 4]");
  EXPECT_EQ(TypeOfY("%a: bf16[i0, 2], %b: f16[i1, 3]", "%y = cat(%a, %b) {axis=-1}"), "f32[i0, 5]");
  EXPECT_EQ(TypeOfY("%a: f32[i0, 2], %b: f32[i1, 2]", "%y = cat(%a, %b) {axis=0}"), "f32[i0 + i1, 2]");
  EXPECT_EQ(TypeOfY("%a: f32[i0, b:2], %b: f32[3, b:2]", "%y = cat(%a, %b) {axis=0}"), "f32[i0 + 3, b:2]");
  const auto take = [](const std::string& x, const std::string& y) {
    return TypeOfY("%a: bf16" + x + ", %b: i32" + y, "%y = take_along_axis(%a, %b) {axis=-1}");
  };
  EXPECT_EQ(take("[i0, i1]", "[i0, 1]"), "bf16[i0, 1]");
  EXPECT_EQ(take("[i0, i1]", "[i2, i3]"), "bf16[i0, i3]");
  EXPECT_EQ(take("[1, i1]", "[i2, 4]"), "bf16[i2, 4]");
  EXPECT_EQ(take("[b:3, i1]", "[b:3, b:4]"), "bf16[b:3, b:4]");
  EXPECT_EQ(take("[2, b:8]", "[b:2, 4]"), "bf16[2, 4]");
  const auto sum = [](const std::string& x, const std::string& y, const std::string& attrs) {
    return TypeOfY("%a: f16" + x + ", %b: i32" + y, "%y = index_sum(%a, %b) {" + attrs + "}");
  };
  EXPECT_EQ(sum("[i0, b:3]", "[i0]", "axis=0, size=5"), "f16[5, 3, r:i0]");
  EXPECT_EQ(sum("[4, i0]", "[i1]", "axis=-1, size=2*i1"), "f16[4, 2*i0, r:i0]");
  EXPECT_EQ(sum("[0]", "[0]", "axis=0, size=0"), "f16[0, r:0]");
}

TEST(Pointwise, ConstantsThatTheOperandsDoNotHold) {
  const auto of = [](const std::string& type, const std::string& value) {
    return TypeOfY("%x: " + type + "[4]", "%c = constant() {value=" + value + ", dtype=i64}\n%y = lt(%x, %c)");
  };
  EXPECT_EQ(of("i32", "2147483647.0"), "bool[4]");
  EXPECT_EQ(of("i32", "-2147483648.0"), "bool[4]");
  EXPECT_THAT(of("i32", "2147483648.0"), HasSubstr("lt: %c is the constant 2147483648.0, which i32"));
  EXPECT_THAT(of("i32", "-2147483649.0"), HasSubstr("cast the tensors to i64"));
  EXPECT_EQ(of("i64", "2147483648.0"), "bool[4]");
  EXPECT_EQ(of("f32", "2147483648.0"), "bool[4]");
}

// Extents that a guard holds equal: the result's is the simpler, in whatever order they come.
TEST(Shape, ExtentsThatAreNotSeenToBeEqual) {
  const auto of = [](const std::string& sum) {
    return TypeOfY("%a: f32[i0, i1], %b: f32[8, i1]",
                   "%c = cat(%a, %a) {axis=0}\n%p = pad(%a) {widths=[0, 0, 1, 1], value=0.0}\n" + ("%y = " + sum));
  };
  EXPECT_EQ(of("add(%c, %b)"), "f32[8, i1]");
  EXPECT_EQ(of("add(%b, %c)"), "f32[8, i1]");
  EXPECT_EQ(of("add(%c, %p)"), of("add(%p, %c)"));
}

TEST(Composite, Types) {
  const auto of = [](const std::string& type, const std::string& op) {
    return TypeOfY("%x: " + type + ", %i: i64[i1], %j: i32[2, 3]", "%y = " + op);
  };
  EXPECT_EQ(of("bf16[i0, 4]", "mean(%x) {axes=[-1], keepdim=false}"), "bf16[i0]");
  EXPECT_EQ(of("i64[i0, 4]", "var(%x) {axes=[0], correction=1, keepdim=true}"), "f32[b, 4]");
  EXPECT_EQ(of("f64[i0, 4]", "var_sum(%x) {axes=[], keepdim=false}"), "f64[]");
  EXPECT_EQ(of("f64[i0, b:4]", "any(%x) {axes=[0], keepdim=false}"), "bool[b:4]");
  EXPECT_EQ(of("i32[i0, 4]", "all(%x) {axes=[], keepdim=true}"), "bool[b, b]");
  EXPECT_EQ(of("bool[i0, b:4]", "argmax(%x) {axis=0, keepdim=false}"), "i64[b:4]");
  EXPECT_EQ(of("f32[i0, 4]", "argmin(%x) {axis=-1, keepdim=true}"), "i64[i0, b]");
  EXPECT_EQ(of("f32[i0, b:4]", "squeeze_expanded(%x) {axes=[1]}"), "f32[i0]");
  EXPECT_EQ(of("f32[4, 8]", "gather(%x, %j) {axis=1}"), "f32[2, 3]");
  EXPECT_EQ(of("f32[b:4, 8]", "gather(%x, %j) {axis=1}"), "f32[2, 3]");
  EXPECT_EQ(of("bool[4, 8]", "index_select(%x, %i) {axis=-1}"), "bool[4, i1]");
  EXPECT_EQ(of("i32[2, 8]", "scatter(%x, %j, %j) {axis=1}"), "i32[2, 8]");
  EXPECT_EQ(of("i32[2, b:8]", "scatter(%x, %j, %j) {axis=1}"), "i32[2, 8]");
  EXPECT_EQ(of("f16[b:4, b:2]", "argsort(%x) {axis=-1, descending=true}"), "i64[b:4, 2]");
  EXPECT_EQ(of("f16[i0, b:4]", "cumsum(%x) {axis=-1, dtype=null}"), "f16[i0, 4]");
  EXPECT_EQ(of("bool[i0, b:4]", "cumsum(%x) {axis=0, dtype=null}"), "i64[i0, b:4]");
  EXPECT_EQ(of("i64[2]", "cumprod(%x) {axis=0, dtype=i32}"), "i32[2]");
  EXPECT_EQ(of("f16[i0, b:4]", "flip(%x) {axes=[]}"), "f16[i0, b:4]");
  EXPECT_EQ(of("i32[i0, b:4]", "one_hot(%x) {classes=1, dtype=bf16}"), "bf16[i0, b:4, 1]");
  EXPECT_EQ(of("f16[i0, b:4, b:8]", "tril(%x) {diagonal=1}"), "f16[i0, 4, 8]");
  EXPECT_EQ(of("f16[b:4, b:8]", "triu(%x) {diagonal=1}"), "f16[4, 8]");
  EXPECT_EQ(TypeOfY("%x: f32[i0, 4, b:3], %k: i32", "%y = select(%x, %k) {axis=0}"), "f32[4, b:3]");
  EXPECT_EQ(TypeOfY("%x: f32[i0, 3], %s: i32", "%y = normal(%s, %s) {shape=[2*i0, 1], dtype=bf16}"), "bf16[2*i0, 1]");
  EXPECT_EQ(TypeOfY("%x: f32[i0], %s: i64",
                    "%n = size(%x) {axis=0}\n"
                    "%y = iota(%s, %n) {shape=[i0], offset=[0], dtype=f16}"),
            "f16[i0]");
}

TEST(Contraction, Types) {
  const auto matmul = [](const std::string& a, const std::string& b) {
    return TypeOfY("%a: f32" + a + ", %b: f32" + b, "%y = matmul(%a, %b)");
  };
  EXPECT_EQ(matmul("[m, k]", "[k, n]"), "f32[m, n, r:k]");
  EXPECT_EQ(matmul("[m, k]", "[j, n]"), "f32[m, n, r:k]");
  EXPECT_EQ(matmul("[5]", "[5]"), "f32[r:5]");
  EXPECT_EQ(matmul("[5]", "[2, 5, 3]"), "f32[2, 3, r:5]");
  EXPECT_EQ(matmul("[7, 1, 2, 5]", "[4, 5, 3]"), "f32[7, 4, 2, 3, r:5]");
  EXPECT_EQ(matmul("[b:4, 5]", "[5, 3]"), "f32[4, 3, r:5]");
  EXPECT_EQ(TypeOfY("%x: bf16[i0, i1, 8], %w: bf16[6, 8], %b: bf16[6]", "%y = linear(%x, %w, %b)"),
            "bf16[i0, i1, 6, r:8]");
  EXPECT_EQ(TypeOfY("%x: f32[8], %w: f32[6, 8]", "%y = linear(%x, %w)"), "f32[6, r:8]");
}

TEST(Grouped, Types) {
  const auto of = [](const std::string& params, const std::string& op) { return TypeOfY(params, "%y = " + op); };
  EXPECT_EQ(of("%x: bf16[b:4, k], %w: bf16[e, k, n], %g: i32[e]", "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}"),
            "bf16[4, n, r:k]");
  EXPECT_EQ(of("%x: i64[s, 8], %w: i64[3, j, 5], %g: i64[e]", "grouped_matmul(%x, %w, %g) {offset=[s, 0, 0]}"),
            "i64[s, 5, r:8]");
  EXPECT_EQ(
      of("%x: f32[s, 8], %w: f32[e, n, 8], %g: i64[e]", "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0], transposed=y}"),
      "f32[s, n, r:8]");
  EXPECT_EQ(of("%x: f16[s, k], %w: f16[t, 5], %g: i64[e]", "grouped_outer(%x, %w, %g) {offset=[0, 0, 0, 0]}"),
            "f16[e, k, 5, r:s]");
}

TEST(Attention, Types) {
  const auto of = [](const std::string& qkv, const std::string& result, const std::string& offset) {
    return TypeOfY(
        qkv, "%y = attention(%q, %k, %v) {result=" + result + ", causal=false, offset=" + offset + ", scale=0.5}");
  };
  const std::string qkv = "%q: bf16[b:4, h, m, 8], %k: bf16[h, n, 8], %v: bf16[h, n, 3]";
  EXPECT_EQ(of(qkv, "values", "[0, 0, 0, 0]"), "bf16[4, h, m, 3]");
  EXPECT_EQ(of(qkv, "lse", "[0, 0, 0]"), "f32[4, h, m]");
  EXPECT_EQ(of("%q: f64[m, 1], %k: f64[1, 1], %v: f64[1, 3]", "lse", "[0]"), "f64[m]");
  const auto gradient = [](const std::string& result) {
    return TypeOfY("%q: f16[m, 8], %k: f16[2, n, 8], %v: f16[n, 3], %g: f16[m, 3], %l: f32[2, m], %d: f16[2, m, 3]",
                   "%y = attention_grad(%q, %k, %v, %g, %l, %d) {result=" + result +
                       ", causal=true, offset=[0, 0, 0, 0], scale=0.5}");
  };
  EXPECT_EQ(gradient("q"), "f16[2, m, 8, r:n]");
  EXPECT_EQ(gradient("k"), "f16[2, n, 8, r:m]");
  EXPECT_EQ(gradient("v"), "f16[2, n, 3, r:m]");
}

// Facts about sizes that inference relies on and cannot know are guards.
TEST(Guards, AreRecorded) {
  const auto guards = [](std::string_view params, std::string_view body) {
    const auto graph = ir::Parse(Program(params, body), kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    std::string text;
    for (const ir::Guard& guard : (*graph)->guards) {
      text += ir::ToString(guard.left) + (guard.kind == ir::Guard::Kind::kEqual ? " == " : " <= ") +
              ir::ToString(guard.right) + " (" + guard.reason + "); ";
    }
    return text;
  };
  EXPECT_EQ(guards("%x: f32[i0]", "%y = max(%x) {axes=[0], keepdim=false, dtype=null}"),
            "1 <= i0 (max over axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = argmin(%x) {axis=0, keepdim=true}"), "1 <= i0 (argmin over axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0], %k: i64[2]", "%y = take_along_axis(%x, %k) {axis=0}"),
            "1 <= i0 (take_along_axis over axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0], %k: i64[i0]", "%y = index_sum(%x, %k) {axis=0, size=i0 - 2}"),
            "0 <= i0 - 2 (index_sum to an extent of i0 - 2); ");
  EXPECT_EQ(guards("%x: f32[i0, i1], %k: i64[i2, 3]", "%y = gather(%x, %k) {axis=1}"),
            "1 <= i1 (gather over axis 1 of %x); i2 <= i0 (gather from axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%k = constant() {value=-3.0, dtype=i64}\n%y = select(%x, %k) {axis=0}"),
            "1 <= i0 (select over axis 0 of %x); 3 <= i0 (element -3 of axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = slice(%x) {start=[2], end=[8], strides=[1]}"),
            "8 <= i0 (slice of axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = slice(%x) {start=[2], end=[i0], strides=[1]}"),
            "2 <= i0 (slice of axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = reshape(%x) {shape=[4, 6]}"), "i0 == 24 (reshape of %x to [4, 6]); ");
  EXPECT_EQ(guards("%x: f32[i0, i1]", "%y = reshape(%x) {shape=[4, -1]}"),
            "i0*i1 == 4*((i0*i1) / 4) (reshape of %x to [4, -1]); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = pad(%x) {widths=[-1, -2], value=0.0}"), "3 <= i0 (pad of axis 0 of %x); ");
  EXPECT_EQ(guards("%x: f32[i0, 12]", "%y = reshape(%x) {shape=[i0, 3, 4]}"), "");
  // What attributes say is a size only where it is not negative, and where nothing is divided by 0.
  EXPECT_EQ(guards("%x: f32[i0], %b: f32[1]", "%y = expand(%b) {shape=[i0 - 10]}"),
            "0 <= i0 - 10 (expand to an extent of i0 - 10); ");
  EXPECT_EQ(guards("%x: f32[i0], %b: f32[1]", "%y = broadcast_in_dim(%b) {shape=[i0 - 10, 1], dims=[1]}"),
            "0 <= i0 - 10 (broadcast_in_dim to an extent of i0 - 10); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = full() {shape=[100 / i0], value=1.0, dtype=f32}"),
            "0 <= 100 / i0 (full to an extent of 100 / i0); ");
  EXPECT_EQ(guards("%x: f32[i0], %s: i64", "%y = iota(%s, %s) {shape=[i0 - 10], offset=[0], dtype=i64}"),
            "0 <= i0 - 10 (iota to an extent of i0 - 10); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = reshape(%x) {shape=[i0 - 12, i0 - 12]}"),
            "i0 == -24*i0 + i0*i0 + 144 (reshape of %x to [i0 - 12, i0 - 12]); 0 <= i0 - 12 "
            "(reshape to an extent of i0 - 12); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%e = extent() {value=100 / i0}\n%y = add(%x, %e)"),
            "1 <= i0 (extent of 100 / i0); ");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = full() {shape=[2 * i0 + 1], value=1.0, dtype=f32}"), "");
  EXPECT_EQ(guards("%x: f32[i0]", "%y = sum(%x) {axes=[0], keepdim=false, dtype=null}"), "");
}

}  // namespace
}  // namespace hir::fusion
