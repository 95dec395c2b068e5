#include "multidevice/comm/nccl/library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"

namespace hir::comm {
namespace {

using base::Cat;

// The first that has both configurations and ncclCommSplit.
constexpr int kVersionMin = NCCL_VERSION(2, 18, 1);

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where the library may be, in the order in which they are tried: files, but for the first, which
// the system's loader looks for, and patterns.
std::vector<std::string> Candidates() {
  std::vector<std::string> candidates = {"libnccl.so.2"};
  for (const std::string& cuda : {Environment("CUDA_HOME"), std::string("/usr/local/cuda")}) {
    if (cuda.empty()) continue;
    candidates.push_back(cuda + "/lib64/libnccl.so.2");
    candidates.push_back(cuda + "/lib/libnccl.so.2");
  }
  const std::string wheel = "-packages/nvidia/nccl/lib/libnccl.so.2";
  for (const std::string& python :
       {Environment("VIRTUAL_ENV"), Environment("CONDA_PREFIX"), std::string("/usr/local"), std::string("/usr")}) {
    if (!python.empty()) candidates.push_back(python + "/lib/python3*/*" + wheel);
  }
  return candidates;
}

std::vector<std::string> Matches(const std::string& pattern) {
  if (pattern.find('*') == std::string::npos) return {pattern};
  std::vector<std::string> files;
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  return files;
}

struct Opened {
  void* handle = nullptr;
  std::string file;
};

Result<Opened> OpenOne(const std::string& file) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return Unimplemented(Cat("nccl: ", dlerror()));
  return Opened{handle, file};
}

Result<Opened> Open(const std::string& file) {
  if (!file.empty()) return OpenOne(file);
  if (const std::string named = Environment("HOSTIR_NCCL"); !named.empty()) return OpenOne(named);
  const std::vector<std::string> candidates = Candidates();
  for (const std::string& candidate : candidates) {
    for (const std::string& match : Matches(candidate)) {
      if (Result<Opened> opened = OpenOne(match); opened.ok()) return opened;
    }
  }
  return Unimplemented(Cat("nccl: no library, so GPUs cannot communicate; looked for ", base::Join(candidates, ", "),
                           "; $HOSTIR_NCCL names the file of another"));
}

template <typename Function>
Status Find(const Opened& opened, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(opened.handle, name));
  if (function != nullptr) return {};
  return {Code::kFailedPrecondition, Cat("nccl: ", opened.file, " has no ", name)};
}

}  // namespace

std::string NcclVersionText(int version) {
  const int major = version < 10000 ? 1000 : 10000;  // Up to 2.8 it was coded in four digits.
  return Cat(version / major, ".", version % major / 100, ".", version % 100);
}

Result<NcclLibrary> LoadNccl(const std::string& file, bool nvlink_multicast) {
  if (!nvlink_multicast) setenv("NCCL_NVLS_ENABLE", "0", 1);
  // All connections are made with the communicator: a post that connects would wait for its peers.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  // In a capture NCCL would register the operands with the peers, and expect them to do the same: each
  // rank captures for itself, and its peers may queue what it captures.
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  HIR_ASSIGN(const Opened opened, Open(file));
  NcclLibrary nccl;
  nccl.file = opened.file;
  HIR_TRY(Find(opened, "ncclGetVersion", nccl.GetVersion));
  if (nccl.GetVersion(&nccl.version) != ncclSuccess)
    return Unavailable(Cat("nccl: ", nccl.file, " does not tell its version"));
  if (nccl.version < kVersionMin || nccl.version / 10000 != NCCL_MAJOR) {
    return Status(Code::kFailedPrecondition,
                  Cat("nccl: ", nccl.file, " is version ", NcclVersionText(nccl.version), ", not ",
                      NcclVersionText(kVersionMin), " or a later ", NCCL_MAJOR, ".x"));
  }
#define HIR_NCCL_FIND(name) HIR_TRY(Find(opened, "nccl" #name, nccl.name));
  HIR_NCCL_FUNCTIONS(HIR_NCCL_FIND)
#undef HIR_NCCL_FIND
  return nccl;
}

Status NcclStatus(const NcclLibrary& nccl, ncclResult_t result, std::string_view call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  std::string text = Cat("nccl: ", call, ": ", nccl.GetErrorString(result));
  const char* const last = comm == nullptr ? nullptr : nccl.GetLastError(comm);
  if (last != nullptr && *last != '\0') base::Append(text, " (", std::string_view(last), ")");
  const bool ours = result == ncclInvalidArgument || result == ncclInvalidUsage;
  return {ours ? Code::kInternal : Code::kUnavailable, std::move(text)};
}

}  // namespace hir::comm
