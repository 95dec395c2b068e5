// Words of CUDA C++ for element types.
#include "csrc/codegen/gpu/words.h"

#include <string_view>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::codegen::gpu {
namespace {

struct Words {
  std::string_view stored, sum, load, store;
};

Words WordsOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return {"float", "float", "x", "x"};
    case DType::kFloat64: return {"double", "double", "x", "x"};
    case DType::kBFloat16: return {"u16", "float", "u2f((u32)x << 16)", "(u16)bf2(x, 0.0f)"};
    case DType::kFloat16: return {"u16", "float", "hf((u32)x)", "(u16)hf2(x, 0.0f)"};
    case DType::kUInt8:
    case DType::kInt8: return {"u8", "u32", "x", "(u8)x"};  // Modulo 256 both are one.
    case DType::kInt32: return {"u32", "u32", "x", "x"};    // Unsigned sums: they wrap.
    case DType::kInt64: return {"u64", "u64", "x", "x"};
    case DType::kBool: break;
  }
  HIR_CHECK(false);  // Whoever makes calls refuses it.
  return {};
}

}  // namespace

std::string DefinitionsOf(DType dtype, DType index) {
  const Words words = WordsOf(dtype);
  return base::Cat("#undef INDEX\n#undef STORED\n#undef SUM\n#undef LOAD\n#undef STORE\n#define INDEX ",
                   index == DType::kInt32 ? "int" : "i64", "\n#define STORED ", words.stored, "\n#define SUM ",
                   words.sum, "\n#define LOAD ", words.load, "\n#define STORE ", words.store, "\n");
}

}  // namespace hir::codegen::gpu
