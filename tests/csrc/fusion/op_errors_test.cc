// Goal: what a program gets wrong is refused with op, value seen and limit. Method: the whole message of each refusal.
#include <fstream>
#include <set>

#include "csrc/fusion/check_program.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

struct Case {
  const char* label;  // In docs/ops.md: the op's section and the demand; pointwise ops share one section.
  const char* params;
  const char* op;
  const char* message;  // Without "INVALID_ARGUMENT: line 2: ".
};

const Case kCases[] = {
    {"pointwise C1", "%x: f32[4095], %w: f32[4096]", "add(%x, %w)",
     "add: axis 0 of %x has extent 4095, axis 0 of %w has extent 4096"},
    {"pointwise C2", "%x: bool[2]", "neg(%x)", "neg: %x is bool; numbers are needed: cast it first"},
    {"pointwise C3", "%x: f32[2]", "bitwise_not(%x)", "bitwise_not: %x is f32; bools or integers are needed"},
    {"pointwise C4", "%x: f32[2]", "where(%x, %x, %x)", "where: the condition %x is f32; it must be bool"},
    {"pointwise C5", "%x: i32[2], %w: bool[2]", "gcd(%x, %w)", "gcd: %w is bool; integers are needed: cast it first"},
    {"pointwise C6", "%x: i32[2], %w: i64[2]", "nextafter(%x, %w)",
     "nextafter: the operands promote to i64; floats are needed: cast them first"},
    {"cast C1", "%x: f32[2]", "cast(%x) {dtype=f8}",
     "cast: dtype=f8 is not an element type (bool, u8, i8, i32, i64, f16, bf16, f32, f64)"},
    {"sum C1", "%x: f64", "sum(%x) {axes=[0], keepdim=false, dtype=null}", "sum: %x is f64; a tensor is needed"},
    {"sum C2", "%x: f32[2, 3]", "sum(%x) {axes=[2], keepdim=false, dtype=null}", "sum: axis 2 is not in [-2, 1]"},
    {"sum C2", "%x: f32[]", "sum(%x) {axes=[0], keepdim=false, dtype=null}", "sum: axis 0 of a tensor without axes"},
    {"sum C3", "%x: f32[2, 3]", "sum(%x) {axes=[1, -1], keepdim=false, dtype=null}", "sum: axis 1 is given twice"},
    {"sum C4", "%x: f32[2]", "sum(%x) {axes=[0], keepdim=false, dtype=bool}",
     "sum: dtype=bool: a sum or product is a number; use max or min"},
    {"all C1", "%x: bool", "all(%x) {axes=[0], keepdim=false}", "all: %x is bool; a tensor is needed"},
    {"argmax C1", "%x: i64", "argmax(%x) {axis=0, keepdim=false}", "argmax: %x is i64; a tensor is needed"},
    {"argmax C2", "%x: f32[2]", "argmax(%x) {axis=-2, keepdim=false}", "argmax: axis -2 is not in [-1, 0]"},
    {"argmax C3", "%x: f32[2, 0]", "argmax(%x) {axis=1, keepdim=false}",
     "argmax: axis 1 of %x has extent 0: of nothing there is no argmax"},
    {"max C1", "%x: f32[2, 0]", "max(%x) {axes=[1], keepdim=false, dtype=null}",
     "max: axis 1 of %x has extent 0: of nothing there is no max"},
    {"mean C1", "%x: f64", "mean(%x) {axes=[0], keepdim=false}", "mean: %x is f64; a tensor is needed"},
    {"var C1", "%x: f32[2]", "var(%x) {axes=[0], correction=-1, keepdim=false}",
     "var: correction=-1 is not in [0, 2^53]"},
    {"broadcast C1", "%x: f32[2]", "broadcast(%x) {is_broadcast_dim=[1, 2]}",
     "broadcast: is_broadcast_dim holds 2; it holds 0 and 1"},
    {"broadcast C2", "%x: f32[2]", "broadcast(%x) {is_broadcast_dim=[0, 0]}",
     "broadcast: is_broadcast_dim keeps 2 axes; %x has 1"},
    {"broadcast_in_dim C1", "%x: f32[2, 3]", "broadcast_in_dim(%x) {shape=[2, 3], dims=[1]}",
     "broadcast_in_dim: dims has 1 entries; %x has 2 axes"},
    {"broadcast_in_dim C2", "%x: f32[2, 3]", "broadcast_in_dim(%x) {shape=[2, 3], dims=[1, 0]}",
     "broadcast_in_dim: dims holds 0 after 1; it must ascend"},
    {"broadcast_in_dim C3", "%x: f32[2]", "broadcast_in_dim(%x) {shape=[3, 4], dims=[1]}",
     "broadcast_in_dim: axis 0 of %x has extent 2, entry 1 of shape has extent 4"},
    {"expand C1", "%x: f32[2]", "expand(%x) {shape=[3, 2]}", "expand: shape has 2 entries; %x has 1 axes"},
    {"expand C2", "%x: f32[2]", "expand(%x) {shape=[3]}",
     "expand: axis 0 of %x has extent 2, entry 0 of shape has extent 3"},
    {"flip C1", "%x: f32", "flip(%x) {axes=[0]}", "flip: %x is f32; a tensor is needed"},
    {"flip C2", "%x: f32[2, 3]", "flip(%x) {axes=[-3]}", "flip: axis -3 is not in [-2, 1]"},
    {"flip C3", "%x: f32[2, 3]", "flip(%x) {axes=[0, -2]}", "flip: axis 0 is given twice"},
    {"squeeze C1", "%x: f32[2, i0]", "squeeze(%x) {axes=[1]}",
     "squeeze: axis 1 of %x has extent i0; only axes of extent 1 can go"},
    {"squeeze_expanded C1", "%x: f32[2, i0]", "squeeze_expanded(%x) {axes=[1]}",
     "squeeze_expanded: axis 1 of %x holds i0 elements; only axes that are stored once can go"},
    {"gather C1", "%x: f32[2, 3], %k: i64[2]", "gather(%x, %k) {axis=0}", "gather: %x has 2 axes, %k has 1"},
    {"gather C2", "%x: f32[2], %k: bool[2]", "gather(%x, %k) {axis=0}",
     "gather: %k is bool; indices are i32 or i64: cast it first"},
    {"gather C3", "%x: f32[2, 3], %k: i64[4, 1]", "gather(%x, %k) {axis=1}",
     "gather: axis 0 of %k has extent 4, more than the 2 of axis 0 of %x"},
    {"gather C4", "%x: f32[2, 0], %k: i64[2, 1]", "gather(%x, %k) {axis=1}",
     "gather: axis 1 of %x has extent 0: there is nothing to take"},
    {"index_select C1", "%x: f32[2, 3], %k: i64[2, 1]", "index_select(%x, %k) {axis=1}",
     "index_select: %k has 2 axes; a list of indices has one"},
    {"index_select C2", "%x: f32[2, 3], %k: f32[2]", "index_select(%x, %k) {axis=1}",
     "index_select: %k is f32; indices are i32 or i64: cast it first"},
    {"index_select C3", "%x: f32[2, 0], %k: i64[2]", "index_select(%x, %k) {axis=1}",
     "index_select: axis 1 of %x has extent 0: there is nothing to take"},
    {"scatter C1", "%x: f32[2, 3], %k: i64[2, 1], %z: f32[2]", "scatter(%x, %k, %z) {axis=1}",
     "scatter: %x has 2 axes, %z has 1"},
    {"scatter C2", "%x: f32[2], %k: f32[1], %z: f32[1]", "scatter(%x, %k, %z) {axis=0}",
     "scatter: %k is f32; indices are i32 or i64: cast it first"},
    {"scatter C3", "%x: f32[2], %k: i64[1], %z: f16[1]", "scatter(%x, %k, %z) {axis=0}",
     "scatter: %x is f32, %z is f16; nothing promotes: cast one"},
    {"scatter C4", "%x: f32[2], %k: i64[1], %z: f32[3]", "scatter(%x, %k, %z) {axis=0}",
     "scatter: axis 0 of %k has extent 1, axis 0 of %z has extent 3"},
    {"scatter C5", "%x: f32[2], %k: i64[0], %z: f32[0]", "scatter(%x, %k, %z) {axis=0}",
     "scatter: axis 0 of %k has extent 0: there is nothing to put"},
    {"select C1", "%x: f32[2], %k: i64[1]", "select(%x, %k) {axis=0}",
     "select: %k is i64[1]; the index is a host scalar of i32 or i64"},
    {"select C2", "%x: f32[2, 0], %k: i64", "select(%x, %k) {axis=1}",
     "select: axis 1 of %x has extent 0: there is nothing to take"},
    {"index_sum C1", "%x: f32[2, 3], %k: i64[2, 1]", "index_sum(%x, %k) {axis=0, size=4}",
     "index_sum: %k has 2 axes; a list of indices has one"},
    {"index_sum C2", "%x: f32[2, 3], %k: f32[2]", "index_sum(%x, %k) {axis=0, size=4}",
     "index_sum: %k is f32; indices are i32 or i64: cast it first"},
    {"index_sum C3", "%x: bool[2, 3], %k: i32[2]", "index_sum(%x, %k) {axis=0, size=4}",
     "index_sum: %x is bool; numbers are needed: cast it first"},
    {"index_sum C4", "%x: f32[2, 3], %k: i32[2]", "index_sum(%x, %k) {axis=-1, size=4}",
     "index_sum: axis 1 of %x has extent 3, axis 0 of %k has extent 2"},
    {"take_along_axis C1", "%x: f32[2, 3], %k: i64[2]", "take_along_axis(%x, %k) {axis=0}",
     "take_along_axis: %x has 2 axes, %k has 1"},
    {"take_along_axis C2", "%x: f32[2], %k: f32[2]", "take_along_axis(%x, %k) {axis=0}",
     "take_along_axis: %k is f32; indices are i32 or i64: cast it first"},
    {"take_along_axis C3", "%x: f32[2, 3], %k: i64[4, 1]", "take_along_axis(%x, %k) {axis=1}",
     "take_along_axis: axis 0 of %x has extent 2, axis 0 of %k has extent 4"},
    {"take_along_axis C4", "%x: f32[2, 0], %k: i64[2, 1]", "take_along_axis(%x, %k) {axis=1}",
     "take_along_axis: axis 1 of %x has extent 0: there is nothing to take"},
    {"reshape C1", "%x: f32[2, 6]", "reshape(%x) {shape=[5, 2]}", "reshape: %x has 12 elements, shape [5, 2] has 10"},
    {"reshape C2", "%x: f32[2, 6]", "reshape(%x) {shape=[-1, 5]}",
     "reshape: %x has 12 elements, not a multiple of the 5 of shape [-1, 5]"},
    {"reshape C3", "%x: f32[2, 6]", "reshape(%x) {shape=[-1, -1]}", "reshape: shape [-1, -1] holds -1 more than once"},
    {"reshape C4", "%x: f32[0, 6]", "reshape(%x) {shape=[-1, 0]}",
     "reshape: shape [-1, 0] holds 0, so -1 can be any extent"},
    {"reshape C5", "%x: f32[2, 6]", "reshape(%x) {shape=[-3, -4]}", "reshape: shape [-3, -4] holds -3"},
    {"permute C1", "%x: f32[2, 6]", "permute(%x) {dims=[0]}", "permute: dims has 1 entries; the tensor has 2 axes"},
    {"permute C2", "%x: f32[2, 6]", "permute(%x) {dims=[0, -2]}", "permute: axis 0 is given twice"},
    {"slice C1", "%x: f32[2]", "slice(%x) {start=[0], end=[2], strides=[0]}",
     "slice: stride 0 on axis 0; strides are at least 1"},
    {"slice C2", "%x: f32[2]", "slice(%x) {start=[0, 0], end=[2], strides=[1]}",
     "slice: start has 2 entries; %x has 1 axes"},
    {"pad C1", "%x: f32[2]", "pad(%x) {widths=[1], value=0.0}",
     "pad: widths has 1 entries; %x has 1 axes, so it holds at most 1 pairs"},
    {"pad C2", "%x: f32[2]", "pad(%x) {widths=[-2, -1], value=0.0}",
     "pad: axis 0 of %x has extent 2, less than the 3 to crop"},
    {"pad C3", "%x: f32[2]", "pad(%x) {widths=[2199023255552, 0], value=0.0}",
     "pad: width 2199023255552 on axis 0; the limit is 1099511627776"},
    {"cat C1", "%x: f32[2], %w: f32[2, 2]", "cat(%x, %w) {axis=0}", "cat: %x has 1 axes, %w has 2"},
    {"cat C2", "%x: f32[2]", "cat() {axis=0}", "cat: there is no operand"},
    {"cat C3", "%x: f32[2, 3], %w: f32[2, 4]", "cat(%x, %w) {axis=0}",
     "cat: axis 1 of %x has extent 3, axis 1 of %w has extent 4"},
    {"full C1", "%x: f32[2]", "full() {shape=[2, -1], value=0.0, dtype=f32}",
     "full: f32[2, -1]: extent -1 is negative"},
    {"iota C1", "%x: f32[2], %s: i64", "iota(%x, %s) {shape=[4], offset=[0], dtype=f32}",
     "iota: %x is f32[2]; start and step are host scalars"},
    {"iota C2", "%x: f32[2], %s: i64, %t: f64", "iota(%s, %t) {shape=[4], offset=[0], dtype=i32}",
     "iota: %t is f64, dtype=i32 needs an integer: cast it first"},
    {"iota C3", "%x: f32[2], %s: i64", "iota(%s, %s) {shape=[4], offset=[0], dtype=bool}",
     "iota: dtype=bool: a sequence is of numbers"},
    {"iota C4", "%x: f32[2], %s: i64", "iota(%s, %s) {shape=[4, 2], offset=[0], dtype=i64}",
     "iota: shape has 2 entries; a sequence has one axis"},
    {"one_hot C1", "%x: f32[2]", "one_hot(%x) {classes=3, dtype=f32}",
     "one_hot: %x is f32; indices are i32 or i64: cast it first"},
    {"one_hot C2", "%x: i32[2]", "one_hot(%x) {classes=-3, dtype=f32}", "one_hot: classes=-3; it is 0 or more"},
    {"size C1", "%x: f32[2], %s: i64", "size(%s) {axis=0}", "size: %s is i64; a tensor is needed"},
    {"size C2", "%x: f32[2]", "size(%x) {axis=1}", "size: axis 1 is not in [-1, 0]"},
    {"triu C1", "%x: f32[2]", "triu(%x) {diagonal=0}", "triu: %x has 1 axes; two are needed"},
    {"triu C2", "%x: f32[2, 2]", "triu(%x) {diagonal=9223372036854775807}",
     "triu: diagonal=9223372036854775807 is not in [-2^53, 2^53]"},
    {"argsort C1", "%x: i64", "argsort(%x) {axis=0, descending=false}", "argsort: %x is i64; a tensor is needed"},
    {"argsort C2", "%x: f32[2]", "argsort(%x) {axis=-2, descending=false}", "argsort: axis -2 is not in [-1, 0]"},
    {"argsort C3", "%x: f32[1073741824]", "argsort(%x) {axis=0, descending=true}",
     "argsort: i64[1073741824, 1, 1073741824] has more than 2^60 - 1 elements"},
    {"cumsum C1", "%x: i64", "cumsum(%x) {axis=0, dtype=null}", "cumsum: %x is i64; a tensor is needed"},
    {"cumsum C2", "%x: f32[2]", "cumsum(%x) {axis=1, dtype=null}", "cumsum: axis 1 is not in [-1, 0]"},
    {"cumsum C3", "%x: f32[2]", "cumsum(%x) {axis=0, dtype=bool}", "cumsum: dtype=bool: a sum or product is a number"},
    {"cumsum C4", "%x: f32[1073741824]", "cumsum(%x) {axis=0, dtype=null}",
     "cumsum: i64[1073741824, 1, 1073741824] has more than 2^60 - 1 elements"},
    {"uniform C1", "%x: f32[2], %s: f64", "uniform(%s, %s) {shape=[4], dtype=f32}",
     "uniform: %s is f64; seed and offset are host scalars of i32 or i64"},
    {"uniform C1", "%x: i64[2], %s: i64", "uniform(%s, %x) {shape=[4], dtype=f32}",
     "uniform: %x is i64[2]; seed and offset are host scalars of i32 or i64"},
    {"uniform C2", "%x: f32[2], %s: i64", "uniform(%s, %s) {shape=[4], dtype=i32}",
     "uniform: dtype=i32: random numbers are floats; cast them"},
    {"uniform C3", "%x: f32[2], %s: i64", "uniform(%s, %s) {shape=[4, -2], dtype=f32}",
     "uniform: f32[4, -2]: extent -2 is negative"},
    {"constant C1", "%x: f32[2]", "constant() {value=0.5, dtype=i64}",
     "constant: value=0.5 is not an integer between -2^53 and 2^53"},
    {"constant C2", "%x: f32[2]", "constant() {value=4294967296.0, dtype=i32}",
     "constant: value=4294967296.0 does not fit i32"},
    {"constant C3", "%x: f32[2]", "constant() {value=2.0, dtype=bool}", "constant: value=2.0 is not a bool (0 or 1)"},
    {"grouped_matmul C1", "%x: f32[2, 3], %w: f32[3, 4], %g: i32[2]", "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}",
     "grouped_matmul: %w has 2 axes; y is [groups, k, n]"},
    {"grouped_matmul C2", "%x: f32[2, 3], %w: bf16[2, 3, 4], %g: i32[2]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}",
     "grouped_matmul: %x is f32, %w is bf16; operands have one element type"},
    {"grouped_matmul C2", "%x: bool[2, 3], %w: bool[2, 3, 4], %g: i32[2]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}", "grouped_matmul: %x is bool; numbers are needed: cast it first"},
    {"grouped_matmul C2", "%x: f32[2, 3], %w: f32[2, 3, 4], %g: f32[2]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}",
     "grouped_matmul: %g is f32; ends of groups are i32 or i64: cast it first"},
    {"grouped_matmul C3", "%x: f32[2, 3], %w: f32[2, 5, 4], %g: i32[2]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}",
     "grouped_matmul: axis 1 of %x has extent 3, axis 1 of %w has extent 5"},
    {"grouped_matmul C3", "%x: f32[2, 3], %w: f32[2, 3, 4], %g: i32[7]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0]}",
     "grouped_matmul: axis 0 of %w has extent 2, axis 0 of %g has extent 7"},
    {"grouped_matmul C4", "%x: f32[2, 3], %w: f32[2, 3, 4], %g: i32[2]", "grouped_matmul(%x, %w, %g) {offset=[0, 0]}",
     "grouped_matmul: offset has 2 entries; the result has 3 axes, the reduced one too"},
    {"grouped_matmul C5", "%x: f32[2, 3], %w: f32[2, 3, 4], %g: i32[2]",
     "grouped_matmul(%x, %w, %g) {offset=[0, 0, 0], transposed=x}", "grouped_matmul: transposed is none or y, not x"},
    {"grouped_outer C1", "%x: f32[2, 3], %w: f32[2, 3], %g: i32[2, 1]",
     "grouped_outer(%x, %w, %g) {offset=[0, 0, 0, 0]}", "grouped_outer: %g has 2 axes; ends are [groups]"},
    {"grouped_outer C2", "%x: f32[2, 3], %w: i32[2, 3], %g: i32[2]", "grouped_outer(%x, %w, %g) {offset=[0, 0, 0, 0]}",
     "grouped_outer: %x is f32, %w is i32; operands have one element type"},
    {"grouped_outer C3", "%x: f32[2, 3], %w: f32[3, 3], %g: i32[2]", "grouped_outer(%x, %w, %g) {offset=[0, 0, 0, 0]}",
     "grouped_outer: axis 0 of %x has extent 2, axis 0 of %w has extent 3"},
    {"grouped_outer C4", "%x: f32[2, 3], %w: f32[2, 3], %g: i32[2]", "grouped_outer(%x, %w, %g) {offset=[0]}",
     "grouped_outer: offset has 1 entries; the result has 4 axes, the reduced one too"},
    {"matmul C1", "%x: f32[2, 3], %w: f32[4, 2]", "matmul(%x, %w)",
     "matmul: axis 1 of %x has extent 3, axis 0 of %w has extent 4"},
    {"matmul C2", "%x: f32[2, 3], %w: bf16[3, 2]", "matmul(%x, %w)",
     "matmul: %x is f32, %w is bf16; operands have one element type"},
    {"matmul C3", "%x: bool[2, 3], %w: bool[3, 2]", "matmul(%x, %w)",
     "matmul: %x is bool; numbers are needed: cast it first"},
    {"matmul C4", "%x: f32[], %w: f32[3]", "matmul(%x, %w)", "matmul: %x has no axes; one or more are needed"},
    {"matmul C5", "%x: f64[2, 2]", "matmul(%x, %x) {precision=tf32}", "matmul: precision tf32 is for f32, not f64"},
    {"matmul C5", "%x: f32[2, 2]", "matmul(%x, %x) {precision=half}", "matmul: precision is full or tf32, not half"},
    {"matmul C5", "%x: i32[2, 2]", "matmul(%x, %x) {epilogue=relu}", "matmul: epilogue relu is for floats, not i32"},
    {"matmul C5", "%x: f32[2, 2]", "matmul(%x, %x) {epilogue=silu}",
     "matmul: epilogue is none, gelu, relu or tanh_gelu, not silu"},
    {"matmul C5", "%x: f32[2, 2], %b: f32[3]", "matmul(%x, %x, %b)",
     "matmul: axis 1 of %x has extent 2, axis 0 of %b has extent 3"},
    {"matmul C5", "%x: f32[2, 2, 2], %b: f32[2]", "matmul(%x, %x, %b)", "matmul: a bias, but %x is no matrix"},
    {"attention C1", "%x: f32[2, 3]", "attention(%x, %x) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: 2 operands; it takes q, k, v and perhaps a mask"},
    {"attention C2", "%x: f32[2, 3]", "attention(%x, %x, %x) {result=q, causal=false, offset=[0, 0], scale=1}",
     "attention: result is values or lse, not q"},
    {"attention C3", "%x: f32[2, 3], %k: f32[3]",
     "attention(%x, %k, %x) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: %k has 1 axis; k has 2 or more"},
    {"attention C3", "%x: f32[2, 3], %k: f32[2, 4]",
     "attention(%x, %k, %x) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: axis 1 of %x has extent 3, axis 1 of %k has extent 4"},
    {"attention C4", "%x: i32[2, 3]", "attention(%x, %x, %x) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: %x is i32; queries are floats: cast them first"},
    {"attention C4", "%x: f32[2, 3], %v: bf16[2, 3]",
     "attention(%x, %x, %v) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: %v is bf16; with queries of f32 v is f32"},
    {"attention C5", "%x: f32[2, 3], %m: i32[2, 2]",
     "attention(%x, %x, %x, %m) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: %m is i32; a mask is of bools, true where a key takes part, or of floats that are added"},
    {"attention C5", "%x: f32[2, 3], %m: bool[2, 3]",
     "attention(%x, %x, %x, %m) {result=values, causal=false, offset=[0, 0], scale=1}",
     "attention: axis 0 of %x has extent 2, axis 1 of %m has extent 3"},
    {"attention C6", "%x: f32[2, 3]", "attention(%x, %x, %x) {result=values, causal=false, offset=[0], scale=1}",
     "attention: offset has 1 entries; the result has 2 axes, reduced ones too"},
    {"attention C7", "%x: f32[2, 3]", "attention(%x, %x, %x) {result=values, causal=false, offset=[0, 0], scale=inf}",
     "attention: scale=inf is not finite"},
    {"attention_grad C1", "%x: f32[2, 3]",
     "attention_grad(%x, %x, %x) {result=q, causal=false, offset=[0, 0, 0], scale=1}",
     "attention_grad: 3 operands; it takes q, k, v, gradient, lse, values and perhaps a mask"},
    {"attention_grad C2", "%x: f32[2, 2], %l: f32[2]",
     "attention_grad(%x, %x, %x, %x, %l, %l) {result=mask, causal=false, offset=[0, 0, 0], scale=1}",
     "attention_grad: result is q, k or v, not mask"},
    {"attention_grad C3", "%x: bf16[2, 2], %l: bf16[2]",
     "attention_grad(%x, %x, %x, %x, %l, %x) {result=q, causal=false, offset=[0, 0, 0], scale=1}",
     "attention_grad: %l is bf16; with queries of bf16 lse is f32"},
    {"linear C1", "%x: f32[8, 4096], %w: f32[16, 4095]", "linear(%x, %w)",
     "linear: axis 1 of %x has extent 4096, axis 1 of %w has extent 4095"},
    {"linear C2", "%x: f32[8], %w: f32[8]", "linear(%x, %w)", "linear: the weight %w has 1 axes; it must be [out, in]"},
    {"linear C3", "%x: f32[8], %w: f32[2, 8]", "linear(%x, %w, %w)",
     "linear: the bias %w has 2 axes; it must be [out]"},
    {"linear C4", "%x: f32[8]", "linear(%x)", "linear: 1 operands; it takes x, the weight and perhaps a bias"},
};

TEST(Errors, WholeMessages) {
  for (const Case& c : kCases) {
    const std::string op(c.op);
    // Scalars are no outputs; the error comes before.
    const auto graph = ir::Parse(Program(c.params, "%y = " + op, "%x"), kFusionOps);
    EXPECT_EQ(graph.status().ToString(), std::string("INVALID_ARGUMENT: line 2: ") + c.message) << c.op;
  }
}

// A constant's, which is an op of its own.
TEST(Errors, SelectOfAConstantOutside) {
  const std::string body = "%k = constant() {value=-4.0, dtype=i64}\n  %y = select(%x, %k) {axis=1}";
  const auto graph = ir::Parse(Program("%x: f32[2, 3]", body), kFusionOps);
  EXPECT_EQ(graph.status().ToString(),
            "INVALID_ARGUMENT: line 3: select: axis 1 of %x has extent 3; it has no element -4");
}

const Case kCommunications[] = {
    {"allgather C1", "", "allgather(%x) {mesh=@m, dim=stream}",
     "allgather: dim=stream is not mesh_x, mesh_y or mesh_z"},
    {"allgather C2", "", "allgather(%x) {mesh=@m, dim=mesh_y}", "allgather: mesh @m has no mesh_y"},
    {"allreduce C1", "", "allreduce(%x) {mesh=@m, dim=mesh_x, reduce=median}",
     "allreduce: reduce=median is not sum, prod, min, max or mean"},
    {"reduce_scatter C1", "", "reduce_scatter(%x) {mesh=@m, dim=mesh_x, reduce=sum}",
     "reduce_scatter: %x is f32[3, i0]; its leading axis must hold 2 chunks"},
    {"broadcast_to C1", "", "broadcast_to(%x) {from=@m, to=@n}",
     "broadcast_to: mesh @m has 2 devices, mesh @n has 1 rows along mesh_x; each row has one root"},
    {"collective_permute C1", "", "collective_permute(%x) {from=@m, to=@n}",
     "collective_permute: mesh @m has 2 devices, mesh @n has 1; positions pair up"},
    {"collective_permute C2", "", "collective_permute(%x) {from=@m, to=@o}",
     "collective_permute: mesh @o lacks device 0 of mesh @m; a permutation stays within its "
     "devices"},
    {"gather_to C1", "", "gather_to(%x) {from=@m, to=@m}",
     "gather_to: mesh @m has 2 devices, mesh @m has 1 rows along mesh_x; each row has one root"},
    {"reduce_to C1", "", "reduce_to(%x) {from=@m, to=@n, reduce=median}",
     "reduce_to: reduce=median is not sum, prod, min, max or mean"},
    {"reduce_to C2", "", "reduce_to(%x) {from=@m, to=@m, reduce=sum}",
     "reduce_to: mesh @m has 2 devices, mesh @m has 1 rows along mesh_x; each row has one root"},
    {"reduce_to C3", "", "reduce_to(%x) {from=@m, to=@n, reduce=sum}",
     "reduce_to: device 2 is at position 0 of mesh @n, but not in row 0 of mesh @m; a root holds a "
     "partial result"},
    {"scatter_to C1", "", "scatter_to(%x) {from=@m, to=@m}",
     "scatter_to: mesh @m has 2 devices, mesh @m has 1 rows along mesh_x; each row has one root"},
    {"scatter_to C2", "", "scatter_to(%x) {from=@n, to=@m}",
     "scatter_to: %x is f32[3, i0]; its leading axis must hold 2 chunks"},
    {"send_recv C1", "", "send_recv(%x) {from=@m, to=@n}",
     "send_recv: mesh @m has 2 devices, mesh @n has 1; positions pair up"},
};

TEST(Errors, WholeMessagesOfCommunications) {
  for (const Case& c : kCommunications) {
    const std::string text =
        "mesh @m = [0, 1]\nmesh @n = [2]\nmesh @o = [2, 1]\n" + Program("%x: f32[3, i0]", "%y = " + std::string(c.op));
    const auto graph = ir::Parse(text, kFusionOps);
    EXPECT_EQ(graph.status().ToString(), std::string("INVALID_ARGUMENT: line 5: ") + c.message) << c.op;
  }
}

// The labels of docs/ops.md: "sum C1" for each "* (C1)" in the section of sum.
std::set<std::string> DocumentedLabels() {
  std::set<std::string> labels;
  std::ifstream page("docs/ops.md");
  std::string section, line;
  while (std::getline(page, line)) {
    if (line == "## Pointwise") section = "pointwise";
    if (line.starts_with("### ")) section = line.substr(4);
    if (line.starts_with("* (C")) labels.insert(section + " " + line.substr(3, line.find(')') - 3));
  }
  return labels;
}

TEST(Errors, EveryDocumentedDemandHasItsMessage) {
  std::set<std::string> cases;
  for (const Case& c : kCases) cases.insert(c.label);
  cases.insert("select C3");  // SelectOfAConstantOutside.
  for (const Case& c : kCommunications) cases.insert(c.label);
  EXPECT_EQ(DocumentedLabels(), cases);
}

// Extents at the ends of their type: refused or guarded, never wrong arithmetic.
TEST(Errors, ExtremeExtents) {
  const auto status = [](std::string_view params, std::string_view op) {
    return ir::Parse(Program(params, "%y = " + std::string(op)), kFusionOps).status();
  };
  EXPECT_EQ(status("%x: bool[9223372036854775807]", "pad(%x) {widths=[1, 0], value=0.0}").code(),
            Code::kInvalidArgument);
  EXPECT_EQ(status("%x: bool[9223372036854775807]", "cat(%x, %x) {axis=0}").code(), Code::kInvalidArgument);
  EXPECT_NE(status("%x: f32[-9223372036854775807*i0 - i0]", "reshape(%x) {shape=[-1*i0, -1]}").code(), Code::kInternal);
  EXPECT_TRUE(status("%x: f32[i0]", "slice(%x) {start=[-9223372036854775808], end=[i0], strides=[1]}").code() !=
              Code::kInternal);
  EXPECT_EQ(status("%x: f32[4611686018427387904, 4]", "neg(%x)").code(), Code::kInvalidArgument);
}

TEST(Errors, UserPrograms) {
  const auto check = [](const std::string& text) {
    const auto graph = ir::Parse(text, kFusionOps);
    return graph.ok() ? CheckUserProgram(**graph).ToString() : graph.status().ToString();
  };
  EXPECT_EQ(check(Program("%x: f32[i0]", "%y = neg(%x)")), "OK");
  EXPECT_EQ(check(Program("%x: f32[i0, r:4]", "%y = neg(%x)")),
            "INVALID_ARGUMENT: input %x: axis 1 is reduced; only the op that reduced it leaves such an axis: leave it "
            "out");
  EXPECT_EQ(check(Program("%x: f32[i0]", "%y = full() {shape=[i7], value=0.0, dtype=f32}")),
            "INVALID_ARGUMENT: full: %y: extent i7 is not the extent of an axis of any input");
  EXPECT_EQ(check(Program("%x: f32[i0]", "%n = extent() {value=i0 + i7}\n%y = add(%x, %n)")),
            "INVALID_ARGUMENT: extent: %n: extent i7 is not the extent of an axis of any input");
  EXPECT_EQ(
      check("mesh @m = [0, 1]\n" + Program("%x: f32[i0]", "%y = allreduce(%x) {mesh=@m, dim=mesh_x, reduce=sum}")),
      "INVALID_ARGUMENT: allreduce: communications come from shardings; a program cannot "
      "hold them");
  EXPECT_EQ(check(Program("%x: f32[i0, i0]", "%y = matmul(%x, %x) {epilogue=relu}")),
            "INVALID_ARGUMENT: matmul: write relu behind it; an epilogue is made by planning");
  EXPECT_EQ(check(Program("%x: f32[i0, i0], %b: f32[i0]", "%y = matmul(%x, %x, %b)")),
            "INVALID_ARGUMENT: matmul: add the bias behind it; matmul with a bias is made by planning");
  EXPECT_EQ(check(Program("%x: f32[i0, i0]", "%y = matmul(%x, %x) {transposed=y}")),
            "INVALID_ARGUMENT: matmul: permute the operand in front of it; transposed operands are made by planning");
  EXPECT_EQ(check(Program("%x: f32[i0, i0]", "%y = matmul(%x, %x) {precision=tf32}")), "OK");
  EXPECT_EQ(check("mesh @m = [0, 1]\n" + Program("%x: f32[@m.x + 1]", "%y = neg(%x)")),
            "INVALID_ARGUMENT: %x: @m.x is a mesh coordinate; extents of a program have none");
  EXPECT_EQ(check(Program("%x: f32[i0]", "%s = constant() {value=1.0, dtype=f64}", "%s")),
            "INVALID_ARGUMENT: output %s is a host scalar; outputs are tensors");
  const std::string none =
      "INVALID_ARGUMENT: program @f has 0 outputs; a run would compute nothing: return at least 1 "
      "tensor (in Python: add_output)";
  EXPECT_EQ(check("fusion @f(%x: f32[i0]) {\n  %y = neg(%x)\n}\n"), none);
  EXPECT_EQ(check("fusion @f(%x: f32[i0]) {\n}\n"), none);
  EXPECT_EQ(check("fusion @f() {\n}\n"), none);
}

TEST(Errors, InputsThatDoNotFit) {
  const auto bind = [](const std::string& text, const std::vector<HostTensor>& inputs) {
    const auto graph = ir::Parse(text, kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    return Interpret(**graph, inputs).status().ToString();
  };
  const std::string text =
      Program("%x: f32[i0, 4], %w: f32[i0]", "%y = slice(%x) {start=[1, 0], end=[3, 4], strides=[]}");
  const HostTensor x = Counting(DType::kFloat32, {3, 4});
  EXPECT_EQ(bind(text, {x, F32({3}, {1, 2, 3})}), "OK");
  EXPECT_EQ(bind(text, {x}), "INVALID_ARGUMENT: 1 inputs; the program takes 2");
  EXPECT_EQ(bind(text, {x, F64({3}, {1, 2, 3})}), "INVALID_ARGUMENT: input %w is f64; the program's is f32");
  EXPECT_EQ(bind(text, {x, F32({3, 1}, {1, 2, 3})}), "INVALID_ARGUMENT: input %w has 2 axes; the program's has 1");
  EXPECT_EQ(bind(text, {x, F32({2}, {1, 2})}), "INVALID_ARGUMENT: axis 0 of input %w has extent 2; i0 is 3");
  EXPECT_EQ(bind(text, {Counting(DType::kFloat32, {3, 5}), F32({3}, {1, 2, 3})}),
            "INVALID_ARGUMENT: axis 1 of input %x has extent 5; the program's has 4");
  EXPECT_EQ(bind(text, {Counting(DType::kFloat32, {2, 4}), F32({2}, {1, 2})}),
            "INVALID_ARGUMENT: slice of axis 0 of %x: 3 is 3, i0 is 2; the first may not exceed "
            "the second");
}

TEST(Errors, InterpreterRefusesCommunications) {
  const auto graph = ir::Parse(
      "mesh @m = [0, 1]\n" + Program("%x: f32[2]", "%y = allreduce(%x) {mesh=@m, dim=mesh_x, reduce=sum}"), kFusionOps);
  ASSERT_TRUE(graph.ok());
  const std::vector<HostTensor> inputs = {F32({2}, {1, 2})};
  EXPECT_EQ(Interpret(**graph, inputs).status().ToString(),
            "UNIMPLEMENTED: allreduce: the interpreter runs programs of one rank");
}

}  // namespace
}  // namespace hir::fusion
