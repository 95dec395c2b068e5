// A fusion program on one CPU device, by every stage that a service runs: planned, compiled,
// loaded, evaluated. For benchmarks.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "benchmarks/measurement.h"
#include "csrc/base/status.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/device/host/host_device.h"
#include "csrc/fusion/interpret/interpret.h"
#include "host_ir/eval/evaluator.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::bench {

// A device with a thread for every core, and the streams of programs.
struct Machine {
  std::unique_ptr<device::Device> device;
  std::vector<std::unique_ptr<device::Stream>> owned;
  std::vector<device::Stream*> streams;
  std::unique_ptr<host::Pool> pool;

  static Result<std::unique_ptr<Machine>> Make();
};

// Threads: one at a time. `machine` outlives it.
class CompiledProgram {
 public:
  // Inputs hold random numbers (dtype f32 and f64 in [0.5, 1.5), others the same rounded).
  static Result<std::unique_ptr<CompiledProgram>> Make(Machine& machine, std::string_view text,
                                                       const fusion::SymbolValues& symbols);

  Status Run();  // Blocks until it is done.

  // Compares what the last Run wrote with the interpreter, on parts of `sample` neighbours along
  // the axes of extent `symbol`. REQUIRES: no element depends on elements at another place along
  // those axes.
  Status Check(std::string_view symbol, int64_t sample);
  Status CheckWhole() { return CheckPart("%none", 0, 0); }  // No symbol has this name.

  // Bytes that every kernel has to move: each of its inputs and outputs once.
  double bytes() const { return bytes_; }
  int num_kernels() const { return static_cast<int>(each_kernel_.size()); }
  struct CompileTime {
    double cold = 0;   // Seconds from a plan to kernels that can run, by a compiler new to it.
    double again = 0;  // Seconds to the code once more, which that compiler has in memory.
  };
  Result<std::vector<CompileTime>> CompileTimes(Time time) const;  // Of each kernel alone.
  // As the service compiles them: those of a plan side by side.
  Result<double> SecondsToCompileAll(Time time) const;

 private:
  CompiledProgram(Machine& machine, fusion::SymbolValues symbols) : machine_(machine), symbols_(std::move(symbols)) {}
  Status Prepare(std::string_view text);
  Status Bind();
  Status CountBytes();
  Result<device::Buffer> Allocate(const ir::Type& type);
  Status CheckPart(std::string_view symbol, int64_t from, int64_t count);
  Result<fusion::HostTensor> Part(const device::Buffer& buffer, const ir::Type& type, std::string_view symbol,
                                  int64_t from, int64_t count) const;

  Machine& machine_;
  const fusion::SymbolValues symbols_;
  std::unique_ptr<ir::Graph> source_;  // For the interpreter.
  host::ProgramPlan plan_;
  std::vector<codegen::KernelPlan> each_kernel_;  // Plans of one kernel.
  std::unique_ptr<host::HostProgram> program_;
  std::unique_ptr<device::KernelSource> kernels_;
  std::unique_ptr<host::Evaluator> evaluator_;
  host::Binding binding_;
  std::vector<std::unique_ptr<device::Allocation>> memory_;
  std::vector<host::Argument> arguments_;
  double bytes_ = 0;
};

}  // namespace hir::bench
