#include "tools/arrays/made_up.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "csrc/base/checked.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir::arrays {
namespace {

// Elements [first, first + count) of an array made up, each by its place in the whole: the same on every rank.
template <typename T, typename Convert>
void MakeUpAs(uint64_t seed, int64_t first, int64_t count, std::byte* to, Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    const double unit = base::Prng(seed ^ static_cast<uint64_t>(first + i) * 0xd1342543de82ef95).Unit();
    const T element = convert((2.0 * unit - 1.0) * 1.7320508);  // Of variance 1.
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
  }
}

// What programs can still have without swapping; all of the memory where the system does not say.
int64_t MemoryLeft() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kib = 0; file >> name >> kib; file.ignore(80, '\n')) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

uint64_t SeedOf(int64_t seed, size_t index) { return static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15 + index; }

void MakeUp(DType dtype, uint64_t seed, int64_t first, int64_t count, std::byte* to) {
  const auto make_up = [&]<typename T>(T, auto convert) { MakeUpAs<T>(seed, first, count, to, convert); };
  switch (dtype) {
    case DType::kBool: return make_up(uint8_t{}, [](double v) -> uint8_t { return v > 0; });
    case DType::kUInt8: return make_up(uint8_t{}, [](double v) -> uint8_t { return v > 0; });
    case DType::kInt8: return make_up(int8_t{}, [](double v) -> int8_t { return v > 0; });
    case DType::kInt32: return make_up(int32_t{}, [](double v) -> int32_t { return v > 0; });
    case DType::kInt64: return make_up(int64_t{}, [](double v) -> int64_t { return v > 0; });
    case DType::kFloat16: return make_up(uint16_t{}, [](double v) { return FloatToFloat16(static_cast<float>(v)); });
    case DType::kBFloat16: return make_up(uint16_t{}, [](double v) { return FloatToBFloat16(static_cast<float>(v)); });
    case DType::kFloat32: return make_up(float{}, [](double v) { return static_cast<float>(v); });
    case DType::kFloat64: return make_up(double{}, [](double v) { return v; });
  }
}

Result<int64_t> BytesOf(std::span<const int64_t> shape, const std::vector<bool>& stored_once, DType dtype) {
  std::optional<int64_t> bytes = DTypeBytes(dtype);
  for (size_t axis = 0; axis < shape.size() && bytes; ++axis)
    bytes = base::CheckedMul(*bytes, stored_once[axis] ? 1 : shape[axis]);
  if (bytes) return *bytes;
  return ResourceExhausted("more than 2^63 bytes are to be made up: make it smaller");
}

Status FitsMemory(int64_t bytes) {
  const int64_t left = MemoryLeft();
  if (bytes <= left) return {};
  return ResourceExhausted(
      base::Cat(bytes, " bytes are to be made up; this machine has ", left, " bytes of memory left: make it smaller"));
}

}  // namespace hir::arrays
