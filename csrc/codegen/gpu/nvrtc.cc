// The functions are declared here as NVRTC documents them: they have not changed since it has cubins (11.1).
#include "csrc/codegen/gpu/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc_file.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

using Program = void*;

struct Nvrtc {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  const char* (*error)(int) = nullptr;
  std::string identity;
};

// After $HOSTIR_NVRTC. The last is what CMake found, perhaps in a Python wheel, where no loader looks; or empty.
std::vector<std::string> Names() {
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                    "/usr/local/cuda/lib64/libnvrtc.so", HIR_NVRTC_LIBRARY};
  if (const char* named = std::getenv("HOSTIR_NVRTC"); named != nullptr) names.insert(names.begin(), named);
  std::erase(names, "");
  return names;
}

Status NoLibrary() {
  return Status(hir::Code::kFailedPrecondition,
                Cat("GPU kernels are compiled by NVRTC, which is not here (tried ", base::Join(Names(), ", "),
                    "): install the CUDA toolkit, or set HOSTIR_NVRTC to the library"));
}

Result<Nvrtc> Open() {
  void* library = nullptr;
  // By path, so that what was identified is what is loaded; by name for a loader that looks elsewhere, too.
  for (const std::vector<std::string>& tried : {NvrtcFiles(), Names()}) {
    for (size_t i = 0; i < tried.size() && library == nullptr; ++i)
      library = dlopen(tried[i].c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return NoLibrary();
  Nvrtc nvrtc;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  find(nvrtc.version, "nvrtcVersion");
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.error, "nvrtcGetErrorString");
  if (!complete) return Status(hir::Code::kFailedPrecondition, "this NVRTC is older than CUDA 11.1, or no NVRTC");
  const link_map* map = nullptr;
  const bool has_path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr;
  const std::optional<std::string> identity = has_path ? IdentityOf(map->l_name) : std::nullopt;
  if (!identity) return Internal("NVRTC is loaded from a file that cannot be read");
  nvrtc.identity = *identity;
  return nvrtc;
}

std::atomic<bool> is_loaded = false;

const Result<Nvrtc>& Library() {
  static const Result<Nvrtc> library = Open();  // Once a process: it is never unloaded.
  if (library.ok()) is_loaded = true;
  return library;
}

}  // namespace

Result<std::string> NvrtcVersion() {
  HIR_ASSIGN(const Nvrtc nvrtc, Library());
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor) != 0) return Internal("NVRTC does not tell its version");
  return Cat(major, ".", minor);
}

std::vector<std::string> NvrtcFiles() { return FindLibraries(Names(), LoaderDirectories()); }

Result<std::string> NvrtcIdentity() {
  if (!is_loaded) {
    for (const std::string& file : NvrtcFiles()) {
      if (auto identity = IdentityOf(file)) return *std::move(identity);
    }
  }
  HIR_ASSIGN(const Nvrtc nvrtc, Library());
  return nvrtc.identity;
}

Result<Compiled> CompileCuda(const std::string& text, int architecture, std::span<const std::string> more) {
  HIR_ASSIGN(const Nvrtc nvrtc, Library());
  Program program = nullptr;
  const std::string arch = Cat("--gpu-architecture=sm_", architecture);
  std::vector<std::string> options = {arch};
  int major = 0, minor = 0;
  const bool is_new = nvrtc.version(&major, &minor) == 0 && major >= 13;
  // What comes from NVRTC's own cache comes without the assembler's words on spills. Minimal: nothing for textures and
  // launches from kernels is read before the text. Older ones know neither.
  for (std::string_view rest = kNvrtcOptions; !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(option.size() + 1, rest.size()));
    if (is_new || (option != "--no-cache" && option != "--minimal")) options.emplace_back(option);
  }
  options.insert(options.end(), more.begin(), more.end());
  std::vector<const char*> given;
  for (const std::string& option : options) given.push_back(option.c_str());
  int result = nvrtc.create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr);
  if (result != 0) return Internal(Cat("NVRTC: ", nvrtc.error(result)));
  Compiled compiled;
  result = nvrtc.compile(program, static_cast<int>(given.size()), given.data());
  size_t size = 0;
  if (nvrtc.log_size(program, &size) == 0 && size > 1) {
    compiled.log.resize(size);
    nvrtc.log(program, compiled.log.data());
    compiled.log.resize(size - 1);
  }
  if (result == 0) {
    result = nvrtc.cubin_size(program, &size);
    if (result == 0) {
      compiled.cubin.resize(size);
      result = nvrtc.cubin(program, compiled.cubin.data());
    }
  }
  nvrtc.destroy(&program);
  if (result != 0) return Internal(Cat("NVRTC: ", nvrtc.error(result), "\n", compiled.log));
  return compiled;
}

Resources ResourcesOf(const std::string& log, const std::string& name) {
  Resources resources;
  const auto number_before = [&](size_t at) {  // "... 24 bytes spill stores"
    size_t first = at;
    while (first > 0 && log[first - 1] >= '0' && log[first - 1] <= '9') --first;
    return static_cast<int>(base::ParseInt(std::string_view(log).substr(first, at - first)).value_or(0));
  };
  const size_t compiling = log.find(Cat("Compiling entry function '", name, "'"));
  if (compiling == std::string::npos) return resources;
  const size_t end = std::min(log.find("Compiling entry function", compiling + 1), log.size());
  const size_t own = log.find(Cat("Function properties for ", name, "\n"), compiling);
  if (own < end) {
    const size_t stores = log.find(" bytes spill stores", own);
    if (stores < end) resources.spill_bytes = number_before(stores);
  }
  const size_t used = log.find("Used ", compiling);
  if (used < end) resources.registers = number_before(log.find(" registers", used));
  return resources;
}

}  // namespace hir::codegen::gpu
