// The functions are declared here as NVRTC documents them: they have not changed since it has cubins (11.1).
#include "csrc/codegen/gpu/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

using Program = void*;

struct Nvrtc {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  const char* (*error)(int) = nullptr;
};

// After $HOSTIR_NVRTC. The last is what CMake found, perhaps in a Python wheel, where no loader looks; or empty.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                  "/usr/local/cuda/lib64/libnvrtc.so", HIR_NVRTC_LIBRARY};

Result<Nvrtc> Open() {
  void* library = nullptr;
  std::string tried;
  const auto attempt = [&](const char* name) {
    if (library != nullptr || *name == '\0') return;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    base::Append(tried, tried.empty() ? "" : ", ", name);
  };
  if (const char* named = std::getenv("HOSTIR_NVRTC"); named != nullptr) attempt(named);
  for (const char* name : kNames) attempt(name);
  if (library == nullptr) {
    return Status(hir::Code::kFailedPrecondition,
                  Cat("GPU kernels are compiled by NVRTC, which is not here (tried ", tried,
                      "): install the CUDA toolkit, or set HOSTIR_NVRTC to the library"));
  }
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
  if (!complete)
    return Status(hir::Code::kFailedPrecondition,
                  "this NVRTC is older than CUDA 11.1, or no NVRTC");
  return nvrtc;
}

const Result<Nvrtc>& Library() {
  static const Result<Nvrtc> library = Open();  // Once a process: it is never unloaded.
  return library;
}

}  // namespace

Result<std::string> NvrtcVersion() {
  HIR_ASSIGN(const Nvrtc nvrtc, Library());
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor) != 0) return Internal("NVRTC does not tell its version");
  return Cat(major, ".", minor);
}

Result<Compiled> CompileCuda(const std::string& text, int architecture,
                             std::span<const std::string> more) {
  HIR_ASSIGN(const Nvrtc nvrtc, Library());
  Program program = nullptr;
  const std::string arch = Cat("--gpu-architecture=sm_", architecture);
  std::vector<const char*> options = {arch.c_str(), "--std=c++17", "--ptxas-options=-v"};
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor) == 0 && major >= 13) {
    // What comes from NVRTC's own cache comes without the assembler's words on spills. Minimal: nothing for textures
    // and launches from kernels is read before the text.
    options.push_back("--no-cache");
    options.push_back("--minimal");
  }
  for (const std::string& option : more) options.push_back(option.c_str());
  int result = nvrtc.create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr);
  if (result != 0) return Internal(Cat("NVRTC: ", nvrtc.error(result)));
  Compiled compiled;
  result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
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
    return static_cast<int>(
        base::ParseInt(std::string_view(log).substr(first, at - first)).value_or(0));
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
