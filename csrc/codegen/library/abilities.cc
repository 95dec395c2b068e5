#include "csrc/codegen/library/abilities.h"

#include <utility>

namespace hir::codegen::library {
namespace {

constexpr std::pair<Epilogue, std::string_view> kNames[] = {{Epilogue::kNone, "none"},
                                                            {Epilogue::kGelu, "gelu"},
                                                            {Epilogue::kRelu, "relu"},
                                                            {Epilogue::kTanhGelu, "tanh_gelu"}};

}  // namespace

std::string_view EpilogueName(Epilogue epilogue) {
  for (const auto& [known, name] : kNames) {
    if (known == epilogue) return name;
  }
  return {};
}

std::optional<Epilogue> EpilogueNamed(std::string_view name) {
  for (const auto& [epilogue, known] : kNames) {
    if (known == name) return epilogue;
  }
  return std::nullopt;
}

bool HasProducts(Provider provider, DType dtype) {
  // Integers by the loops beside oneDNN.
  return dtype != DType::kBool && (provider == Provider::kOneDnn || IsFloat(dtype));
}

bool HasEpilogue(Provider provider, Epilogue epilogue, DType dtype) {
  switch (provider) {
    case Provider::kOneDnn:  // The loops have what oneDNN has, for every float.
      return epilogue != Epilogue::kNone && IsFloat(dtype);
    case Provider::kCublasLt:
      // Its GELU is the one by tanh, with an error near 2e-6 of 1 + |x| (on an H200): nothing to
      // 16-bit floats, too much for others. In f64 it works with constants of f32.
      if (epilogue == Epilogue::kTanhGelu) return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
      return epilogue == Epilogue::kRelu && IsFloat(dtype) && dtype != DType::kFloat64;
  }
  return false;
}

bool ReadsInPlace(Provider provider, const Placing& placing, bool joins_rows) {
  if (!placing.columns_are_dense && !placing.rows_are_dense) return false;
  if (joins_rows && !placing.rows_go_on) return false;
  // cuBLASLt has one stride of batches: others are calls of their own. oneDNN has eight, of both operands together.
  if (provider == Provider::kOneDnn) return placing.batches <= 4;
  return placing.batches <= 1 && placing.is_aligned;
}

bool WritesInPlace(Provider provider, const Placing& placing, bool joins_rows) {
  return placing.columns_are_dense && ReadsInPlace(provider, placing, joins_rows);
}

bool AttendsInPlace(Provider provider, const Placing& placing) {
  // cuDNN has batches and heads, each with a stride.
  return placing.columns_are_dense && (provider == Provider::kOneDnn || (placing.batches <= 2 && placing.is_aligned));
}

}  // namespace hir::codegen::library
