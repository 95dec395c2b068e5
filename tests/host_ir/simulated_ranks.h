// Runs a host program on simulated ranks (multidevice/comm/local): each rank a host device whose
// work happens in an order drawn from a seed. For tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/device/host/host_device.h"
#include "host_ir/eval/evaluator.h"
#include "multidevice/comm/local/world.h"

namespace hir::host {

// Kernels of int64: "mix_I_O" of I inputs and O outputs, extents [count, salt]: out[o][i] = salt + o
// + sum of (j + 2) * in[j][i]. "copy", "add" and "sub" of one or two inputs, extents [count].
class MixKernels final : public device::KernelSource {
 public:
  MixKernels() {
    Add("copy", [](const int64_t* args, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) At(args[1])[i] = At(args[0])[i];
    });
    Add("add", [](const int64_t* args, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) At(args[2])[i] = At(args[0])[i] + At(args[1])[i];
    });
    Add("sub", [](const int64_t* args, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) At(args[2])[i] = At(args[0])[i] - At(args[1])[i];
    });
    Add<1, 1>();
    Add<2, 1>();
    Add<3, 1>();
    Add<1, 2>();
    Add<2, 2>();
  }
  Result<const device::Kernel*> Get(std::string_view name) override {
    for (const auto& kernel : kernels_) {
      if (kernel->name() == name) return kernel.get();
    }
    return Status(Code::kNotFound, base::Cat("no kernel ", name));
  }

 private:
  static uint64_t* At(int64_t address) { return reinterpret_cast<uint64_t*>(address); }
  template <int kInputs, int kOutputs>
  static void Mix(const int64_t* args, int64_t begin, int64_t end) {
    const int64_t salt = args[kInputs + kOutputs + 1];
    for (int64_t i = begin; i < end; ++i) {
      uint64_t sum = static_cast<uint64_t>(salt);
      for (int j = 0; j < kInputs; ++j) {
        sum += static_cast<uint64_t>(j + 2) * At(args[j])[i];
      }
      for (int o = 0; o < kOutputs; ++o) {
        At(args[kInputs + o])[i] = sum + static_cast<uint64_t>(o);
      }
    }
  }
  template <int kInputs, int kOutputs>
  void Add() {
    Add(base::Cat("mix_", kInputs, "_", kOutputs), &Mix<kInputs, kOutputs>);
  }
  void Add(std::string name, device::HostFunction function) {
    kernels_.push_back(std::make_unique<device::HostKernel>(
        device::HostKernel::Options{.name = std::move(name), .function = function}));
  }
  std::vector<std::unique_ptr<device::HostKernel>> kernels_;
};

using Values = std::vector<int64_t>;

struct SimulatedRun {
  const HostProgram* program = nullptr;
  int64_t num_ranks = 1;
  uint64_t seed = 0;
  comm::WorldOptions world = {};  // Its size and seed are set from the above.
  std::vector<int64_t> symbols = {};
  int num_streams = 4;
  int num_runs = 1;  // Queued one after the other before the first is waited for.
  bool profile = false;
  bool timeline = false;
  LibrarySource* libraries = nullptr;
  std::function<void(Evaluator&, int64_t rank)> after_run = {};  // Between queueing and waiting.
  // The parameters of a rank before the run: int64 tensors.
  std::function<std::vector<Values>(int64_t rank)> params = {};
};

struct RankResult {
  Status status;
  std::vector<Values> params;  // After the run.
  std::vector<OpTime> times;   // Of all runs, when they are profiles.
  std::vector<OpSpan> spans;   // The same for timelines.
};

inline std::vector<RankResult> RunSimulated(const SimulatedRun& run) {
  comm::WorldOptions options = run.world;
  options.size = run.num_ranks;
  options.seed = run.seed;
  const std::unique_ptr<comm::World> world = comm::World::Create(options);
  std::vector<RankResult> results(static_cast<size_t>(run.num_ranks));
  MixKernels kernels;
  world->Run([&](int64_t rank) {
    RankResult& result = results[static_cast<size_t>(rank)];
    result.params = run.params(rank);
    const auto device = *device::CreateHostDevice({.name = base::Cat("host:", rank)}, world->executor(rank));
    const std::unique_ptr<comm::Communicator> communicator = world->Join(rank);
    std::vector<std::unique_ptr<device::Stream>> streams;
    std::vector<device::Stream*> pointers;
    for (int i = 0; i < run.num_streams; ++i) {
      streams.push_back(*device->CreateStream());
      pointers.push_back(streams.back().get());
    }
    Pool pool(*device);
    std::vector<Argument> arguments;
    for (Values& values : result.params) {
      auto* data = reinterpret_cast<std::byte*>(values.data());
      arguments.push_back({.buffer = {data, static_cast<int64_t>(values.size() * sizeof(int64_t))}});
    }
    const auto body = [&]() -> Status {
      HIR_ASSIGN(const auto evaluator, Evaluator::Prepare(*run.program, {.rank = rank,
                                                                         .device = device.get(),
                                                                         .streams = pointers,
                                                                         .kernels = &kernels,
                                                                         .libraries = run.libraries,
                                                                         .communicator = communicator.get(),
                                                                         .pool = &pool}));
      Binding binding;
      HIR_TRY(evaluator->Bind(arguments, run.symbols, &binding));
      Status status;
      for (int i = 0; i < run.num_runs && status.ok(); ++i)
        status = evaluator->Run(binding, {.seq_base = i * 1000,
                                          .times = run.profile ? &result.times : nullptr,
                                          .spans = run.timeline ? &result.spans : nullptr,
                                          .wait_timeout = std::chrono::hours(1)});
      if (run.after_run) run.after_run(*evaluator, rank);
      const Status end = evaluator->Synchronize(std::chrono::hours(1));
      return status.ok() ? end : status;
    };
    result.status = body();
    for (const auto& stream : streams) (void)stream->Synchronize(std::chrono::hours(1)).ok();
  });
  return results;
}

}  // namespace hir::host
