// The programs that fuzzing starts from: both halves of every golden.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace hir::fuzz {

inline std::vector<std::string> Corpus() {
  namespace fs = std::filesystem;
  constexpr std::string_view kCut = "// ----\n";
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("tests/golden")) {
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
