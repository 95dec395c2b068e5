// What the evaluator costs the host for each host op, on a device whose calls do nothing:
// `evaluator_overhead [PAIRS]` prints JSON measurements for bench.py. A run of a few hundred ops is
// timed as a whole, with and without its bind.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/measurement.h"
#include "csrc/base/text.h"
#include "host_ir/eval/evaluator.h"
#include "tests/host_ir/null_device.h"

namespace hir::host {
namespace {

constexpr int kLayers = 32;
constexpr int64_t kOpsPerLayer = 8;

// Layers of two launches, a library call, a view and a communication on stream 1 with its events.
std::string Program() {
  std::string text =
      "mesh @m = [0, 1]\n"
      "host @layers(%x: f32[i0, 64], %w: f32[64, 64], %y: f32[i0, 64]) {\n"
      "  %e: event[2] = event()\n"
      "  %a: f32[i0, 64] = alloc() {space=pool}\n"
      "  %b: f32[i0, 64] = alloc() {space=pool}\n";
  const auto launch = [](std::string_view in, std::string_view out) {
    return base::Cat("  launch(%", in, ", %w, %", out,
                     ") {kernel=\"k\", inputs=2, outputs=1, workspaces=0, extents=[i0, 64], "
                     "grid=ceildiv(64*i0, 4096), stream=0}\n");
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    base::Append(text, launch(layer == 0 ? "x" : "y", "a"), launch("a", "b"));
    base::Append(text, "  library(%b, %w, %a) {op=linear, inputs=2, stream=0}\n",
                 "  record(%e) {index=0, stream=0}\n  wait(%e) {index=0, stream=1}\n", "  %v", layer,
                 ": f32[i0*64] = view_reshape(%a)\n  %u", layer, ": f32[i0*64] = view_reshape(%y)\n",
                 "  communication(%v", layer, ", %u", layer,
                 ") {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=1, seq=", layer,
                 "}\n  record(%e) {index=1, stream=1}\n  wait(%e) {index=1, stream=0}\n");
  }
  return text + "  dealloc(%a)\n  dealloc(%b)\n  return %y\n}\n";
}

struct Bench {
  CallLog log = {.calls = {}, .keep = false};
  NullDevice device{log};
  NullCommunicator communicator{log, 2};
  NullKernels kernels;
  NullLibrary library;
  Pool pool{device};
  NullStream stream0{log}, stream1{log};
};

template <typename Body>
double MicrosecondsPerOp(const Body& body) {
  constexpr int kRepeats = 200;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) body();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return time.count() / kRepeats / kLayers / kOpsPerLayer;
}

Status Measure(int pairs) {
  HIR_ASSIGN(const auto program, HostProgram::Load(Program()));
  Bench bench;
  device::Stream* streams[] = {&bench.stream0, &bench.stream1};
  HIR_ASSIGN(const auto evaluator, Evaluator::Prepare(*program, {.device = &bench.device,
                                                                 .streams = streams,
                                                                 .kernels = &bench.kernels,
                                                                 .libraries = &bench.library,
                                                                 .communicator = &bench.communicator,
                                                                 .pool = &bench.pool}));
  std::vector<std::byte> x(1024 * 256), w(64 * 256), y(1024 * 256);
  const auto memory = [](std::vector<std::byte>& bytes) {
    return Argument{.buffer = {bytes.data(), std::ssize(bytes)}};
  };
  const std::vector<Argument> arguments = {memory(x), memory(w), memory(y)};
  const std::vector<int64_t> symbols = {1024};
  Binding binding;
  Status status;
  std::vector<double> ours, bound;
  for (int i = 0; i < pairs; ++i) {
    bound.push_back(MicrosecondsPerOp([&] {
      status = evaluator->Bind(arguments, symbols, &binding);
      if (status.ok()) status = evaluator->Run(binding, {});
    }));
    HIR_TRY(status);
    ours.push_back(MicrosecondsPerOp([&] { status = evaluator->Run(binding, {}); }));
    HIR_TRY(status);
  }
  const std::vector<double> limit(ours.size(), 3.0);
  bench::PrintJson({{.name = "evaluator, a host op of a bound program",
                     .unit = "us",
                     .ours = ours,
                     .theirs = limit,
                     .peer = "the goal of 3 us"},
                    {.name = "evaluator, a host op, bind included",
                     .unit = "us",
                     .ours = bound,
                     .theirs = limit,
                     .peer = "the goal of 3 us"}});
  return {};
}

}  // namespace
}  // namespace hir::host

int main(int argc, char** argv) {
  const hir::Status status = hir::host::Measure(argc > 1 ? std::max(1, std::atoi(argv[1])) : 15);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
