// Random problems of fused attention on a device, beside sums in double.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/codegen/library/queued/device_call.h"
#include "csrc/device/device.h"
#include "tests/csrc/codegen/library/attention_cases.h"

namespace hir::codegen::library::testing {

using MakeCall = std::function<Result<std::unique_ptr<DeviceCall>>(const AttentionDesc&)>;

struct Where {
  device::Device& device;
  device::Stream& stream;
  Status (*from_host)(device::Device&, device::Buffer, std::span<const std::byte>);
  Status (*to_host)(device::Device&, std::span<std::byte>, device::Buffer);
};

// Outputs after two runs of a call, whose tensors begin `offset` bytes behind an aligned address.
inline Status RunOn(Where where, DeviceCall& call, const std::vector<Data>& inputs, std::vector<Data>& outputs,
                    int64_t offset) {
  std::vector<std::unique_ptr<device::Allocation>> memory;
  const auto place = [&](const Data& data) -> Result<device::Buffer> {
    const auto bytes = static_cast<int64_t>(data.bytes.size());
    HIR_ASSIGN(auto allocated, where.device.Allocate(bytes + offset));
    const device::Buffer buffer = allocated->buffer().Slice(offset, bytes);
    memory.push_back(std::move(allocated));
    HIR_TRY(where.from_host(where.device, buffer, data.bytes));
    return buffer;
  };
  std::vector<device::Buffer> from, to;
  for (const Data& input : inputs) {
    HIR_ASSIGN(from.emplace_back(), place(input));
  }
  for (const Data& output : outputs) {
    HIR_ASSIGN(to.emplace_back(), place(output));
  }
  for (int k = 0; k < 2; ++k) call.Queue(from, to, where.stream);
  HIR_TRY(where.stream.Synchronize(base::Nanos(std::chrono::seconds(60))));
  for (size_t i = 0; i < outputs.size(); ++i) HIR_TRY(where.to_host(where.device, outputs[i].bytes, to[i]));
  return {};
}

// `rounds`: Compare's. With heads that share keys, parts of tensors, results left out, and addresses askew.
inline void CheckFlash(Where where, const MakeCall& make, uint64_t seeds, double rounds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    base::Prng prng(seed);
    const auto some = [&](std::vector<int64_t> sizes) {
      return sizes[static_cast<size_t>(prng.Below(static_cast<int64_t>(sizes.size())))];
    };
    Case c;
    c.dtype = prng.OneIn(2) ? DType::kBFloat16 : DType::kFloat16;
    for (int64_t axes = prng.Below(4); axes > 0; --axes) c.leading.push_back(some({1, 2, 3}));
    c.m = some({1, 2, 7, 64, 65});
    c.n = some({1, 3, 8, 63, 64, 130});
    c.d = some({8, 16, 24, 64});
    c.e = prng.OneIn(2) ? c.d : some({8, 16, 64});
    c.scale = 0.3;
    c.causal = prng.OneIn(2);
    if (c.causal) c.diagonal = prng.OneIn(2) ? c.n - c.m : some({0, 0, 5, -1, -6});
    SCOPED_TRACE(base::Cat("seed ", seed, ": ", c.ToString()));
    const bool any_strides = !prng.OneIn(3);
    std::vector<Data> inputs = MakeInputs(c, prng, any_strides);
    // Keys that several heads share, as a frontend has them.
    if (!any_strides && c.leading.size() > 1 && prng.OneIn(2)) {
      for (const size_t i : {size_t{1}, size_t{2}}) {
        Shape shape = c.Full(i == 1 ? Shape{c.n, c.d} : Shape{c.n, c.e});
        shape[c.leading.size() - 1] = 1;
        inputs[i] = MakeData(c.dtype, shape);
        Fill(inputs[i], [&] { return 2 * prng.Unit() - 1; });
      }
    }
    const Reference reference(c, inputs);
    for (const bool backward : {false, true}) {
      std::vector<What> whats =
          backward ? std::vector{What::kK, What::kQ, What::kV} : std::vector{What::kLse, What::kValues};
      if (prng.OneIn(3)) whats.erase(whats.begin() + prng.Below(static_cast<int64_t>(whats.size())));
      std::vector<Data> outputs;
      for (const What what : whats) {
        outputs.push_back(MakeData(what == What::kLse ? c.compute() : c.dtype, c.ShapeOf(what),
                                   any_strides && prng.OneIn(2) ? &prng : nullptr));
      }
      std::vector<Data> given(inputs.begin(), inputs.begin() + (backward ? 6 : 3));
      auto call = make(DescOf(c, inputs, whats, backward, outputs));
      ASSERT_TRUE(call.ok()) << call.status().ToString();
      const Status ran = RunOn(where, **call, given, outputs, prng.OneIn(4) ? 2 * DTypeBytes(c.dtype) : 0);
      ASSERT_TRUE(ran.ok()) << ran.ToString();
      for (size_t i = 0; i < whats.size(); ++i) {
        SCOPED_TRACE(backward ? "backward" : "forward");
        Sums lse(CountOf(c.ShapeOf(What::kLse)));
        const Sums want = backward ? reference.Gradient(whats[i]) : reference.Values(lse);
        Compare(c, whats[i], outputs[i], whats[i] == What::kLse ? lse : want, rounds);
      }
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace hir::codegen::library::testing
