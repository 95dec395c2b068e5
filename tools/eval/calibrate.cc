#include "tools/eval/calibrate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csrc/base/text.h"

namespace hir::eval {
namespace {

using base::Cat;

constexpr int64_t kChained = 16;
constexpr double kLeastSeconds = 1e-7;  // A difference of times may come to less than nothing.

// All ranks, from rank `turned` on, and round to the one before it.
std::string Mesh(std::string_view name, int64_t ranks, int64_t turned) {
  std::vector<int64_t> devices;
  for (int64_t i = 0; i < ranks; ++i) devices.push_back((i + turned) % ranks);
  return Cat("mesh @", name, " = [", base::JoinInts(devices, ", "), "]\n");
}

// Products too small to take time, one behind the other, in a program that the host queues as it is.
Probe Products(int64_t count, int64_t ranks) {
  std::string text = Cat(Mesh("m", ranks, 0), "host @chain(%a: f32[16, 16], %b: f32[16, 16], %c: f32[16, 16]",
                         count == 1 ? "" : ", %d: f32[16, 16]", ") {\n");
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view operands = i == 0 ? "b, %c" : i % 2 == 0 ? "d, %c" : "c, %d";
    base::Append(text, "  library(%a, %", operands, ") {op=matmul, inputs=2, stream=0}\n");
  }
  return {.kind = count == 1 ? Probe::Kind::kOneOp : Probe::Kind::kChain,
          .name = Cat(count, count == 1 ? " op" : " ops"),
          .text = Cat(text, "  return %c", count == 1 ? "" : ", %d", "\n}\n")};
}

Probe OfMemory(int64_t elements, int64_t ranks) {
  return {.kind = Probe::Kind::kMemory,
          .name = Cat("memory ", 8 * elements, " bytes"),
          .text = Cat(Mesh("m", ranks, 0), "fusion @memory(%x: f32[", elements,
                      "] {mesh=@m}) {\n  %y = relu(%x)\n  return %y\n}\n"),
          .amount = 8.0 * static_cast<double>(elements)};
}

Probe Product(std::string_view dtype, int64_t size, int64_t ranks) {
  const bool tf32 = dtype == "tf32";
  const std::string type = Cat(tf32 ? "f32" : dtype, "[", size, ", ", size, "] {mesh=@m}");
  return {.kind = Probe::Kind::kProduct,
          .name = Cat("product ", dtype, " ", size),
          .text = Cat(Mesh("m", ranks, 0), "fusion @product(%x: ", type, ", %w: ", type, ") {\n  %y = matmul(%x, %w)",
                      tf32 ? " {precision=tf32}" : "", "\n  return %y\n}\n"),
          .curve = std::string(dtype),
          .amount = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size)};
}

// `elements`: of the larger side. Behind a small product, as it has work behind which it begins in programs.
Probe Communication(std::string_view curve, int64_t elements, int64_t ranks) {
  const std::string all = Cat("f32[", ranks, ", ", elements / ranks, "]"), part = Cat("f32[", elements / ranks, "]");
  const bool copies = curve == "copies", permutes = copies || curve == "collective_permute";
  const bool reduces = curve == "allreduce" || curve == "reduce_scatter";
  const std::string& from = curve == "allgather" ? part : all;
  const std::string& to = curve == "reduce_scatter" ? part : all;
  return {.kind = Probe::Kind::kCommunication,
          .name = Cat(curve, " ", 4 * elements, " bytes"),
          .text = Cat(Mesh("m", ranks, 0), Mesh("turned", ranks, 1),
                      "host @communication(%a: f32[16, 16], %b: f32[16, 16], %c: f32[16, 16], %x: ", from, ", %y: ", to,
                      ") {\n  library(%a, %b, %c) {op=matmul, inputs=2, stream=0}\n  communication(%x, %y) {type=",
                      permutes ? "collective_permute" : curve, ", reduce=", reduces ? "sum" : "none",
                      ", mesh=@m, dim=", permutes ? "none" : "mesh_x", ", to=@", permutes ? "turned" : "m",
                      ", stream=0, seq=0", copies ? ", by=copies" : "", "}\n  return %c, %y\n}\n"),
          .curve = std::string(curve),
          .amount = 4.0 * static_cast<double>(elements)};
}

}  // namespace

std::vector<Probe> ProbesFor(const codegen::Target& target, int64_t ranks) {
  const bool gpu = target.kind == codegen::Target::Kind::kGpu;
  std::vector<Probe> probes = {Products(1, ranks), Products(kChained, ranks)};
  const std::vector<int64_t> elements = {1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 27};
  for (const int64_t n : elements) {
    if (gpu || n <= 1 << 21) probes.push_back(OfMemory(n, ranks));
  }
  for (const std::string_view dtype : {"f32", "bf16", "tf32"}) {
    if (!gpu && dtype == "tf32") continue;
    for (const int64_t size : {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      const bool slow = dtype == "f32" && size > 4096;  // Tenths of a second.
      if (gpu ? !slow : size <= 512) probes.push_back(Product(dtype, size, ranks));
    }
  }
  if (ranks == 1) return probes;
  const std::vector<std::string_view> types = {"allgather",  "allreduce",          "reduce_scatter",
                                               "all_to_all", "collective_permute", "copies"};
  for (const std::string_view type : types) {
    for (const int64_t n : {1 << 8, 1 << 12, 1 << 15, 1 << 17, 1 << 18, 1 << 20, 1 << 22, 1 << 24}) {
      if (gpu || n <= 1 << 20) probes.push_back(Communication(type, std::max(n / ranks, int64_t{1}) * ranks, ranks));
    }
  }
  return probes;
}

host::Rates RatesOf(std::span<const Probe> probes, std::span<const double> seconds, std::string device, int64_t ranks,
                    const codegen::Target& target) {
  host::Rates rates = {.device = std::move(device), .ranks = ranks, .multiprocessors = target.multiprocessors};
  double one = 0, chain = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (probes[i].kind == Probe::Kind::kOneOp) one = seconds[i];
    if (probes[i].kind == Probe::Kind::kChain) chain = seconds[i];
  }
  const double product = std::max(0.0, chain - one) / (kChained - 1);
  rates.run_seconds = std::max(0.0, one - product);
  for (size_t i = 0; i < probes.size(); ++i) {
    const Probe& probe = probes[i];
    // Of the one op, without what any run takes, and without the product before a communication.
    const double others = rates.run_seconds + (probe.kind == Probe::Kind::kCommunication ? product : 0);
    const double alone = std::max(seconds[i] - others, kLeastSeconds);
    if (probe.kind == Probe::Kind::kMemory) rates.memory.Add(probe.amount, alone);
    if (probe.kind == Probe::Kind::kCommunication) rates.communications[probe.curve].Add(probe.amount, alone);
    if (probe.kind != Probe::Kind::kProduct) continue;
    const double size = std::round(std::cbrt(probe.amount / 2));
    rates.products[probe.curve].Add(probe.amount, alone * host::WaveShare(rates.multiprocessors, 1, size, size));
  }
  return rates;
}

}  // namespace hir::eval
