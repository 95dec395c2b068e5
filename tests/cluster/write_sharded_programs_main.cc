// write-sharded-programs FOLDER FIRST COUNT EXTENT...: random programs that are sharded over a mesh of that shape, for
// whoever runs them by the service. FOLDER/SEED.hir is the text, FOLDER/SEED.txt has a line "NAME=EXTENT ..." of sizes,
// and one with the largest right difference of each output.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/ir/print.h"
#include "tests/property/sharded_programs.h"

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("want FOLDER FIRST COUNT EXTENT...\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const uint64_t first = std::strtoull(argv[2], nullptr, 10), count = std::strtoull(argv[3], nullptr, 10);
  std::vector<int64_t> mesh;
  int64_t devices = 1;
  for (int i = 4; i < argc; ++i) devices *= mesh.emplace_back(std::atoll(argv[i]));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto made = hir::testing::MakeShardedProgram(seed, mesh, devices);
    if (!made.ok()) {
      std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed), made.status().ToString().c_str());
      return 1;
    }
    std::ofstream(hir::base::Cat(folder, "/", seed, ".hir")) << hir::ir::Print(*made->program.graph);
    std::ofstream facts(hir::base::Cat(folder, "/", seed, ".txt"));
    for (const auto& [name, extent] : made->program.sizes) facts << name << "=" << extent << " ";
    facts << "\n";
    for (const double tolerance : made->program.tolerances) facts << tolerance << " ";
    facts << "\n";
  }
  return 0;
}
