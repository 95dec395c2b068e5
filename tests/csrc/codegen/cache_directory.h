// A directory for compiled kernels that goes with its test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hir::codegen {

class CacheDirectory {
 public:
  CacheDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "hostir-kernels-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~CacheDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hir::codegen
