#include "csrc/codegen/library/cublaslt/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "csrc/base/text.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

template <typename Fn>
Status Find(void* library, const std::string& path, const char* name, Fn& function) {
  function = reinterpret_cast<Fn>(dlsym(library, name));
  if (function != nullptr) return {};
  return {Code::kFailedPrecondition, Cat(path, " has no ", name, ": it is no cuBLASLt of CUDA 12 or 13")};
}

}  // namespace

Result<Api> LoadApi(std::span<const std::string> libraries) {
  std::vector<std::string> paths(libraries.begin(), libraries.end());
  if (const char* const named = std::getenv("HOSTIR_CUBLASLT"); named != nullptr && *named != '\0')
    paths.insert(paths.begin(), named);
  std::string tried;
  for (const std::string& path : paths) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      base::Append(tried, tried.empty() ? "" : "; ", why == nullptr ? path.c_str() : why);
      continue;
    }
    Api api;
    HIR_TRY(Find(library, path, "cublasLtCreate", api.create));
    HIR_TRY(Find(library, path, "cublasLtDestroy", api.destroy));
    HIR_TRY(Find(library, path, "cublasLtGetStatusName", api.status_name));
    HIR_TRY(Find(library, path, "cublasLtGetVersion", api.version));
    HIR_TRY(Find(library, path, "cublasLtMatmul", api.matmul));
    HIR_TRY(Find(library, path, "cublasLtMatmulAlgoGetHeuristic", api.heuristic));
    HIR_TRY(Find(library, path, "cublasLtMatmulDescCreate", api.desc_create));
    HIR_TRY(Find(library, path, "cublasLtMatmulDescDestroy", api.desc_destroy));
    HIR_TRY(Find(library, path, "cublasLtMatmulDescSetAttribute", api.desc_set));
    HIR_TRY(Find(library, path, "cublasLtMatrixLayoutCreate", api.layout_create));
    HIR_TRY(Find(library, path, "cublasLtMatrixLayoutDestroy", api.layout_destroy));
    HIR_TRY(Find(library, path, "cublasLtMatrixLayoutSetAttribute", api.layout_set));
    HIR_TRY(Find(library, path, "cublasLtMatmulPreferenceCreate", api.preference_create));
    HIR_TRY(Find(library, path, "cublasLtMatmulPreferenceDestroy", api.preference_destroy));
    HIR_TRY(Find(library, path, "cublasLtMatmulPreferenceSetAttribute", api.preference_set));
    return api;
  }
  return Status(Code::kFailedPrecondition, Cat("cuBLASLt cannot be loaded: ", tried,
                                               "; install the CUDA toolkit, or set HOSTIR_CUBLASLT to the library"));
}

}  // namespace hir::codegen::library
