#include "csrc/codegen/cpu/pairs.h"

#include "csrc/base/text.h"

namespace hir::codegen::cpu {

namespace {

constexpr int64_t kUpper = 0xffff0000;
constexpr int64_t kFirstOrBoth = 0xf8;  // a | (b & c), of vpternlog.

int EvenFirst(int lane, int lanes) { return lane < lanes / 2 ? 2 * lane : 2 * (lane - lanes / 2) + 1; }

}  // namespace

V PairedIota(int lanes) {
  std::string text = "<";
  for (int i = 0; i < lanes; ++i) base::Append(text, i > 0 ? ", " : "", "i64 ", EvenFirst(i, lanes));
  return {text + ">", Ty::kI64, lanes};
}

V EmitInPairs(Writer& writer, std::string& code, const V& value) {
  const int lanes = value.lanes;
  return writer.Shuffle(code, value, lanes, [&](int i) { return EvenFirst(i, lanes); });
}

V EmitInMemoryOrder(Writer& writer, std::string& code, const V& value) {
  const int lanes = value.lanes;
  return writer.Shuffle(code, value, lanes, [&](int i) { return i % 2 == 0 ? i / 2 : lanes / 2 + i / 2; });
}

V EmitPairsWidened(Writer& writer, std::string& code, const V& both) {
  const int lanes = both.lanes;
  const V even = writer.Binary(code, "shl", both, IntConstant(Ty::kI32, 16, lanes));
  const V odd = writer.Binary(code, "and", both, IntConstant(Ty::kI32, kUpper, lanes));
  const V all = writer.Shuffle(code, even, odd, 2 * lanes, [](int i) { return i; });
  return writer.CastTo(code, "bitcast", all, Ty::kF32);
}

V EmitPairsNarrowed(Writer& writer, std::string& code, const V& bits) {
  const int lanes = bits.lanes / 2;
  const auto half = [&](int first) { return writer.Shuffle(code, bits, lanes, [&](int i) { return first + i; }); };
  const V even = writer.Binary(code, "lshr", half(0), IntConstant(Ty::kI32, 16, lanes));
  const V upper = IntConstant(Ty::kI32, kUpper, lanes);
  // One instruction, which LLVM leaves alone; of the others it makes a shuffle of words, which is three.
  if (writer.avx512 && lanes == 16) {
    return writer.Call(code, "llvm.x86.avx512.pternlog.d.512", Ty::kI32, lanes,
                       {even, half(lanes), upper, IntConstant(Ty::kI32, kFirstOrBoth)});
  }
  return writer.Binary(code, "or", even, writer.Binary(code, "and", half(lanes), upper));
}

}  // namespace hir::codegen::cpu
