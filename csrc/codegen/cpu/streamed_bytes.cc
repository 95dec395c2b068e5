// Whether stores past the caches pay on this machine, by measurement: they spare reading lines that are about to be
// overwritten, a third of what a copy moves, and on some hosts of virtual machines they take five times as long.
#include <algorithm>
#include <limits>
#include <memory>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/cpu/ir_writer.h"
#include "csrc/device/host/host_kernel.h"

namespace hir::codegen::cpu {
namespace {

using base::Cat;

// Written by each measurement, four times: some milliseconds. Cached stores find them in the last-level cache, and are
// faster than what a large output meets. Stores past it took .9 to 1.1 of their time on a Xeon, 2.8 to 3.2 on a Zen 4,
// where they pay; the limit is far from both.
constexpr int64_t kMeasuredBytes = int64_t{8} << 20;
constexpr double kSlowdownMax = 8;

// A kernel `name` that writes bytes [begin, end) of its only tensor, a line at a time.
std::string WriterIr(std::string_view name, bool streamed, const Target& target) {
  std::string line = "i32 1";
  for (int i = 1; i < 16; ++i) line += ", i32 1";
  return Cat("define void @", name, "(ptr %args, i64 %begin, i64 %end) #0 {\nentry:\n",
             "  %bits = load i64, ptr %args\n  %base = inttoptr i64 %bits to ptr\n", "  br label %loop\nloop:\n",
             "  %at = phi i64 [ %begin, %entry ], [ %next, %loop ]\n",
             "  %address = getelementptr i8, ptr %base, i64 %at\n  store <16 x i32> <", line, ">, ptr %address, align ",
             kLineBytes, streamed ? ", !nontemporal !0" : "", "\n  %next = add i64 %at, ", kLineBytes,
             "\n  %more = icmp slt i64 %next, %end\n  br i1 %more, label %loop, label %done\n", "done:\n",
             streamed ? "  fence seq_cst\n" : "", "  ret void\n}\n", "attributes #0 = { nounwind \"target-cpu\"=\"",
             target.cpu, "\" \"target-features\"=\"", target.features, "\" \"prefer-vector-width\"=\"",
             target.vector_bytes * 8, "\" }\n!0 = !{i32 1}\n");
}

// Milliseconds, the least of three, once the memory is there.
double MsOf(device::HostFunction write, std::byte* memory) {
  const int64_t args[] = {reinterpret_cast<int64_t>(memory)};
  write(args, 0, kMeasuredBytes);
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < 3; ++i) {
    const base::Stopwatch watch;
    write(args, 0, kMeasuredBytes);
    least = std::min(least, watch.Ms());
  }
  return least;
}

Result<int64_t> Measure() {
  const Target target = HostTarget();
  Code code = {.target = target, .grains = {1, 1}, .objects = {}};
  for (const bool streamed : {false, true}) {
    HIR_ASSIGN(code.objects.emplace_back(), CompileObject(WriterIr(streamed ? "k1" : "k0", streamed, target), target));
  }
  HIR_ASSIGN(const auto kernels, Load({.bytes = Pack(code), .kernels = {"cached", "streamed"}}));
  const auto function = [&](std::string_view name) -> Result<device::HostFunction> {
    HIR_ASSIGN(const device::Kernel* const kernel, kernels->Get(name));
    return static_cast<const device::HostKernel*>(kernel)->function();
  };
  HIR_ASSIGN(const device::HostFunction cached, function("cached"));
  HIR_ASSIGN(const device::HostFunction streamed, function("streamed"));
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kMeasuredBytes + kLineBytes);
  void* start = memory.get();
  size_t room = kMeasuredBytes + kLineBytes;
  auto* const aligned = static_cast<std::byte*>(std::align(kLineBytes, kMeasuredBytes, start, room));
  return StreamedBytesFor(MsOf(cached, aligned), MsOf(streamed, aligned));
}

}  // namespace

int64_t StreamedBytesFor(double cached_ms, double streamed_ms) {
  const bool pays = streamed_ms <= kSlowdownMax * cached_ms;
  return pays ? kStreamedBytesMin : std::numeric_limits<int64_t>::max();
}

int64_t StreamedBytes() {
  static const int64_t bytes = [] {
    const Result<int64_t> measured = Measure();
    return measured.ok() ? *measured : std::numeric_limits<int64_t>::max();
  }();
  return bytes;
}

}  // namespace hir::codegen::cpu
