#include "host_ir/rank/compile_all.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace hir::rank {

Result<std::vector<codegen::Artifact>> CompileAll(std::span<const codegen::KernelPlan> plans,
                                                  const CompileKernels& compile, const CompileOptions& options) {
  std::vector<Result<codegen::Artifact>> compiled(plans.size(), Internal("not compiled"));
  // Nothing before the first that fails is left out, so the error is the same with any number of threads.
  std::atomic<size_t> failed = plans.size();
  std::mutex telling;
  int64_t num_compiled = 0;  // Guarded by telling.
  const auto one = [&](size_t i) {
    if (i > failed) return;
    compiled[i] = compile(plans[i]);
    if (!compiled[i].ok()) {
      for (size_t first = failed; i < first && !failed.compare_exchange_weak(first, i);) {
      }
      return;
    }
    const std::scoped_lock lock(telling);
    ++num_compiled;
    if (options.compiled) options.compiled(num_compiled);
  };
  std::atomic<size_t> next = 0;  // One at a time: some take ten times as long as others.
  const auto work = [&](int64_t, int64_t) {
    for (size_t i = next++; i < plans.size(); i = next++) one(i);
  };
  if (options.pool == nullptr) {
    work(0, 1);
  } else {
    options.pool->ParallelFor(std::min<int64_t>(std::ssize(plans), options.pool->num_threads() + 1), 1, work);
  }
  std::vector<codegen::Artifact> artifacts;
  for (Result<codegen::Artifact>& artifact : compiled) {
    HIR_TRY(artifact.status());
    artifacts.push_back(*std::move(artifact));
  }
  return artifacts;
}

}  // namespace hir::rank
