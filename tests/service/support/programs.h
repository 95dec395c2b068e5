// Programs for tests of the service, and tensors for them.
#pragma once

#include <unistd.h>

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

// One op.
inline std::string Negate(const std::string& name) {
  return "fusion @" + name + "(%x: f32[2]) {\n  %y = neg(%x)\n  return %y\n}\n";
}

// A program that takes a while to plan: kernels that no cache has.
inline std::string SlowProgram() {
  static int number = 0;
  const std::string unique = std::to_string(getpid()) + "." + std::to_string(++number);
  std::string ops, last = "x";
  for (int i = 0; i < 500; ++i) {
    const std::string at = std::to_string(i);
    ops += "  %c" + at + " = constant() {value=" + unique + at + ", dtype=f64}\n";
    ops += "  %a" + at + " = add(%" + last + ", %c" + at + ")\n";
    last = "s" + at;
    ops += "  %" + last + " = segment_set(%a" + at + ")\n";
  }
  return "fusion @slow(%x: f32[4]) {\n" + ops + "  return %" + last + "\n}\n";
}

inline std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
inline std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace hir::service
