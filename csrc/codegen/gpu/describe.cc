// What was chosen for a kernel and what became of it, for people.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/ir/type.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;

namespace {

constexpr int kRegisters = 65536;      // Of a multiprocessor, on every architecture since 8.0.
constexpr int kRegistersTogether = 8;  // A thread's are given out so.

std::string_view RoleName(Tensor::Role role) {
  switch (role) {
    case Tensor::Role::kInput: return "reads";
    case Tensor::Role::kOutput: return "writes";
    case Tensor::Role::kWorkspace: return "workspace";
  }
  return {};
}

// Lines of comments: what kernel it is, how it runs, and what its parameters are called in the program.
std::string HeaderOf(const KernelPlan& plan, const Source& source, size_t index) {
  const LoopNest& nest = *plan.nests[index];
  std::string text =
      Cat("// ", plan.launches[index].kernel, ", ", plan.schedule, ": ", DescribeSchedule(source, index), "\n");
  for (size_t i = 0; i < nest.tensors.size(); ++i) {
    const Tensor& tensor = nest.tensors[i];
    Append(text, "//   t", i, " ", RoleName(tensor.role), " %", tensor.value->name, ": ",
           ir::ToString(*tensor.value->type), "\n");
  }
  for (size_t i = 0; i < nest.symbols.size(); ++i) Append(text, "//   s", i, " = ", nest.symbols[i], "\n");
  for (size_t i = 0; i < nest.scalars.size(); ++i) Append(text, "//   x", i, " = %", nest.scalars[i]->name, "\n");
  return text;
}

std::string ResourcesText(const Code& code, size_t index) {
  const int threads = code.kernels[index].threads, registers = code.registers[index];
  const int together = (registers + kRegistersTogether - 1) / kRegistersTogether * kRegistersTogether * threads;
  std::string text = Cat(registers, " registers a thread");
  if (together > 0) {
    Append(text, ", room for ", kRegisters / together, " CTAs of ", threads, " threads a multiprocessor");
  }
  if (code.spill_bytes[index] > 0) Append(text, ", ", code.spill_bytes[index], " bytes spilled");
  return text;
}

}  // namespace

std::string DescribeSchedule(const Source& source, size_t index) {
  const Tuning& tuning = source.tunings[index];
  const KernelInfo& info = source.kernels[index];
  std::string text = Cat(tuning.schedule, ", ", info.threads, " threads");
  if (tuning.lanes > 1) Append(text, ", vectors of ", tuning.lanes);
  if (tuning.unroll > 1) Append(text, ", ", tuning.unroll, " in flight");
  if (tuning.keep > 0) text += ", rows kept in the second-level cache between readings";
  if (tuning.schedule == "rows") {
    Append(text, tuning.held > 0 ? ", rows held in registers" : "");
    if (tuning.rows > 1) Append(text, ", ", tuning.rows, " rows a CTA");
  }
  if (tuning.schedule == "columns") Append(text, ", ", tuning.width, " threads along the columns");
  if (info.items_per_cta > 1) Append(text, ", ", info.items_per_cta, " items a CTA");
  if (info.ctas_per_sm != 0) text += ", as many CTAs as fit";
  if (source.caps[index] > 1) Append(text, ", registers for ", source.caps[index], " CTAs a multiprocessor");
  return text;
}

Result<std::vector<std::string>> NotesOf(const Artifact& artifact) {
  HIR_ASSIGN(const Code code, Unpack(artifact.bytes));
  std::vector<std::string> notes;
  for (size_t i = 0; i < std::min(code.kernels.size(), artifact.kernels.size()); ++i) {
    notes.push_back(Cat(artifact.kernels[i], ": ", code.schedules[i], "; ", ResourcesText(code, i)));
  }
  return notes;
}

Result<std::string> EmitKernels(const KernelPlan& plan) {
  HIR_ASSIGN(const Source source, EmitCuda(plan));
  std::string text;
  for (size_t i = 0; i < source.parts.size(); ++i) Append(text, HeaderOf(plan, source, i), source.parts[i]);
  return text;
}

}  // namespace hir::codegen::gpu
