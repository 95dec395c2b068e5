// hostir-opt --pass=a,b file.hir: prints what passes make of a program. Reads the standard input when there is no file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "tools/transform.h"

namespace {

// The name and extent in a size like "i0=128"; nothing where `text` is none.
std::optional<std::pair<std::string, int64_t>> SizeOf(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> extent = hir::base::ParseInt(text.substr(equals + 1));
  if (!extent || *extent < 0) return std::nullopt;
  return std::pair(std::string(text.substr(0, equals)), *extent);
}

int Main(int argc, char** argv) {
  CLI::App app("Runs passes over a program in text form (docs/ir.md) and prints the result.");
  std::string passes, without, path;
  app.add_option("--pass,-p", passes, "the passes to run, in order, with commas between");
  app.add_option("--without", without, "passes of the pipeline that segments, lower and the like leave out");
  std::vector<std::string> sizes;
  app.add_option("--size", sizes, "NAME=EXTENT: a size that the pipeline plans for (i0=128); may be repeated")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return SizeOf(text) ? "" : "wants NAME=EXTENT, as i0=128, got " + text; });
  app.add_option("file", path, "the program; standard input when left out");
  app.footer("Passes:\n" + hir::tools::PassList());
  CLI11_PARSE(app, argc, argv);

  std::ostringstream text;
  if (path.empty()) {
    text << std::cin.rdbuf();
  } else {
    const std::ifstream file(path);
    if (!file) {
      std::cerr << "hostir-opt: cannot read " << path << "\n";
      return 2;
    }
    text << file.rdbuf();
  }
  const std::string program = text.str();
  const size_t end = std::min(program.find("\n// ----\n"), program.size());  // A golden: its input.
  hir::tools::Planning planning = {.without = without};
  for (const std::string& size : sizes) planning.sizes.insert(*SizeOf(size));
  const hir::Result<std::string> out =
      hir::tools::Transform(std::string_view(program).substr(0, end), passes, planning);
  if (!out.ok()) {
    std::cerr << (path.empty() ? "" : path + ": ") << out.status().ToString() << "\n";
    return 1;
  }
  std::cout << *out;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is an error like a full disk.
  const int code = Main(argc, argv);
  if (std::cout.flush()) return code;
  std::cerr << "hostir-opt: cannot write standard output\n";
  return code == 0 ? 2 : code;
}
