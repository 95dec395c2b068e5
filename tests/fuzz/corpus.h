// The programs that fuzzing starts from, both halves of every golden, those of the corpus, and their op sets.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "host_ir/host_ops.h"

namespace hir::fuzz {

// The op set that a mutated program most likely still is of.
inline const ir::OpSet& OpSetOf(std::string_view text) {
  return text.find("host @") == std::string_view::npos ? fusion::kFusionOps : host::kHostOps;
}
inline const ir::OpSet& OpSetNamed(std::string_view name) {
  return name == host::kHostOps.name ? host::kHostOps : fusion::kFusionOps;
}

inline std::vector<std::string> Corpus(const std::string& folder = "tests/golden") {
  namespace fs = std::filesystem;
  constexpr std::string_view kCut = "// ----\n";
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".hir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> programs;
  for (const fs::path& path : paths) {
    std::ostringstream stream;
    stream << std::ifstream(path).rdbuf();
    const std::string text = stream.str();
    const size_t cut = std::min(text.find(kCut), text.size());
    programs.push_back(text.substr(0, cut));
    if (cut < text.size()) programs.push_back(text.substr(cut + kCut.size()));
  }
  return programs;
}

}  // namespace hir::fuzz
