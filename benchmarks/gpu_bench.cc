#include "benchmarks/gpu_bench.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/prng.h"

namespace hir::codegen::gpu {
namespace {

constexpr int kWarmup = 5;
constexpr int kAhead = 16;  // Samples queued before the host waits.
constexpr int64_t kFlushBytes = int64_t{256} << 20;
constexpr uint64_t kIndexMax = 1000;                 // Of drawn integers.
constexpr int64_t kPeriod = (int64_t{1} << 20) + 7;  // Of what is drawn: no power of two, so rows differ.

uint16_t Narrow(DType dtype, float x) { return dtype == DType::kBFloat16 ? FloatToBFloat16(x) : FloatToFloat16(x); }

// Numbers in [-2, 2); integers below kIndexMax.
std::vector<std::byte> Draw(base::Prng& prng, DType dtype, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * DTypeBytes(dtype)));
  const int64_t drawn = std::min(count, kPeriod);
  for (int64_t i = 0; i < drawn; ++i) {
    const double unit = prng.Unit() * 4 - 2;
    std::byte* at = bytes.data() + i * DTypeBytes(dtype);
    const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    if (dtype == DType::kFloat32) put(static_cast<float>(unit));
    if (dtype == DType::kFloat64) put(unit);
    if (dtype == DType::kBFloat16 || dtype == DType::kFloat16) put(Narrow(dtype, static_cast<float>(unit)));
    if (dtype == DType::kInt64) put(static_cast<int64_t>(prng.Below(kIndexMax)));
    if (dtype == DType::kInt32) put(static_cast<int32_t>(prng.Below(kIndexMax)));
    if (dtype == DType::kBool) put(static_cast<uint8_t>(prng.Below(2)));
  }
  const auto period = static_cast<size_t>(drawn * DTypeBytes(dtype));
  for (size_t at = period; at < bytes.size(); at += period)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(period, bytes.size() - at));
  return bytes;
}

double Number(DType dtype, const std::byte* at) {
  const auto get = [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kFloat32: return get(float{});
    case DType::kFloat64: return get(double{});
    case DType::kBFloat16: return BFloat16ToFloat(get(uint16_t{}));
    case DType::kFloat16: return Float16ToFloat(get(uint16_t{}));
    case DType::kInt64: return static_cast<double>(get(int64_t{}));
    case DType::kUInt8: return get(uint8_t{});
    case DType::kInt8: return get(int8_t{});
    case DType::kInt32: return get(int32_t{});
    case DType::kBool: return get(uint8_t{});
  }
  return 0;
}

}  // namespace

Result<device::Buffer> GpuBench::BufferOf(const ir::Value* value) {
  if (const auto known = buffers_.find(value); known != buffers_.end()) return known->second;
  const fusion::SymbolValues symbols;
  int64_t bytes = DTypeBytes(value->type->dtype);
  for (const ir::Axis& axis : ir::ValueAxes(*value->type)) {
    if (axis.kind == ir::AxisKind::kBroadcast) continue;
    HIR_ASSIGN(const int64_t extent, fusion::ValueOf(axis.extent, symbols));
    bytes *= extent;
  }
  bytes_ += bytes;
  HIR_ASSIGN(buffers_[value], runner_.Allocate(bytes, shifted_ ? DTypeBytes(value->type->dtype) : 0, 0xff));
  return buffers_[value];
}

Status GpuBench::Start() {
  HIR_TRY(runner_.Start());
  base::Prng prng(1);
  for (const KernelPlan& kernel : plan_.kernels) {
    for (const codegen::Launch& launch : kernel.launches) {
      for (const ir::Value* input : launch.inputs) {
        const bool known = buffers_.contains(input);
        HIR_ASSIGN(const device::Buffer buffer, BufferOf(input));
        if (known) continue;
        const DType dtype = input->type->dtype;
        HIR_TRY(runner_.Upload(buffer, Draw(prng, dtype, buffer.bytes / DTypeBytes(dtype))));
      }
      for (const ir::Value* output : launch.outputs) {
        HIR_TRY(BufferOf(output).status());
        if (std::ranges::find(outputs_, output) == outputs_.end()) outputs_.push_back(output);
      }
    }
  }
  HIR_ASSIGN(flush_, device_.Allocate(kFlushBytes));
  return {};
}

Status GpuBench::Load(std::span<const Artifact> artifacts) {
  HIR_TRY(runner_.stream().Synchronize(std::chrono::seconds(60)));
  ready_.clear();
  for (size_t k = 0; k < artifacts.size(); ++k) {
    HIR_ASSIGN(DeviceRunner::Ready loaded, runner_.Prepare(plan_.kernels[k], artifacts[k], buffers_, {}, {}));
    ready_.push_back(std::move(loaded));
  }
  return {};
}

Status GpuBench::Run() {
  for (const ir::Value* output : outputs_) runner_.stream().Fill(buffers_.at(output), 0xff, 1);
  for (const DeviceRunner::Ready& each : ready_) runner_.Launch(each);
  return runner_.stream().Synchronize(std::chrono::seconds(60));
}

Result<Times> GpuBench::Time(int samples, bool first_only) {
  std::vector<std::unique_ptr<device::Event>> events;
  for (int i = 0; i < 2 * kAhead; ++i) {
    HIR_ASSIGN(events.emplace_back(), device::CreateTimedEvent(device_));
  }
  std::vector<double> times;
  for (int i = 0; i < samples + kWarmup; i += kAhead) {
    const int count = std::min(kAhead, samples + kWarmup - i);
    for (int k = 0; k < count; ++k) {
      runner_.stream().Fill(flush_->buffer(), 0, 1);
      runner_.stream().Record(*events[static_cast<size_t>(2 * k)]);
      for (const DeviceRunner::Ready& each : ready_) runner_.Launch(each, first_only ? 1 : each.launches.size());
      runner_.stream().Record(*events[static_cast<size_t>(2 * k + 1)]);
    }
    HIR_TRY(runner_.stream().Synchronize(std::chrono::seconds(60)));
    for (int k = 0; k < count; ++k) {
      HIR_ASSIGN(const double ms,
                 device::ElapsedMs(*events[static_cast<size_t>(2 * k)], *events[static_cast<size_t>(2 * k + 1)]));
      if (i + k >= kWarmup) times.push_back(ms);
    }
  }
  std::ranges::sort(times);
  const size_t count = times.size();
  return Times{times[count / 2], times[count / 4], times[count * 3 / 4]};
}

bool GpuBench::HasSecondLaunches() const {
  return std::ranges::any_of(ready_, [](const auto& each) { return each.launches.size() > 1; });
}

Result<GpuBench::Outputs> GpuBench::Read(int64_t most) {
  Outputs outputs;
  for (const ir::Value* output : outputs_) {
    const device::Buffer buffer = buffers_.at(output);
    const int64_t part = std::min(buffer.bytes, most) / 8 * 8;
    const int64_t last = buffer.bytes - part;
    std::vector<int64_t> starts = {0};
    if (last > 0) starts = {0, last / 2 / 8 * 8, last};
    for (const int64_t start : starts) {
      const int64_t length = last > 0 ? part : buffer.bytes;
      HIR_ASSIGN(const std::vector<std::byte> bytes, runner_.Download(buffer.Slice(start, length)));
      std::vector<std::byte>& all = outputs[output];
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return outputs;
}

double LargestError(const GpuBench::Outputs& got, const GpuBench::Outputs& want) {
  double largest = 0;
  for (const auto& [value, bytes] : got) {
    const std::vector<std::byte>& other = want.at(value);
    double difference = 0, norm = 0;
    const auto step = static_cast<size_t>(DTypeBytes(value->type->dtype));
    for (size_t i = 0; i + step <= bytes.size(); i += step * 7) {
      const double a = Number(value->type->dtype, bytes.data() + i), b = Number(value->type->dtype, other.data() + i);
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    largest = error > largest || std::isnan(error) ? error : largest;
  }
  return largest;
}

}  // namespace hir::codegen::gpu
