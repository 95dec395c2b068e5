// From a plan to an artifact, and the cache. What LLVM does is in compile.cc.
#include <algorithm>
#include <optional>
#include <thread>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/artifact.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {
namespace {

constexpr int64_t kUnknownTrips = 512;
constexpr int64_t kGrainElements = 16384;  // About 5 us of work: a thread of its own pays from there.

// Those of a block, whose end is the lesser of two, are as many as it has where it is whole.
int64_t Trips(const ir::ExprPool& pool, const Loop& loop) {
  std::optional<int64_t> trips = pool.Difference(loop.end, loop.begin);
  if (loop.end->kind == ir::ExprKind::kMin) {
    for (const ir::Expr* end : loop.end->args) {
      if (!trips) trips = pool.Difference(end, loop.begin);
    }
  }
  return std::max<int64_t>(trips.value_or(kUnknownTrips), 1);
}

// The fewest items of a launch's grid worth a thread.
int64_t GrainOf(const LoopNest& nest) {
  int64_t grain = INT64_MAX;
  for (const Region& region : nest.regions) {
    int64_t work = 0;
    for (const Phase& phase : region.phases) {
      int64_t trips = region.columns ? region.columns_max : 1;
      for (const Loop& loop : phase.loops) trips = std::min(trips * Trips(nest.exprs, loop), kGrainElements);
      work += trips;
    }
    for (const Loop& loop : region.serial) work = std::min(work * Trips(nest.exprs, loop), kGrainElements);
    grain = std::min(grain, kGrainElements / std::clamp<int64_t>(work, 1, kGrainElements));
  }
  return std::clamp<int64_t>(grain, 1, kGrainElements);
}

// The module of kernel `i` of `plan`.
Result<std::string> EmitModule(const KernelPlan& plan, size_t i, const Target& target) {
  const auto& in_place = plan.launches[i].in_place;
  Emitter emitter(*plan.nests[i], target, !in_place.empty());
  HIR_ASSIGN(const std::string function, emitter.Run(base::Cat("k", i)));
  // A division of 64 bits is one, and not a branch to one of 32 where both numbers fit: those of indices stand outside
  // of the innermost loops, and the branches and blocks of all of them would be compiled.
  constexpr std::string_view kTuning = ",-idivq-to-divl";
  std::string out;
  for (const std::string& declaration : emitter.writer().declarations) base::Append(out, declaration, "\n");
  base::Append(out, "\n", function, "attributes #0 = { nounwind \"target-cpu\"=\"", target.cpu,
               "\" \"target-features\"=\"", target.features, kTuning, "\" \"prefer-vector-width\"=\"",
               target.vector_bytes * 8, "\" }\nattributes #1 = { nounwind willreturn memory(none) }\n!0 = !{i32 1}\n",
               AliasScopes(plan.nests[i]->tensors.size(), [&](size_t a, size_t b) {
                 const size_t outputs = plan.launches[i].inputs.size();  // Behind them.
                 return std::ranges::any_of(in_place, [&](const auto& pair) {
                   const size_t output = outputs + pair.second;
                   return (a == pair.first && b == output) || (a == output && b == pair.first);
                 });
               }));
  return out;
}

Result<std::vector<std::string>> EmitModules(const KernelPlan& plan, const Target& target) {
  std::vector<std::string> modules;
  for (size_t i = 0; i < plan.nests.size(); ++i) {
    HIR_ASSIGN(std::string module, EmitModule(plan, i, target));
    modules.push_back(std::move(module));
  }
  return modules;
}

std::string Joined(std::span<const std::string> modules) {
  std::string out;
  for (const std::string& module : modules) out += module;
  return out;
}

// Most of a plan's kernels are one, and nobody has more than a few.
Result<std::vector<std::string>> CompileObjects(std::span<const std::string> modules, const Target& target) {
  std::vector<Result<std::string>> results(modules.size(), Internal("not compiled"));
  const auto compile = [&](size_t i) { results[i] = CompileObject(modules[i], target); };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < modules.size(); ++i) others.emplace_back(compile, i);
    if (!modules.empty()) compile(0);
  }
  std::vector<std::string> objects;
  for (Result<std::string>& result : results) {
    HIR_ASSIGN(std::string object, std::move(result));
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace

Result<std::string> EmitIr(const KernelPlan& plan, const Target& target) {
  HIR_ASSIGN(const std::vector<std::string> modules, EmitModules(plan, target));
  return Joined(modules);
}

Result<Artifact> Compiler::Compile(const KernelPlan& plan) {
  Artifact artifact;
  std::vector<int64_t> grains;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    artifact.kernels.push_back(plan.launches[i].kernel);
    grains.push_back(GrainOf(*plan.nests[i]));
  }
  HIR_ASSIGN(const std::vector<std::string> modules, EmitModules(plan, options_.target));
  std::string ir = Joined(modules);
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !under_way_.contains(ir); });
    const auto found = cache_.find(ir);
    if (found != cache_.end()) {
      artifact.bytes = found->second;
      return artifact;
    }
    under_way_.insert(ir);
  }
  bool from_disk = false;
  Result<std::string> bytes = ReadOrCompile(ir, modules, std::move(grains), from_disk);
  const std::lock_guard lock(mutex_);
  under_way_.erase(ir);
  done_.notify_all();
  HIR_ASSIGN(artifact.bytes, std::move(bytes));
  ++(from_disk ? num_from_disk_ : num_compiled_);
  if (cache_.size() >= options_.cached_plans_max) cache_.clear();
  cache_.emplace(std::move(ir), artifact.bytes);
  return artifact;
}

Result<std::string> Compiler::ReadOrCompile(const std::string& ir, std::span<const std::string> modules,
                                            std::vector<int64_t> grains, bool& from_disk) const {
  Code code = {.target = options_.target, .grains = std::move(grains), .objects = {}};
  code.objects.resize(code.grains.size());
  // The IR names the CPU's features; what another compiler or another version of ours made has another key.
  const std::string key = base::Cat(CompilerIdentity(), "\n", Pack(code), ir);
  if (std::optional<std::string> bytes = disk_.Read(key); bytes && Unpack(*bytes).ok()) {
    from_disk = true;
    return *std::move(bytes);
  }
  HIR_ASSIGN(code.objects, CompileObjects(modules, options_.target));
  std::string bytes = Pack(code);
  disk_.Write(key, bytes);
  return bytes;
}

int64_t Compiler::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

int64_t Compiler::num_from_disk() const {
  const std::lock_guard lock(mutex_);
  return num_from_disk_;
}

}  // namespace hir::codegen::cpu
