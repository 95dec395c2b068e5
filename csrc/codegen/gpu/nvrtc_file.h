// Which file NVRTC is, and what tells it from every other: found without loading it, which takes longer than reading a
// kernel from disk. Private to csrc/codegen/gpu.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hir::codegen::gpu {

// Where `names` are as files, in order. A name without a slash is looked for in `directories`, the first that has it.
std::vector<std::string> FindLibraries(std::span<const std::string> names, std::span<const std::string> directories);
// Where the loader looks: $LD_LIBRARY_PATH, what /etc/ld.so.conf.d names, the system's.
std::vector<std::string> LoaderDirectories();

// A shared library's build ID, which its linker made from its contents; of one without, its path, size and the
// time of its last change. Nothing when it is no shared library of 64 bits.
std::optional<std::string> IdentityOf(const std::string& path);

}  // namespace hir::codegen::gpu
