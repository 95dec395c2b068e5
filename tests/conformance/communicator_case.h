// One communication to try on every rank: its inputs and what must come out, computed element by
// element in the plainest way, apart from the code under test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/dtype.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "multidevice/comm/communicator.h"

namespace hir::comm {

using Bytes = std::vector<std::byte>;

struct CommCase {
  CommType type = CommType::kAllreduce;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int64_t count = 1;
  bool in_place = false;
  std::vector<int64_t> ranks = {};
  int64_t root_index = 0;
  int64_t shift = 1;  // kSendRecv: the rank at place k sends to the one at place k + shift.
  uint64_t seed = 0;

  int64_t n() const { return static_cast<int64_t>(ranks.size()); }
  int64_t chunk_bytes() const { return count * DTypeBytes(dtype); }
  int64_t src_chunks() const {
    return type == CommType::kReduceScatter || type == CommType::kAllToAll ? n() : 1;
  }
  int64_t dst_chunks() const {
    return type == CommType::kAllgather || type == CommType::kAllToAll ? n() : 1;
  }
  int64_t RankAt(int64_t index) const {
    return ranks[static_cast<size_t>(((index % n()) + n()) % n())];
  }
  std::string ToString() const {
    return base::Cat(CommTypeName(type), " ", ReduceOpName(reduce), " ", count, " ",
                     DTypeName(dtype), " in [", base::JoinInts(ranks, ", "), "]",
                     in_place ? " in place" : "", " root ", root_index, " shift ", shift, " seed ",
                     seed);
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
  for (int64_t i = 0; i < elements; ++i) {
    const uint64_t draw = random.Next();
    const auto real = static_cast<float>(static_cast<double>(draw >> 11) * 0x1.0p-51 - 2.0);
    switch (c.dtype) {
      case DType::kBool: StoreAs(bytes, i, static_cast<uint8_t>(draw & 1)); break;
      case DType::kInt32:
        StoreAs(bytes, i, static_cast<int32_t>(draw));
        break;  // Wraps in sums and products.
      case DType::kInt64: StoreAs(bytes, i, static_cast<int64_t>(draw)); break;
      case DType::kFloat16: StoreAs(bytes, i, FloatToFloat16(real)); break;
      case DType::kBFloat16: StoreAs(bytes, i, FloatToBFloat16(real)); break;
      case DType::kFloat32: StoreAs(bytes, i, real); break;
      case DType::kFloat64: StoreAs(bytes, i, static_cast<double>(real) / 3.0); break;
    }
  }
  return bytes;
}

template <typename T>
T Two(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum: return static_cast<T>(a + b);
    case ReduceOp::kProd: return static_cast<T>(a * b);
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
  }
  HIR_CHECK(false);
  return a;
}

// Element `i` of each input, combined in the order of the team.
inline void ReduceElement(const CommCase& c, const std::vector<Bytes>& inputs, int64_t i,
                          Bytes& out, int64_t at) {
  const auto fold = [&](auto load) {
    auto value = load(inputs[0]);
    for (size_t j = 1; j < inputs.size(); ++j) value = Two(c.reduce, value, load(inputs[j]));
    return value;
  };
  switch (c.dtype) {
    case DType::kBool: {
      const auto load = [i](const Bytes& b) { return LoadAs<uint8_t>(b, i) != 0 ? 1 : 0; };
      StoreAs(out, at, static_cast<uint8_t>(fold(load) != 0));
      return;
    }
    case DType::kInt32:
      return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<uint32_t>(b, i); }));
    case DType::kInt64:
      return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<uint64_t>(b, i); }));
    case DType::kFloat16:
      return StoreAs(out, at, FloatToFloat16(fold([i](const Bytes& b) {
                       return Float16ToFloat(LoadAs<uint16_t>(b, i));
                     })));
    case DType::kBFloat16:
      return StoreAs(out, at, FloatToBFloat16(fold([i](const Bytes& b) {
                       return BFloat16ToFloat(LoadAs<uint16_t>(b, i));
                     })));
    case DType::kFloat32:
      return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<float>(b, i); }));
    case DType::kFloat64:
      return StoreAs(out, at, fold([i](const Bytes& b) { return LoadAs<double>(b, i); }));
  }
}

// Minimum and maximum of integers look at the sign.
inline void ReduceInts(const CommCase& c, const std::vector<Bytes>& inputs, int64_t i, Bytes& out,
                       int64_t at) {
  const bool wide = c.dtype == DType::kInt64;
  const auto load = [&](const Bytes& b) {
    return wide ? LoadAs<int64_t>(b, i) : LoadAs<int32_t>(b, i);
  };
  int64_t value = load(inputs[0]);
  for (const Bytes& input : inputs) value = Two(c.reduce, value, load(input));
  if (wide) return StoreAs(out, at, value);
  StoreAs(out, at, static_cast<int32_t>(value));
}

// The dst of the rank at place `index`.
inline Bytes ExpectedAt(const CommCase& c, int64_t index) {
  Bytes out(static_cast<size_t>(c.dst_chunks() * c.chunk_bytes()));
  const auto take = [&](int64_t from, int64_t from_chunk, int64_t to_chunk) {
    const Bytes input = InputOf(c, from);
    std::copy_n(input.begin() + from_chunk * c.chunk_bytes(), c.chunk_bytes(),
                out.begin() + to_chunk * c.chunk_bytes());
  };
  if (c.type == CommType::kAllgather || c.type == CommType::kAllToAll) {
    for (int64_t j = 0; j < c.n(); ++j) take(j, c.type == CommType::kAllToAll ? index : 0, j);
    return out;
  }
  if (c.type == CommType::kBroadcast) return take(c.root_index, 0, 0), out;
  if (c.type == CommType::kSendRecv) return take((index - c.shift + c.n()) % c.n(), 0, 0), out;
  std::vector<Bytes> inputs;
  for (int64_t j = 0; j < c.n(); ++j) inputs.push_back(InputOf(c, j));
  const int64_t begin = c.type == CommType::kReduceScatter ? index * c.count : 0;
  const bool by_sign = IsInt(c.dtype) && (c.reduce == ReduceOp::kMin || c.reduce == ReduceOp::kMax);
  for (int64_t i = 0; i < c.count; ++i) {
    by_sign ? ReduceInts(c, inputs, begin + i, out, i)
            : ReduceElement(c, inputs, begin + i, out, i);
  }
  return out;
}

// One rank's buffers for a case: src filled, dst poisoned, with a margin behind it that must stay
// as it is.
class CaseBuffers {
 public:
  CaseBuffers(const CommCase& c, int64_t index)
      : case_(c),
        index_(index),
        input_(InputOf(c, index)),
        dst_(static_cast<size_t>(DstBytes()) + kMargin, kPoison) {
    src_ = input_;
    if (!c.in_place) return;
    if (c.type == CommType::kReduceScatter) {  // dst is a chunk of src.
      src_.insert(src_.end(), kMargin, kPoison);
    } else {
      const int64_t offset = c.type == CommType::kAllgather ? index * c.chunk_bytes() : 0;
      std::copy(input_.begin(), input_.end(), dst_.begin() + offset);
    }
  }

  CommDesc Desc(TeamId team, int64_t seq) {
    const CommCase& c = case_;
    CommDesc desc = {.type = c.type,
                     .team = team,
                     .reduce = c.reduce,
                     .dtype = c.dtype,
                     .count = c.count,
                     .seq = seq};
    desc.src = {src_.data(), static_cast<int64_t>(input_.size())};
    desc.dst = {dst_.data(), DstBytes()};
    if (c.in_place) {
      const int64_t own = index_ * c.chunk_bytes();
      if (c.type == CommType::kAllgather)
        desc.src = {dst_.data() + own, c.chunk_bytes()};
      else if (c.type == CommType::kReduceScatter)
        desc.dst = {src_.data() + own, c.chunk_bytes()};
      else
        desc.src = desc.dst;
    }
    if (c.type == CommType::kBroadcast) {
      desc.root = c.RankAt(c.root_index);
      if (index_ != c.root_index) desc.src = {};
    }
    if (c.type == CommType::kSendRecv) {
      desc.to = c.RankAt(index_ + c.shift);
      desc.from = c.RankAt(index_ - c.shift);
    }
    return desc;
  }

  // Empty, or what is wrong.
  std::string Check() const {
    const bool in_src = case_.in_place && case_.type == CommType::kReduceScatter;
    const int64_t offset = in_src ? index_ * case_.chunk_bytes() : 0;
    const Bytes& held = in_src ? src_ : dst_;
    const Bytes expected = ExpectedAt(case_, index_);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (held[static_cast<size_t>(offset) + i] != expected[i]) {
        return base::Cat(case_.ToString(), ": place ", index_, ": byte ", i, " of ",
                         expected.size(), " is wrong");
      }
    }
    for (size_t i = held.size() - kMargin; i < held.size(); ++i) {
      if (held[i] != kPoison)
        return base::Cat(case_.ToString(), ": place ", index_, ": wrote beyond dst");
    }
    if (!case_.in_place && src_ != input_)
      return base::Cat(case_.ToString(), ": place ", index_, ": src has changed");
    return {};
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr std::byte kPoison{0xee};
  int64_t DstBytes() const { return case_.dst_chunks() * case_.chunk_bytes(); }

  const CommCase case_;
  const int64_t index_;
  const Bytes input_;
  Bytes src_;
  Bytes dst_;
};

}  // namespace hir::comm
