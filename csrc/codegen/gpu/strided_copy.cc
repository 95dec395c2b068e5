#include "csrc/codegen/gpu/strided_copy.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/prelude.h"
#include "csrc/ir/type.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

constexpr int kCopyThreads = 256;
constexpr int kCopyAxes = static_cast<int>(ir::kAxesMax) + 2;

constexpr std::string_view kText = R"(
struct Args {
  const STORED* from;
  STORED* to;
  i64 elements, axes;
  i64 extent[AXES], from_axis[AXES], to_axis[AXES];
};
KERNEL(k0, THREADS, 1) {
  const i64 i = CTA * THREADS + TID;
  if (i >= a.elements) return;
  i64 rest = i, from = 0, to = 0;
  for (i64 k = a.axes - 1; k >= 0; --k) {
    i64 at, above;
    if (rest <= 0x7fffffff && a.extent[k] <= 0x7fffffff) {
      above = (u32)rest / (u32)a.extent[k];
      at = (u32)rest % (u32)a.extent[k];
    } else {
      above = rest / a.extent[k];
      at = rest % a.extent[k];
    }
    rest = above;
    from += at * a.from_axis[k];
    to += at * a.to_axis[k];
  }
  a.to[to] = a.from[from];
}
)";

}  // namespace

Source EmitStridedCopy(int64_t bytes) {
  const std::string_view stored = bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "u32" : "u64";
  Source source = {.prelude = std::string(kIntrinsics), .parts = {}, .kernels = {}, .caps = {}, .tunings = {}};
  source.parts.push_back(Cat("#undef THREADS\n#undef STORED\n#undef AXES\n#define THREADS ", kCopyThreads,
                             "\n#define STORED ", stored, "\n#define AXES ", kCopyAxes, "\nnamespace of0 {", kText,
                             "}\n"));
  source.kernels.push_back({.threads = kCopyThreads, .items_per_cta = kCopyThreads, .num_slots = 4 + 3 * kCopyAxes});
  source.caps.push_back(1);
  source.tunings.push_back({.schedule = kStridedCopyKernel, .threads = kCopyThreads});
  return source;
}

StridedCopyLaunch LaunchOf(int64_t to, std::span<const int64_t> to_strides, int64_t from,
                           std::span<const int64_t> from_strides, std::span<const int64_t> shape) {
  HIR_CHECK(std::ssize(shape) <= kCopyAxes && shape.size() == to_strides.size() && shape.size() == from_strides.size());
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  StridedCopyLaunch launch = {.args = {from, to, elements, std::ssize(shape)}, .grid = elements};
  const size_t first = launch.args.size();
  launch.args.resize(first + 3 * size_t{kCopyAxes});
  const auto fill = [&](size_t array, std::span<const int64_t> values) {
    std::ranges::copy(values, launch.args.begin() + static_cast<std::ptrdiff_t>(first + array * kCopyAxes));
  };
  fill(0, shape);
  fill(1, from_strides);
  fill(2, to_strides);
  return launch;
}

}  // namespace hir::codegen::gpu
