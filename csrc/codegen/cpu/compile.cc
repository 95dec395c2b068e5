// LLVM: IR text to object bytes, and what this machine's CPU can do.
#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <map>
#include <mutex>
#include <optional>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/cpu.h"

namespace hir::codegen::cpu {
namespace {

// What kernels use or what code generation gains from; the rest of a CPU's features would only make artifacts
// less portable.
constexpr std::string_view kFeatures[] = {"avx",    "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl",
                                          "bmi",    "bmi2", "evex512",  "f16c",     "fma",      "lzcnt",   "movbe",
                                          "popcnt", "sse3", "sse4.1",   "sse4.2",   "ssse3"};

// What LLVM is told by its command line alone. Loop strength reduction takes a quarter of its time on these loops, half
// of it on long ones, and their addresses are a base, an index and a constant already. Integers that would be better
// off in mask registers are sought in all of a function, and there are none. Instructions scheduled once more, as
// machine code, are as many and spill as much, on cores that order them anew anyway.
struct Option {
  const char* name;
  const char* value;
};
constexpr Option kOptions[] = {
    {"disable-lsr", "true"}, {"disable-x86-domain-reassignment", "true"}, {"enable-misched", "false"}};

constexpr auto kLevel = llvm::CodeGenOptLevel::Less;

void InitializeOnce() {
  static std::once_flag once;  // LLVM's registries of targets and options are one a process.
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    for (const auto& [name, value] : kOptions) {
      const auto option = llvm::cl::getRegisteredOptions().find(name);
      if (option != llvm::cl::getRegisteredOptions().end()) option->second->addOccurrence(0, name, value);
    }
  });
}

Result<std::unique_ptr<llvm::TargetMachine>> MakeMachine(const Target& target) {
  InitializeOnce();
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) return Unimplemented(base::Cat("LLVM has no target ", triple, ": ", error));
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_, llvm::CodeModel::Small, kLevel));
  if (machine == nullptr) return Unimplemented(base::Cat("LLVM cannot make code for ", target.cpu));
  return machine;
}

// What turns modules into objects, one at a time, any number of them: a target with its passes, which together take
// longer to make than an empty function to compile, and the types and constants of the modules so far.
class Generator {
 public:
  static Result<std::unique_ptr<Generator>> Make(const Target& target) {
    HIR_ASSIGN(std::unique_ptr<llvm::TargetMachine> machine, MakeMachine(target));
    std::unique_ptr<Generator> made(new Generator(std::move(machine)));
    if (made->machine_->addPassesToEmitFile(made->passes_, made->stream_, nullptr, llvm::CodeGenFileType::ObjectFile)) {
      return Internal("LLVM cannot write an object file");
    }
    return made;
  }

  llvm::TargetMachine& machine() { return *machine_; }
  llvm::LLVMContext& context() { return context_; }
  // Whether its context, which only grows, is still worth keeping.
  bool IsYoung() const { return num_modules_ < kModulesMax; }

  std::string Run(llvm::Module& module) {
    ++num_modules_;
    object_.clear();
    passes_.run(module);
    return std::string(object_.data(), object_.size());
  }

 private:
  static constexpr int kModulesMax = 256;

  explicit Generator(std::unique_ptr<llvm::TargetMachine> machine) : machine_(std::move(machine)), stream_(object_) {}

  std::unique_ptr<llvm::TargetMachine> machine_;
  llvm::LLVMContext context_;
  llvm::SmallVector<char, 0> object_;
  llvm::raw_svector_ostream stream_;
  llvm::legacy::PassManager passes_;
  int num_modules_ = 0;
};

// Generators that nobody uses.
class Generators {
 public:
  // Goes back where it came from.
  class Lent {
   public:
    Lent(Generators& owner, std::string key, std::unique_ptr<Generator> generator)
        : owner_(&owner), key_(std::move(key)), generator_(std::move(generator)) {}
    Lent(Lent&&) = default;
    Lent& operator=(Lent&&) = delete;
    ~Lent() {
      if (generator_ != nullptr) owner_->Return(std::move(key_), std::move(generator_));
    }
    Generator* operator->() const { return generator_.get(); }

   private:
    Generators* owner_;
    std::string key_;
    std::unique_ptr<Generator> generator_;
  };

  Result<Lent> Take(const Target& target) {
    std::string key = base::Cat(target.cpu, " ", target.features);
    {
      const std::lock_guard lock(mutex_);
      const auto found = idle_.find(key);
      if (found != idle_.end()) {
        std::unique_ptr<Generator> generator = std::move(found->second);
        idle_.erase(found);
        return Lent(*this, std::move(key), std::move(generator));
      }
    }
    HIR_ASSIGN(std::unique_ptr<Generator> generator, Generator::Make(target));
    return Lent(*this, std::move(key), std::move(generator));
  }

 private:
  static constexpr size_t kIdleMax = 16;

  void Return(std::string key, std::unique_ptr<Generator> generator) {
    const std::lock_guard lock(mutex_);
    if (generator->IsYoung() && idle_.size() < kIdleMax) idle_.emplace(std::move(key), std::move(generator));
  }

  std::mutex mutex_;
  std::multimap<std::string, std::unique_ptr<Generator>> idle_;
};

// The passes that pay on this code: it is in vectors and its loops are as they should be, so what is left is slots to
// registers, and common and invariant parts; instruction selection combines what is left to combine. Combining,
// unrolling short loops, value numbering, dead stores and induction variables take four fifths of the time of passes
// for the same code.
constexpr std::string_view kPasses =
    "function(sroa,early-cse,simplifycfg,loop-simplify,lcssa,loop-mssa(licm),early-cse<memssa>,"
    "simplifycfg)";

Status Optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, llvm::StringRef(kPasses.data(), kPasses.size()))) {
    return Internal(base::Cat("LLVM: ", llvm::toString(std::move(error))));
  }
  passes.run(module, modules);
  return {};
}

}  // namespace

Target HostTarget() {
  Target target;
  target.cpu = llvm::sys::getHostCPUName().str();
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  const auto has = [&](std::string_view name) {
    const auto found = features.find(llvm::StringRef(name.data(), name.size()));
    return found != features.end() && found->second;
  };
  for (const std::string_view name : kFeatures) {
    const bool is_set = has(name) || (name == "evex512" && has("avx512f"));
    base::Append(target.features, target.features.empty() ? "" : ",", is_set ? "+" : "-", name);
  }
  const bool wide = has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq");
  target.vector_bytes = wide ? 64 : has("avx2") ? 32 : 16;
  target.fma = has("fma");
  target.half = has("f16c");
  return target;
}

std::string CompilerIdentity() {
  std::string identity = base::Cat("llvm ", LLVM_VERSION_STRING, " ", llvm::sys::getProcessTriple(), " ", kPasses, " O",
                                   static_cast<int>(kLevel));
  for (const auto& [name, value] : kOptions) base::Append(identity, " ", name, "=", value);
  return identity;
}

Result<std::string> CompileObject(const std::string& ir, const Target& target) {
  static Generators generators;
  HIR_ASSIGN(const Generators::Lent generator, generators.Take(target));
  llvm::SMDiagnostic diagnostic;
  const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(ir, diagnostic, generator->context());
  if (module == nullptr) {
    return Internal(base::Cat("LLVM does not read the kernel's IR: line ", diagnostic.getLineNo(), ": ",
                              diagnostic.getMessage().str(), ": ", diagnostic.getLineContents().str()));
  }
  llvm::TargetMachine& machine = generator->machine();
  module->setDataLayout(machine.createDataLayout());
  module->setTargetTriple(machine.getTargetTriple().str());
  HIR_TRY(Optimize(*module, machine));
  return generator->Run(*module);
}

void OnOutOfMemory(void (*end)()) {
  llvm::install_bad_alloc_error_handler([](void* end_it, const char*, bool) { reinterpret_cast<void (*)()>(end_it)(); },
                                        reinterpret_cast<void*>(end));
}

}  // namespace hir::codegen::cpu
