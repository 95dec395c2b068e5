#include "benchmarks/compiled_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"

namespace hir::bench {
namespace {

using base::Cat;
using fusion::HostTensor;

// Several sources as one.
class JoinedKernels final : public device::KernelSource {
 public:
  void Add(const codegen::Artifact& artifact, std::unique_ptr<device::KernelSource> source) {
    for (const std::string& kernel : artifact.kernels) by_name_[kernel] = source.get();
    sources_.push_back(std::move(source));
  }
  Result<const device::Kernel*> Get(std::string_view name) override {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return Status(Code::kNotFound, Cat("no kernel ", name));
    return found->second->Get(name);
  }

 private:
  std::vector<std::unique_ptr<device::KernelSource>> sources_;
  std::map<std::string, device::KernelSource*, std::less<>> by_name_;
};

Status CompileAndLoad(codegen::cpu::Compiler& compiler, const codegen::KernelPlan& plan) {
  HIR_ASSIGN(const codegen::Artifact artifact, compiler.Compile(plan));
  return codegen::cpu::Load(artifact).status();
}

// The extents of what is stored for a value of `type`.
Result<std::vector<int64_t>> StoredShape(const ir::Type& type, const fusion::SymbolValues& symbols) {
  HIR_ASSIGN(std::vector<int64_t> shape, fusion::ShapeOf(type, symbols));
  const std::vector<ir::Axis> axes = ir::ValueAxes(type);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
  }
  return shape;
}

Result<int64_t> StoredBytes(const ir::Type& type, const fusion::SymbolValues& symbols) {
  HIR_ASSIGN(const std::vector<int64_t> shape, StoredShape(type, symbols));
  int64_t bytes = DTypeBytes(type.dtype);
  for (const int64_t extent : shape) bytes *= extent;
  return bytes;
}

// A block of random numbers again and again, which no cache or memory can tell from a long random
// sequence.
void FillRandomly(const device::Buffer& buffer, DType dtype, base::Prng& prng) {
  std::vector<double> values(65521);
  for (double& value : values) value = 0.5 + prng.Unit();
  const HostTensor block = fusion::TensorOf(dtype, {static_cast<int64_t>(values.size())}, values);
  const auto size = static_cast<int64_t>(block.bytes.size());
  for (int64_t at = 0; at < buffer.bytes; at += size) {
    std::memcpy(buffer.data + at, block.bytes.data(), static_cast<size_t>(std::min(size, buffer.bytes - at)));
  }
}

double ToleranceOf(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16 ? 1e-2 : 1e-4; }

Status Compare(const HostTensor& got, const HostTensor& want, std::string_view name) {
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  if (got.shape != want.shape) return Internal(Cat(name, " has another shape than the interpreter's"));
  double scale = 0;
  for (const double value : b) scale = std::max(scale, std::fabs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::fabs(a[i] - b[i]) <= ToleranceOf(got.dtype) * scale) continue;
    return Internal(Cat(name, ": element ", i, " of the part is ", a[i], ", not ", b[i]));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Machine>> Machine::Make() {
  constexpr int kStreams = 2;
  auto machine = std::make_unique<Machine>();
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  HIR_ASSIGN(machine->device, device::CreateHostDevice({.num_threads = threads}));
  for (int i = 0; i < kStreams; ++i) {
    HIR_ASSIGN(auto stream, machine->device->CreateStream());
    machine->streams.push_back(stream.get());
    machine->owned.push_back(std::move(stream));
  }
  machine->pool = std::make_unique<host::Pool>(*machine->device);
  return machine;
}

Result<std::unique_ptr<CompiledProgram>> CompiledProgram::Make(Machine& machine, std::string_view text,
                                                               const fusion::SymbolValues& symbols) {
  std::unique_ptr<CompiledProgram> program(new CompiledProgram(machine, symbols));
  HIR_TRY(program->Prepare(text));
  HIR_TRY(program->Bind());
  HIR_TRY(program->CountBytes());
  return program;
}

Status CompiledProgram::Prepare(std::string_view text) {
  HIR_ASSIGN(source_, ir::Parse(text, fusion::kFusionOps));
  HIR_ASSIGN(auto program, ir::Parse(text, fusion::kFusionOps));
  HIR_ASSIGN(plan_, host::PlanProgram(std::move(program), {}));
  HIR_ASSIGN(program_, host::HostProgram::Load(ir::Print(*plan_.host)));
  auto kernels = std::make_unique<JoinedKernels>();
  codegen::cpu::Compiler compiler({});
  for (const codegen::KernelPlan& plan : plan_.kernels) {
    HIR_ASSIGN(const codegen::Artifact artifact, compiler.Compile(plan));
    HIR_ASSIGN(auto loaded, codegen::cpu::Load(artifact));
    kernels->Add(artifact, std::move(loaded));
    for (size_t i = 0; i < plan.launches.size(); ++i) {
      codegen::KernelPlan& one = each_kernel_.emplace_back(plan);
      one.launches = {plan.launches[i]};
      one.nests = {plan.nests[i]};
    }
  }
  kernels_ = std::move(kernels);
  HIR_ASSIGN(evaluator_, host::Evaluator::Prepare(*program_, {.device = machine_.device.get(),
                                                              .streams = machine_.streams,
                                                              .kernels = kernels_.get(),
                                                              .pool = machine_.pool.get()}));
  return {};
}

Result<device::Buffer> CompiledProgram::Allocate(const ir::Type& type) {
  HIR_ASSIGN(const int64_t bytes, StoredBytes(type, symbols_));
  HIR_ASSIGN(auto memory, machine_.device->Allocate(bytes));
  memory_.push_back(std::move(memory));
  return memory_.back()->buffer();
}

Status CompiledProgram::Bind() {
  base::Prng prng(7);
  for (const ir::Value* param : program_->graph().params) {
    HIR_ASSIGN(const device::Buffer buffer, Allocate(*param->type));
    FillRandomly(buffer, param->type->dtype, prng);  // Outputs too, so that their pages are there.
    arguments_.push_back({.buffer = buffer});
  }
  std::vector<int64_t> values;
  for (const std::string_view symbol : program_->symbols()) values.push_back(symbols_.find(symbol)->second);
  return evaluator_->Bind(arguments_, values, &binding_);
}

Status CompiledProgram::CountBytes() {
  for (const codegen::KernelPlan& plan : plan_.kernels) {
    std::map<const ir::Value*, bool> seen;
    for (const codegen::Launch& launch : plan.launches) {
      for (const auto& values : {launch.inputs, launch.outputs}) {
        for (const ir::Value* value : values) {
          if (!seen.emplace(value, true).second) continue;
          HIR_ASSIGN(const int64_t bytes, StoredBytes(*value->type, symbols_));
          bytes_ += static_cast<double>(bytes);
        }
      }
    }
  }
  return {};
}

Status CompiledProgram::Run() {
  HIR_TRY(evaluator_->Run(binding_, {}));
  return evaluator_->Synchronize(std::chrono::seconds(60));
}

Result<std::vector<CompiledProgram::CompileTime>> CompiledProgram::CompileTimes(Time time) const {
  codegen::cpu::Compiler compiler({});
  std::vector<CompileTime> times;
  for (const codegen::KernelPlan& plan : each_kernel_) {
    Status cold, again;
    CompileTime& taken = times.emplace_back();
    taken.cold = Seconds([&] { cold = CompileAndLoad(compiler, plan); }, time);
    HIR_TRY(cold);
    taken.again = Seconds([&] { again = compiler.Compile(plan).status(); }, time);
    HIR_TRY(again);
  }
  if (compiler.num_compiled() != num_kernels()) return Internal("a kernel was compiled again, or is like another");
  return times;
}

Result<double> CompiledProgram::SecondsToCompileAll(Time time) const {
  codegen::cpu::Compiler compiler({});
  Status status;
  const auto compile_all = [&] {
    for (const codegen::KernelPlan& plan : plan_.kernels) {
      if (status.ok()) status = CompileAndLoad(compiler, plan);
    }
  };
  const double seconds = Seconds(compile_all, time);
  HIR_TRY(status);
  return seconds;
}

// --- against the interpreter ---

Status CompiledProgram::Check(std::string_view symbol, int64_t sample) {
  const int64_t extent = symbols_.find(symbol)->second;
  const int64_t count = std::min(sample, extent);
  for (const int64_t from : {int64_t{0}, (extent - count) / 2, extent - count}) {
    HIR_TRY(CheckPart(symbol, from, count).WithContext(Cat("from ", symbol, " = ", from)));
  }
  return {};
}

Status CompiledProgram::CheckPart(std::string_view symbol, int64_t from, int64_t count) {
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < source_->params.size(); ++i) {
    HIR_ASSIGN(HostTensor input, Part(arguments_[i].buffer, *source_->params[i]->type, symbol, from, count));
    inputs.push_back(std::move(input));
  }
  HIR_ASSIGN(const std::vector<HostTensor> want, fusion::Interpret(*source_, inputs));
  for (size_t i = 0; i < want.size(); ++i) {
    const ir::Value& output = *source_->outputs[i].value;
    const auto param = static_cast<size_t>(program_->outputs()[i]);
    HIR_ASSIGN(const HostTensor got, Part(arguments_[param].buffer, *output.type, symbol, from, count));
    HIR_TRY(Compare(got, want[i], output.name));
  }
  return {};
}

// The places from, from + 1, ... along the axes of extent `symbol`, all others whole.
Result<HostTensor> CompiledProgram::Part(const device::Buffer& buffer, const ir::Type& type, std::string_view symbol,
                                         int64_t from, int64_t count) const {
  HIR_ASSIGN(const std::vector<int64_t> stored, StoredShape(type, symbols_));
  HIR_ASSIGN(std::vector<int64_t> whole, fusion::ShapeOf(type, symbols_));
  const std::vector<ir::Axis> axes = ir::ValueAxes(type);
  std::vector<int64_t> shape = stored, first(stored.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (axes[i].extent->symbol != symbol) continue;
    whole[i] = count;
    if (axes[i].kind == ir::AxisKind::kBroadcast) continue;
    shape[i] = count;
    first[i] = from;
  }
  HostTensor part = fusion::ZeroTensor(type.dtype, shape);
  const int64_t size = DTypeBytes(type.dtype);
  const int64_t row = shape.empty() ? 1 : shape.back();
  for (int64_t at = 0; at < part.num_elements(); at += row) {
    int64_t offset = 0, stride = 1, rest = at;
    for (size_t i = shape.size(); i-- > 0;) {
      offset += (rest % shape[i] + first[i]) * stride;
      rest /= shape[i];
      stride *= stored[i];
    }
    std::memcpy(part.bytes.data() + at * size, buffer.data + offset * size, static_cast<size_t>(row * size));
  }
  return fusion::WrittenOut(part, whole);
}

}  // namespace hir::bench
