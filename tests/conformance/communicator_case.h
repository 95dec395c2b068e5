// One communication to try on every rank: its inputs and what must come out, computed element by
// element in the plainest way, apart from the code under test.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/dtype.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/device/device.h"
#include "multidevice/comm/communicator.h"

namespace hir::comm {

using Bytes = std::vector<std::byte>;

struct CommCase {
  CommType type = CommType::kAllreduce;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int64_t count = 1;
  bool in_place = false;
  bool fixed_order = true;  // Additions and multiplications of floats go in the order of the team.
  std::vector<int64_t> ranks = {};
  int64_t root_index = 0;
  int64_t shift = 1;  // kSendRecv, kCollectivePermute: place k sends to place k + shift.
  uint64_t seed = 0;

  int64_t n() const { return static_cast<int64_t>(ranks.size()); }
  int64_t chunk_bytes() const { return count * DTypeBytes(dtype); }
  int64_t src_chunks() const {
    const bool many = type == CommType::kScatter || type == CommType::kReduceScatter || type == CommType::kAllToAll;
    return many ? n() : 1;
  }
  int64_t dst_chunks() const {
    const bool many = type == CommType::kGather || type == CommType::kAllgather || type == CommType::kAllToAll;
    return many ? n() : 1;
  }
  // Whether the rank at place `index` has that buffer.
  bool has_src(int64_t index) const {
    const bool at_root = type == CommType::kScatter || type == CommType::kBroadcast;
    return !at_root || index == root_index;
  }
  bool has_dst(int64_t index) const {
    const bool at_root = type == CommType::kGather || type == CommType::kReduce;
    return !at_root || index == root_index;
  }
  int64_t RankAt(int64_t index) const { return ranks[static_cast<size_t>(((index % n()) + n()) % n())]; }
  std::string ToString() const {
    return base::Cat(CommTypeName(type), " ", ReduceOpName(reduce), " ", count, " ", DTypeName(dtype), " in [",
                     base::JoinInts(ranks, ", "), "]", in_place ? " in place" : "", " root ", root_index, " shift ",
                     shift, " seed ", seed);
  }
};

template <typename T>
T LoadAs(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void StoreAs(Bytes& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// The src of the rank at place `index`.
inline Bytes InputOf(const CommCase& c, int64_t index) {
  base::Prng random(c.seed * 1000 + static_cast<uint64_t>(index));
  const int64_t elements = c.src_chunks() * c.count;
  Bytes bytes(static_cast<size_t>(elements * DTypeBytes(c.dtype)));
  uint64_t draw = 0;
  for (int64_t i = 0; i < elements; ++i) {  // A draw is two elements, but for those of 64 bits.
    const bool wide = DTypeBytes(c.dtype) == 8;
    draw = wide || i % 2 == 0 ? random.Next() : draw << 32;
    const auto real = static_cast<float>(static_cast<double>(draw >> 32) * 0x1.0p-30 - 2.0);
    switch (c.dtype) {
      case DType::kBool: StoreAs(bytes, i, static_cast<uint8_t>(draw >> 63)); break;
      case DType::kUInt8:
      case DType::kInt8: StoreAs(bytes, i, static_cast<uint8_t>(draw >> 56)); break;   // Wraps as well.
      case DType::kInt32: StoreAs(bytes, i, static_cast<int32_t>(draw >> 32)); break;  // Wraps in sums and products.
      case DType::kInt64: StoreAs(bytes, i, static_cast<int64_t>(draw)); break;
      case DType::kFloat16: StoreAs(bytes, i, FloatToFloat16(real)); break;
      case DType::kBFloat16: StoreAs(bytes, i, FloatToBFloat16(real)); break;
      case DType::kFloat32: StoreAs(bytes, i, real); break;
      case DType::kFloat64: StoreAs(bytes, i, static_cast<double>(draw >> 11) * 0x1.0p-51 - 2.0); break;
    }
  }
  return bytes;
}

template <typename T>
T Two(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean: return static_cast<T>(a + b);
    case ReduceOp::kProd: return static_cast<T>(a * b);
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
  }
  HIR_CHECK(false);
  return a;
}

// Element `i` of each input, combined in the order of the team.
inline void ReduceElement(const CommCase& c, const std::vector<Bytes>& inputs, int64_t i, Bytes& out, int64_t at) {
  const auto fold = [&](auto load) {
    auto value = load(inputs[0]);
    for (size_t j = 1; j < inputs.size(); ++j) value = Two(c.reduce, value, load(inputs[j]));
    if (c.reduce == ReduceOp::kMean) value /= static_cast<decltype(value)>(c.n());
    return value;
  };
  switch (c.dtype) {
    case DType::kBool: {
      const auto load = [i](const Bytes& b) { return LoadAs<uint8_t>(b, i) != 0 ? 1 : 0; };
      StoreAs(out, at, static_cast<uint8_t>(fold(load) != 0));
      return;
    }
    case DType::kUInt8:
    case DType::kInt8: return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<uint8_t>(b, i); }));
    case DType::kInt32: return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<uint32_t>(b, i); }));
    case DType::kInt64: return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<uint64_t>(b, i); }));
    case DType::kFloat16:
      return StoreAs(out, at,
                     FloatToFloat16(fold([i](const Bytes& b) { return Float16ToFloat(LoadAs<uint16_t>(b, i)); })));
    case DType::kBFloat16:
      return StoreAs(out, at,
                     FloatToBFloat16(fold([i](const Bytes& b) { return BFloat16ToFloat(LoadAs<uint16_t>(b, i)); })));
    case DType::kFloat32: return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<float>(b, i); }));
    case DType::kFloat64: return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<double>(b, i); }));
  }
}

// Minimum and maximum of integers look at the sign.
inline void ReduceInts(const CommCase& c, const std::vector<Bytes>& inputs, int64_t i, Bytes& out, int64_t at) {
  const auto reduce = [&]<typename T>(T) {
    T value = LoadAs<T>(inputs[0], i);
    for (const Bytes& input : inputs) value = Two(c.reduce, value, LoadAs<T>(input, i));
    StoreAs(out, at, value);
  };
  if (c.dtype == DType::kUInt8) return reduce(uint8_t{});
  if (c.dtype == DType::kInt8) return reduce(int8_t{});
  if (c.dtype == DType::kInt32) return reduce(int32_t{});
  reduce(int64_t{});
}

// The dst of the rank at place `index`; empty where it has none.
inline Bytes ExpectedAt(const CommCase& c, int64_t index) {
  Bytes out(static_cast<size_t>(c.dst_chunks() * c.chunk_bytes()));
  const auto take = [&](int64_t from, int64_t from_chunk, int64_t to_chunk) {
    const Bytes input = InputOf(c, from);
    std::copy_n(input.begin() + from_chunk * c.chunk_bytes(), c.chunk_bytes(),
                out.begin() + to_chunk * c.chunk_bytes());
  };
  if (!c.has_dst(index)) return {};
  if (c.type == CommType::kGather || c.type == CommType::kAllgather || c.type == CommType::kAllToAll) {
    for (int64_t j = 0; j < c.n(); ++j) take(j, c.type == CommType::kAllToAll ? index : 0, j);
    return out;
  }
  if (c.type == CommType::kScatter) return take(c.root_index, index, 0), out;
  if (c.type == CommType::kBroadcast) return take(c.root_index, 0, 0), out;
  if (HasHalves(c.type)) return take(((index - c.shift) % c.n() + c.n()) % c.n(), 0, 0), out;
  std::vector<Bytes> inputs;
  for (int64_t j = 0; j < c.n(); ++j) inputs.push_back(InputOf(c, j));
  const int64_t begin = c.type == CommType::kReduceScatter ? index * c.count : 0;
  const bool by_sign = IsInt(c.dtype) && (c.reduce == ReduceOp::kMin || c.reduce == ReduceOp::kMax);
  for (int64_t i = 0; i < c.count; ++i) {
    by_sign ? ReduceInts(c, inputs, begin + i, out, i) : ReduceElement(c, inputs, begin + i, out, i);
  }
  return out;
}

inline double RealAt(DType dtype, const Bytes& bytes, int64_t i) {
  switch (dtype) {
    case DType::kFloat16: return Float16ToFloat(LoadAs<uint16_t>(bytes, i));
    case DType::kBFloat16: return BFloat16ToFloat(LoadAs<uint16_t>(bytes, i));
    case DType::kFloat32: return LoadAs<float>(bytes, i);
    case DType::kFloat64: return LoadAs<double>(bytes, i);
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: break;
  }
  HIR_CHECK(false);
  return 0;
}

// What a float type rounds by, relative to a normal number, and at most to a subnormal one.
struct Rounding {
  double unit = 0;
  double smallest = 0;
};
inline Rounding RoundingOf(DType dtype) {
  if (dtype == DType::kFloat16) return {0x1p-11, 0x1p-25};
  if (dtype == DType::kBFloat16) return {0x1p-8, 0x1p-134};
  if (dtype == DType::kFloat32) return {0x1p-24, 0x1p-150};
  return {0x1p-53, 0};
}

// Sums and products in any order: n - 1 operations, each of which rounds its result. So a sum s of
// x_j is off by at most g * sum |x_j|, a product by g * prod |x_j|, with g = k u / (1 - k u), k = n -
// 1; a product that underflows also by half the smallest number at each step, which later factors,
// of at most 2, make larger. A mean may also round 1 / n and each product with it. The exact value is taken in long
// double.
inline std::string OutOfBounds(const CommCase& c, int64_t index, const Bytes& got) {
  const Rounding rounding = RoundingOf(c.dtype);
  const bool mean = c.reduce == ReduceOp::kMean;
  const auto k = static_cast<long double>(mean ? c.n() + 1 : c.n() - 1);
  const long double g = k * rounding.unit / (1 - k * rounding.unit);
  const bool product = c.reduce == ReduceOp::kProd;
  const long double underflow = product ? rounding.smallest * static_cast<double>(int64_t{1} << c.n())
                                : mean  ? rounding.smallest * static_cast<double>(c.n())
                                        : 0;
  const int64_t begin = c.type == CommType::kReduceScatter ? index * c.count : 0;
  std::vector<Bytes> inputs;
  for (int64_t j = 0; j < c.n(); ++j) inputs.push_back(InputOf(c, j));
  for (int64_t i = 0; i < c.count; ++i) {
    long double exact = product ? 1 : 0, size = exact;
    for (const Bytes& input : inputs) {
      const long double x = RealAt(c.dtype, input, begin + i);
      exact = product ? exact * x : exact + x;
      size = product ? size * std::abs(x) : size + std::abs(x);
    }
    if (mean) {
      exact /= static_cast<long double>(c.n());
      size /= static_cast<long double>(c.n());
    }
    const long double off = std::abs(RealAt(c.dtype, got, i) - exact);
    if (off <= g * size + underflow) continue;
    return base::Cat("element ", i, " is off by ", static_cast<double>(off), ", more than ",
                     static_cast<double>(g * size + underflow));
  }
  return {};
}

// Empty, or where `got`, the dst of the rank at place `index`, is wrong.
inline std::string Difference(const CommCase& c, int64_t index, const Bytes& got) {
  const bool rounds = c.reduce == ReduceOp::kSum || c.reduce == ReduceOp::kProd || c.reduce == ReduceOp::kMean;
  if (!c.fixed_order && Reduces(c.type) && IsFloat(c.dtype) && rounds) return OutOfBounds(c, index, got);
  const Bytes expected = ExpectedAt(c, index);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) return base::Cat("byte ", i, " of ", expected.size(), " is wrong");
  }
  return {};
}

// Memory of a device with `contents`, written and read in the order of a stream.
class DeviceBytes {
 public:
  DeviceBytes(device::Device& device, device::Stream& stream, Bytes contents)
      : stream_(stream), contents_(std::move(contents)), memory_(*device.Allocate(std::ssize(contents_))) {
    stream.Copy(memory_->buffer(), {contents_.data(), std::ssize(contents_)});
  }
  // Queues the copy of what it holds then to `contents`, which stays until the copy is done.
  void Fetch(Bytes& contents) const {
    contents.resize(contents_.size());
    stream_.Copy({contents.data(), std::ssize(contents)}, memory_->buffer());
  }
  // What it holds when everything queued on the stream is done. REQUIRES: the stream has not
  // failed.
  Bytes Read() const {
    Bytes contents;
    Fetch(contents);
    HIR_CHECK(stream_.Synchronize(std::chrono::seconds(20)).ok());
    return contents;
  }
  device::Buffer buffer() const { return memory_->buffer(); }
  const Bytes& at_start() const { return contents_; }

 private:
  device::Stream& stream_;
  Bytes contents_;  // Stays until the copy is done: as long as this.
  const std::unique_ptr<device::Allocation> memory_;
};

// One rank's buffers for a case, in the memory of its device: src as its input, dst poisoned, and a
// margin behind each that must stay as it is. In place, the larger one holds both.
class CaseBuffers {
 public:
  CaseBuffers(const CommCase& c, int64_t index, device::Device& device, device::Stream& stream)
      : case_(c), index_(index), memory_(device, stream, AtStart()) {}

  CommDesc Desc(TeamId team, int64_t seq) const {
    const CommCase& c = case_;
    CommDesc desc = {.type = c.type, .team = team, .reduce = c.reduce, .dtype = c.dtype, .count = c.count, .seq = seq};
    if (c.has_src(index_)) desc.src = memory_.buffer().Slice(SrcAt(), SrcBytes());
    if (c.has_dst(index_)) desc.dst = memory_.buffer().Slice(DstAt(), DstBytes());
    if (IsRooted(c.type)) desc.root = c.RankAt(c.root_index);
    if (HasHalves(c.type)) {
      desc.to = c.RankAt(index_ + c.shift);
      desc.from = c.RankAt(index_ - c.shift);
    }
    return desc;
  }

  // Queues the copy of what the buffers hold then, for Check.
  void Fetch() { memory_.Fetch(fetched_); }
  // Empty, or what is wrong: only dst has changed, to what is expected. REQUIRES: what Fetch queued
  // is done.
  std::string Check() const {
    const std::string where = base::Cat(case_.ToString(), ": place ", index_, ": ");
    Bytes held = fetched_;
    if (case_.has_dst(index_)) {
      const auto got = held.begin() + DstAt();
      const std::string wrong = Difference(case_, index_, {got, got + DstBytes()});
      if (!wrong.empty()) return where + wrong;
      std::copy_n(memory_.at_start().begin() + DstAt(), DstBytes(), got);
    }
    if (in_place() && case_.type == CommType::kReduceScatter) {  // It may use the rest of src.
      std::copy_n(memory_.at_start().begin() + SrcAt(), SrcBytes(), held.begin() + SrcAt());
    }
    return held == memory_.at_start() ? "" : where + "wrote beyond dst, or changed src";
  }

 private:
  static constexpr int64_t kMargin = 64;
  static constexpr std::byte kPoison{0xee};

  bool in_place() const { return case_.in_place && case_.has_src(index_) && case_.has_dst(index_); }
  int64_t SrcBytes() const { return case_.src_chunks() * case_.chunk_bytes(); }
  int64_t DstBytes() const { return case_.dst_chunks() * case_.chunk_bytes(); }
  // Where they start in the memory. In place, the smaller one is this rank's chunk of the larger.
  int64_t SrcAt() const { return in_place() && DstBytes() > SrcBytes() ? index_ * case_.chunk_bytes() : 0; }
  int64_t DstAt() const {
    if (in_place()) return SrcBytes() > DstBytes() ? index_ * case_.chunk_bytes() : 0;
    return (SrcBytes() / kMargin + 2) * kMargin;
  }
  Bytes AtStart() const {
    const int64_t end = std::max(SrcAt() + SrcBytes(), DstAt() + DstBytes());
    Bytes bytes(static_cast<size_t>(end + kMargin), kPoison);
    if (!case_.has_src(index_)) return bytes;
    const Bytes input = InputOf(case_, index_);
    std::copy(input.begin(), input.end(), bytes.begin() + SrcAt());
    return bytes;
  }

  const CommCase case_;
  const int64_t index_;
  const DeviceBytes memory_;
  Bytes fetched_;
};

}  // namespace hir::comm
