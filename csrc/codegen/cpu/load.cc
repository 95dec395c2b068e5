// LLVM: object bytes to functions in this process.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <span>

#include "csrc/base/special_functions.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/device/host/host_kernel.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::cpu {
namespace {

uint16_t FloatToHalf(float value) { return FloatToFloat16(value); }
template <fusion::Prim prim, typename T>
T Integers(T a, T b) {
  return static_cast<T>(fusion::Wrap(sizeof(T) == 4 ? DType::kInt32 : DType::kInt64, fusion::IntFunction(prim)(a, b)));
}

// Code reads it as @hir_streamed_bytes; it is known before any code that does runs.
int64_t streamed_bytes = 0;
void KnowStreamedBytes(std::span<const std::string> objects) {
  const auto asks = [](const std::string& object) { return object.find("hir_streamed_bytes") != std::string::npos; };
  if (!std::ranges::any_of(objects, asks)) return;
  static std::once_flag once;
  std::call_once(once, [] { streamed_bytes = StreamedBytes(); });
}

// Everything that code may call or read, by address: nothing is looked up by name in the process.
class Functions {
 public:
  explicit Functions(llvm::orc::ExecutionSession& session) : session_(session) {
#define LIBRARY(Name, name, operands, cost, function, ...) AddBoth(#function, ::function, ::function##f);
#define SPECIAL(Name, function, overloads) AddBoth(#function, overloads, overloads);
#include "csrc/fusion/prims.def"
    // Calls that LLVM makes of those and of its intrinsics: pow(10, x), exp2 of an integer, sin and cos of one number.
    AddBoth("roundeven", ::roundeven, ::roundevenf);
    AddBoth("cbrt", ::cbrt, ::cbrtf);
    AddBoth("exp10", ::exp10, ::exp10f);
    Add("ldexp", static_cast<double (*)(double, int)>(::ldexp));
    Add("ldexpf", static_cast<float (*)(float, int)>(::ldexpf));
    Add("sincos", &::sincos);
    Add("sincosf", &::sincosf);
    Add("hir_gcd_i32", &Integers<fusion::Prim::kGcd, int32_t>);
    Add("hir_gcd_i64", &Integers<fusion::Prim::kGcd, int64_t>);
    Add("hir_pow_i32", &Integers<fusion::Prim::kPow, int32_t>);
    Add("hir_pow_i64", &Integers<fusion::Prim::kPow, int64_t>);
    // And of loops that copy or clear.
    Add("memset", &::memset);
    Add("memcpy", &::memcpy);
    Add("memmove", &::memmove);
    Add("hir_float_to_half", &FloatToHalf);
    Add("hir_streamed_bytes", &streamed_bytes);
  }
  llvm::orc::SymbolMap Take() { return std::move(symbols_); }

 private:
  template <typename T>
  void Add(const std::string& name, T* function) {
    symbols_[session_.intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function), llvm::JITSymbolFlags::Exported};
  }
  void AddBoth(const std::string& name, double (*of_double)(double), float (*of_float)(float)) {
    Add(name, of_double);
    Add(name + "f", of_float);
  }
  void AddBoth(const std::string& name, double (*of_double)(double, double), float (*of_float)(float, float)) {
    Add(name, of_double);
    Add(name + "f", of_float);
  }

  llvm::orc::ExecutionSession& session_;
  llvm::orc::SymbolMap symbols_;
};

// Linked objects. Immutable once made.
class Linked {
 public:
  static Result<std::shared_ptr<Linked>> Make(std::span<const std::string> objects) {
    auto control = llvm::orc::SelfExecutorProcessControl::Create();
    if (!control) return Internal(base::Cat("LLVM: ", llvm::toString(control.takeError())));
    std::shared_ptr<Linked> linked(new Linked(std::move(*control)));
    if (llvm::Error error = linked->library_.define(llvm::orc::absoluteSymbols(Functions(linked->session_).Take()))) {
      return Internal(base::Cat("LLVM: ", llvm::toString(std::move(error))));
    }
    for (const std::string& object : objects) {
      auto bytes = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), "kernel");
      if (llvm::Error error = linked->layer_.add(linked->library_, std::move(bytes))) {
        return InvalidArgument(base::Cat("these kernels do not link: ", llvm::toString(std::move(error))));
      }
    }
    return linked;
  }
  ~Linked() {
    if (llvm::Error error = session_.endSession()) llvm::consumeError(std::move(error));
  }

  Result<device::HostFunction> Find(const std::string& name) {
    auto found = session_.lookup({&library_}, session_.intern(name));
    if (!found) return InvalidArgument(base::Cat("these kernels do not link: ", llvm::toString(found.takeError())));
    return found->getAddress().toPtr<device::HostFunction>();
  }

 private:
  explicit Linked(std::unique_ptr<llvm::orc::ExecutorProcessControl> control)
      : session_(std::move(control)),
        memory_(session_.getPageSize()),
        layer_(session_, memory_),
        library_(session_.createBareJITDylib("kernels")) {
    session_.setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });  // Find returns it.
  }

  llvm::orc::ExecutionSession session_;
  llvm::jitlink::InProcessMemoryManager memory_;  // Writes first, then makes code executable and read-only.
  llvm::orc::ObjectLinkingLayer layer_;
  llvm::orc::JITDylib& library_;
};

class LoadedKernels final : public device::KernelSource {
 public:
  void Add(device::HostKernel::Options options) { kernels_.emplace_back(std::move(options)); }
  Result<const device::Kernel*> Get(std::string_view name) override {
    for (const device::HostKernel& kernel : kernels_) {
      if (kernel.name() == name) return &kernel;
    }
    return Status(Code_::kNotFound, base::Cat("no kernel ", name));
  }

 private:
  using Code_ = hir::Code;
  std::deque<device::HostKernel> kernels_;
};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> Load(const Artifact& artifact) {
  HIR_ASSIGN(const Code code, Unpack(artifact.bytes));
  if (code.grains.size() != artifact.kernels.size()) {
    return InvalidArgument(base::Cat(code.grains.size(), " kernels with ", artifact.kernels.size(), " names"));
  }
  const Target host = HostTarget();
  if (code.target.features != host.features || code.target.cpu != host.cpu) {
    return Status(hir::Code::kFailedPrecondition,
                  base::Cat("kernels for ", code.target.cpu, " (", code.target.features, ") do not run on this ",
                            host.cpu, " (", host.features, ")"));
  }
  auto kernels = std::make_unique<LoadedKernels>();
  if (code.grains.empty()) return kernels;
  KnowStreamedBytes(code.objects);
  HIR_ASSIGN(const std::shared_ptr<Linked> linked, Linked::Make(code.objects));
  for (size_t i = 0; i < code.grains.size(); ++i) {
    HIR_ASSIGN(const device::HostFunction function, linked->Find(base::Cat("k", i)));
    kernels->Add({.name = artifact.kernels[i], .function = function, .code = linked, .grain = code.grains[i]});
  }
  return kernels;
}

}  // namespace hir::codegen::cpu
