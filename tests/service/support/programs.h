// Programs for tests of the service, and tensors for them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

namespace hir::service {

// Rows over both devices; every device gets the sum over all rows: one all-reduce.
inline constexpr const char* kColumnSums = R"(mesh @m = [0, 1]
fusion @column_sums(%x: f32[i0, i1] {mesh=@m, shard(0, mesh_x)}) {
  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}
  return %y
}
)";

inline std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
inline std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace hir::service
