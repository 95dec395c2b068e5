#include "csrc/fusion/interpret/host_tensor.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/check.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

template <typename T>
T Read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

double ReadFloat(DType dtype, const std::byte* from) {
  if (dtype == DType::kFloat16) return static_cast<double>(Float16ToFloat(Read<uint16_t>(from)));
  if (dtype == DType::kBFloat16) return static_cast<double>(BFloat16ToFloat(Read<uint16_t>(from)));
  return dtype == DType::kFloat32 ? static_cast<double>(Read<float>(from)) : Read<double>(from);
}

int64_t ReadInt(DType dtype, const std::byte* from) {
  if (dtype == DType::kBool) return Read<uint8_t>(from) != 0 ? 1 : 0;
  if (dtype == DType::kUInt8) return Read<uint8_t>(from);
  if (dtype == DType::kInt8) return Read<int8_t>(from);
  return dtype == DType::kInt32 ? int64_t{Read<int32_t>(from)} : Read<int64_t>(from);
}

void WriteFloat(DType dtype, std::byte* to, double value) {
  const auto rounded = static_cast<float>(dtype == DType::kFloat64 ? 0.0 : RoundTo(dtype, value));
  if (dtype == DType::kFloat16) return Write(to, FloatToFloat16(rounded));
  if (dtype == DType::kBFloat16) return Write(to, FloatToBFloat16(rounded));
  return dtype == DType::kFloat32 ? Write(to, rounded) : Write(to, value);
}

void WriteInt(DType dtype, std::byte* to, int64_t value) {
  if (dtype == DType::kBool) return Write(to, static_cast<uint8_t>(value != 0));
  if (DTypeBytes(dtype) == 1) return Write(to, static_cast<uint8_t>(value));
  return dtype == DType::kInt32 ? Write(to, static_cast<int32_t>(value)) : Write(to, value);
}

// Calls `visit(element of a tensor of `from`, element of one of `to`)` for each index of the larger; extent 1
// stretches.
template <typename Visit>
void ForEachPair(const std::vector<int64_t>& from, const std::vector<int64_t>& to, const Visit& visit) {
  HIR_CHECK(from.size() == to.size());
  std::vector<int64_t> index(from.size(), 0);
  int64_t count = 1;
  for (size_t i = 0; i < from.size(); ++i) count *= from[i] == 1 ? to[i] : from[i];
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n;
    int64_t at_from = 0, at_to = 0, step_from = 1, step_to = 1;
    for (size_t i = from.size(); i-- > 0;) {
      const int64_t extent = from[i] == 1 ? to[i] : from[i];
      const int64_t k = rest % extent;
      rest /= extent;
      at_from += (from[i] == 1 ? 0 : k) * step_from;
      at_to += (to[i] == 1 ? 0 : k) * step_to;
      step_from *= from[i];
      step_to *= to[i];
    }
    visit(at_from, at_to);
  }
}

HostTensor Copied(const HostTensor& tensor, std::vector<int64_t> shape) {
  HostTensor result = ZeroTensor(tensor.dtype, std::move(shape));
  const int64_t size = DTypeBytes(tensor.dtype);
  ForEachPair(tensor.shape, result.shape, [&](int64_t from, int64_t to) {
    std::memcpy(result.bytes.data() + to * size, tensor.bytes.data() + from * size, static_cast<size_t>(size));
  });
  return result;
}

}  // namespace

int64_t HostTensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

HostTensor ZeroTensor(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor = {.dtype = dtype, .shape = std::move(shape), .bytes = {}};
  for (const int64_t extent : tensor.shape) HIR_CHECK(extent >= 0);
  tensor.bytes.resize(static_cast<size_t>(tensor.num_elements() * DTypeBytes(dtype)));
  return tensor;
}

HostTensor TensorOf(DType dtype, std::vector<int64_t> shape, std::span<const double> values) {
  HostTensor tensor = ZeroTensor(dtype, std::move(shape));
  HIR_CHECK(std::ssize(values) == tensor.num_elements());
  std::byte* to = tensor.bytes.data();
  for (const double value : values) {
    if (IsFloat(dtype)) {
      WriteFloat(dtype, to, value);
    } else {
      WriteInt(dtype, to, FloatToInt(dtype, value));
    }
    to += DTypeBytes(dtype);
  }
  return tensor;
}

HostTensor TensorOfInts(DType dtype, std::vector<int64_t> shape, std::span<const int64_t> values) {
  HostTensor tensor = ZeroTensor(dtype, std::move(shape));
  HIR_CHECK(std::ssize(values) == tensor.num_elements());
  std::byte* to = tensor.bytes.data();
  for (const int64_t value : values) {
    if (IsFloat(dtype)) {
      WriteFloat(dtype, to, IntToFloat(dtype, value));
    } else {
      WriteInt(dtype, to, value);
    }
    to += DTypeBytes(dtype);
  }
  return tensor;
}

std::vector<double> ToDoubles(const HostTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.num_elements()));
  const std::byte* from = tensor.bytes.data();
  for (double& value : values) {
    value = IsFloat(tensor.dtype) ? ReadFloat(tensor.dtype, from) : static_cast<double>(ReadInt(tensor.dtype, from));
    from += DTypeBytes(tensor.dtype);
  }
  return values;
}

std::vector<int64_t> ToInts(const HostTensor& tensor) {
  std::vector<int64_t> values(static_cast<size_t>(tensor.num_elements()));
  const std::byte* from = tensor.bytes.data();
  for (int64_t& value : values) {
    value =
        IsFloat(tensor.dtype) ? FloatToInt(DType::kInt64, ReadFloat(tensor.dtype, from)) : ReadInt(tensor.dtype, from);
    from += DTypeBytes(tensor.dtype);
  }
  return values;
}

HostTensor Stored(const ir::Type& type, const HostTensor& tensor) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(type);
  HIR_CHECK(axes.size() == tensor.shape.size());
  std::vector<int64_t> shape = tensor.shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
  }
  return Copied(tensor, std::move(shape));
}

HostTensor WrittenOut(const HostTensor& stored, const std::vector<int64_t>& shape) { return Copied(stored, shape); }

}  // namespace hir::fusion
