// Device time of compiled kernels on a GPU, without the evaluator: `gpu_kernels PROGRAM.hir...` prints a line for each:
// the median of 50 samples, each after 256 MiB are written, events around the program's launches; bytes over that time;
// and how far the values are from those of the same kernels at unaligned addresses, which take the path for any size.
// `gpu_kernels --text PROGRAM.hir` prints the CUDA C++ instead.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/csrc/codegen/gpu/gpu/device_runner.h"

namespace hir::codegen::gpu {
namespace {

constexpr int kSamples = 50;
constexpr int64_t kFlushBytes = int64_t{256} << 20;

uint16_t Narrow(DType dtype, float x) {
  return dtype == DType::kBFloat16 ? FloatToBFloat16(x) : FloatToFloat16(x);
}

constexpr int64_t kPeriod =
    (int64_t{1} << 20) + 7;  // Of what is drawn: no power of two, so rows differ.

// Numbers in [-2, 2); integers below `limit`.
std::vector<std::byte> Draw(base::Prng& prng, DType dtype, int64_t count, uint64_t limit) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * DTypeBytes(dtype)));
  const int64_t drawn = std::min(count, kPeriod);
  for (int64_t i = 0; i < drawn; ++i) {
    const double unit = prng.Unit() * 4 - 2;
    std::byte* at = bytes.data() + i * DTypeBytes(dtype);
    const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    if (dtype == DType::kFloat32) put(static_cast<float>(unit));
    if (dtype == DType::kFloat64) put(unit);
    if (dtype == DType::kBFloat16 || dtype == DType::kFloat16)
      put(Narrow(dtype, static_cast<float>(unit)));
    if (dtype == DType::kInt64) put(static_cast<int64_t>(prng.Below(limit)));
    if (dtype == DType::kInt32) put(static_cast<int32_t>(prng.Below(limit)));
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
    case DType::kInt32: return get(int32_t{});
    case DType::kBool: return get(uint8_t{});
  }
  return 0;
}

struct Row {
  double ms = 0, low = 0, high = 0;
  int64_t bytes = 0;
  double error = 0;
  std::string kernels;
};

Result<Row> Measure(device::Device& device, const Target& target, const std::string& text) {
  Row row;
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  HIR_ASSIGN(
      const host::ProgramPlan plan,
      host::PlanProgram(std::move(graph), {.num_devices = 1, .target = target, .sizes = {}}));
  Compiler compiler({});
  std::vector<Artifact> artifacts;
  for (const KernelPlan& kernel : plan.kernels) {
    const auto before = std::chrono::steady_clock::now();
    HIR_ASSIGN(Artifact artifact, compiler.Compile(kernel));
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - before;
    HIR_ASSIGN(const Code code, Unpack(artifact.bytes));
    for (size_t i = 0; i < code.kernels.size(); ++i) {
      base::Append(row.kernels, row.kernels.empty() ? "" : "; ", kernel.schedule, " T",
                   code.kernels[i].threads, " ", code.registers[i], " registers");
    }
    base::Append(row.kernels, ", ", static_cast<int>(ms.count()), " ms to compile");
    artifacts.push_back(std::move(artifact));
  }
  base::Prng prng(1);
  const fusion::SymbolValues symbols;
  std::map<const ir::Value*, std::vector<std::byte>> inputs;
  std::map<const ir::Value*, std::vector<std::byte>> outputs[2];
  for (const bool shifted : {false, true}) {
    DeviceRunner runner(device);
    HIR_TRY(runner.Start());
    std::map<const ir::Value*, device::Buffer> buffers;
    std::set<const ir::Value*> made;
    std::vector<DeviceRunner::Ready> ready;
    row.bytes = 0;
    for (size_t k = 0; k < plan.kernels.size(); ++k) {
      for (const codegen::Launch& launch : plan.kernels[k].launches) {
        const auto buffer_of = [&](const ir::Value* value) -> Result<device::Buffer> {
          if (const auto known = buffers.find(value); known != buffers.end()) return known->second;
          HIR_ASSIGN(const int64_t bytes, [&]() -> Result<int64_t> {
            int64_t count = DTypeBytes(value->type->dtype);
            for (const ir::Axis& axis : ir::ValueAxes(*value->type)) {
              if (axis.kind == ir::AxisKind::kBroadcast) continue;
              HIR_ASSIGN(const int64_t extent, fusion::ValueOf(axis.extent, symbols));
              count *= extent;
            }
            return count;
          }());
          row.bytes += bytes;
          HIR_ASSIGN(buffers[value],
                     runner.Allocate(bytes, shifted ? DTypeBytes(value->type->dtype) : 0, 0xff));
          return buffers[value];
        };
        for (const ir::Value* input : launch.inputs) {
          const bool known = buffers.contains(input);
          HIR_ASSIGN(const device::Buffer buffer, buffer_of(input));
          if (known) continue;
          const DType dtype = input->type->dtype;
          if (!inputs.contains(input))
            inputs[input] = Draw(prng, dtype, buffer.bytes / DTypeBytes(dtype), 1000);
          HIR_TRY(runner.Upload(buffer, inputs[input]));
        }
        for (const ir::Value* output : launch.outputs) {
          HIR_ASSIGN(const device::Buffer buffer, buffer_of(output));
          (void)buffer;
          made.insert(output);
        }
      }
      HIR_ASSIGN(DeviceRunner::Ready loaded,
                 runner.Prepare(plan.kernels[k], artifacts[k], buffers, symbols, {}));
      ready.push_back(std::move(loaded));
    }
    for (const DeviceRunner::Ready& each : ready) runner.Launch(each);
    for (const ir::Value* output : made) {
      HIR_ASSIGN(outputs[shifted ? 1 : 0][output], runner.Download(buffers.at(output)));
    }
    if (!shifted) {
      HIR_ASSIGN(const auto flush, device.Allocate(kFlushBytes));
      HIR_ASSIGN(const auto from, device::CreateTimedEvent(device));
      HIR_ASSIGN(const auto to, device::CreateTimedEvent(device));
      const auto sample = [&](bool first_only) -> Result<std::vector<double>> {
        std::vector<double> times;
        for (int i = 0; i < kSamples + 5; ++i) {
          runner.stream().Fill(flush->buffer(), 0, 4);
          runner.stream().Record(*from);
          for (const DeviceRunner::Ready& each : ready)
            runner.Launch(each, first_only ? 1 : each.launches.size());
          runner.stream().Record(*to);
          HIR_TRY(runner.stream().Synchronize(std::chrono::seconds(60)));
          HIR_ASSIGN(const double ms, device::ElapsedMs(*from, *to));
          if (i >= 5) times.push_back(ms);
        }
        std::ranges::sort(times);
        return times;
      };
      HIR_ASSIGN(const std::vector<double> times, sample(false));
      row.ms = times[times.size() / 2];
      row.low = times[times.size() / 4];
      row.high = times[times.size() * 3 / 4];
      if (std::ranges::any_of(ready, [](const auto& each) { return each.launches.size() > 1; })) {
        HIR_ASSIGN(const std::vector<double> first, sample(true));
        base::Append(row.kernels, ", first launch alone ",
                     static_cast<int64_t>(first[first.size() / 2] * 1e6), " ns");
      }
    }
    HIR_TRY(runner.stream().Synchronize(std::chrono::seconds(60)));
  }
  for (const auto& [value, bytes] : outputs[0]) {
    const std::vector<std::byte>& other = outputs[1].at(value);
    double difference = 0, norm = 0;
    const auto step = static_cast<size_t>(DTypeBytes(value->type->dtype));
    for (size_t i = 0; i < bytes.size(); i += step * 7) {
      const double a = Number(value->type->dtype, bytes.data() + i),
                   b = Number(value->type->dtype, other.data() + i);
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    const double error = std::sqrt(difference / norm);
    row.error = error > row.error || std::isnan(error) ? error : row.error;
  }
  return row;
}

}  // namespace

Result<std::string> TextOf(const std::string& text) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  HIR_ASSIGN(
      const host::ProgramPlan plan,
      host::PlanProgram(std::move(graph), {.num_devices = 1, .target = kHopper, .sizes = {}}));
  std::string out;
  for (const KernelPlan& kernel : plan.kernels) {
    HIR_ASSIGN(const std::string own, EmitKernels(kernel));
    out += own;
  }
  return out;
}

int Main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--text") {
    std::ifstream file(argv[2]);
    std::stringstream text;
    text << file.rdbuf();
    const auto out = TextOf(text.str());
    std::puts(out.ok() ? out->c_str() : out.status().ToString().c_str());
    return out.ok() ? 0 : 1;
  }
  auto device = device::OpenCudaDevice({});
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return 1;
  }
  const auto facts = device::FactsOf(**device);
  if (!facts.ok()) return 1;
  const Target target = {.kind = Target::Kind::kGpu,
                         .architecture = facts->architecture,
                         .multiprocessors = facts->multiprocessors,
                         .shared_bytes = facts->shared_bytes_per_block};
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    std::stringstream text;
    text << file.rdbuf();
    const auto row = Measure(**device, target, text.str());
    const std::string name = std::filesystem::path(argv[i]).stem().string();
    if (!row.ok()) {
      std::printf("%-30s %s\n", name.c_str(), row.status().ToString().c_str());
      continue;
    }
    std::printf("%-30s %8.4f ms (%.4f to %.4f), %6.0f GB/s, difference %.1e, %s\n", name.c_str(),
                row->ms, row->low, row->high, static_cast<double>(row->bytes) / row->ms / 1e6,
                row->error, row->kernels.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace hir::codegen::gpu

int main(int argc, char** argv) { return hir::codegen::gpu::Main(argc, argv); }
