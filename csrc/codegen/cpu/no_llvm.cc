// The build without LLVM.
#include "csrc/codegen/cpu/cpu.h"

namespace hir::codegen::cpu {

namespace {
Status NotBuilt() { return Unimplemented("built without LLVM: CPU kernels can neither be compiled nor loaded"); }
}  // namespace

Target HostTarget() { return {}; }
Result<Artifact> Compiler::Compile(const KernelPlan&) { return NotBuilt(); }
void OnOutOfMemory(void (*)()) {}
int64_t Compiler::num_compiled() const { return 0; }
int64_t Compiler::num_from_disk() const { return 0; }
Result<std::string> EmitIr(const KernelPlan&, const Target&) { return NotBuilt(); }
Result<std::unique_ptr<device::KernelSource>> Load(const Artifact&) { return NotBuilt(); }

}  // namespace hir::codegen::cpu
