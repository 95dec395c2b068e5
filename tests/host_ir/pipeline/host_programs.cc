// Goal and method: see host_programs.h.
#include "tests/host_ir/pipeline/host_programs.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/verify/verify.h"

namespace hir::host {
namespace {

namespace fs = std::filesystem;
using base::Cat;
using Graph = std::unique_ptr<ir::Graph>;

constexpr std::string_view kCut = "// ----\n";

std::vector<fs::path> Files() {
  std::vector<fs::path> files;
  for (const char* folder : {"tests/golden", "tests/corpus"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".hir") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Of the line "// Sizes: i0=6 i1=8" of the corpus.
KnownSizes SizesOf(const std::string& text) {
  KnownSizes sizes;
  constexpr std::string_view kStart = "// Sizes:";
  const size_t at = text.find(kStart);
  if (at == std::string::npos) return sizes;
  std::istringstream words(text.substr(at + kStart.size(), text.find('\n', at) - at - kStart.size()));
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    sizes[word.substr(0, equals)] = std::atoll(word.c_str() + equals + 1);
  }
  return sizes;
}

bool IsHostProgram(std::string_view text) { return text.starts_with("host @") || text.find("\nhost @") < text.size(); }

int64_t CountOps(const ir::Graph& graph, HostOp kind) {
  int64_t count = 0;
  ir::ForEachOp(graph.body, [&](ir::Op* op) { count += CodeOf(*op) == kind ? 1 : 0; });
  return count;
}

std::vector<int64_t> RanksOf(const ir::Graph& graph) {
  std::set<int64_t> ranks;
  for (const ir::Mesh& mesh : graph.meshes()) ranks.insert(mesh.mesh.devices().begin(), mesh.mesh.devices().end());
  if (ranks.empty()) ranks.insert(0);
  return {ranks.begin(), ranks.end()};
}

class Collector {
 public:
  EventPrograms Collect() {
    for (const fs::path& path : Files()) {
      const std::string text = ReadFile(path);
      const size_t cut = text.find(kCut);
      const std::string_view input = std::string_view(text).substr(0, cut);
      const std::string name = path.lexically_relative("tests").replace_extension().string();
      if (cut != std::string::npos) AddText(name + " expected", std::string_view(text).substr(cut + kCut.size()));
      if (IsHostProgram(input)) {
        AddText(name, input);
      } else {
        AddPlans(name, input, SizesOf(text));
      }
    }
    return std::move(all_);
  }

 private:
  void AddText(const std::string& name, std::string_view text) {
    if (!IsHostProgram(text)) return;
    auto graph = ir::Parse(text, kUnorderedHostOps);
    if (!graph.ok()) return;  // What a golden shows to be refused.
    Graph finished = ir::Clone(**graph);
    if (CountOps(**graph, HostOp::kEvent) == 0) {
      if (FinishProgram(*finished).ok()) Add({name + " finished", std::move(finished), true});
      return;
    }
    if (!VerifyHost(**graph).ok()) return;
    Add({name, *std::move(graph)});
    if (RunHostPasses(*finished, "elide_waits").ok()) Add({name + " elided", std::move(finished), true});
  }

  void AddPlans(const std::string& name, std::string_view text, const KnownSizes& sizes) {
    const auto graph = ir::Parse(text, fusion::kFusionOps);
    if (!graph.ok()) return;
    for (const OverlapChoice overlap : {OverlapChoice::kNever, OverlapChoice::kAlways}) {
      for (const int streams : {1, 2, 3, 8}) {
        PlanOptions options = {.streams = streams, .overlap = overlap};
        options.num_devices = RanksOf(**graph).back() + 1;
        auto plan = PlanProgram(ir::Clone(**graph), options);
        if (!plan.ok()) continue;
        ++all_.plans;
        const bool loops = CountOps(*plan->host, HostOp::kFor) > 0;
        const char* const how = overlap == OverlapChoice::kAlways ? " overlapped" : "";
        Add({Cat(name, how, " on ", streams, " streams"), std::move(plan->host), true, sizes});
        if (!loops) break;
      }
    }
  }

  void Add(EventProgram program) {
    if (!texts_.insert(ir::Print(*program.graph)).second) return;
    if (CountOps(*program.graph, HostOp::kEvent) == 0) {
      ++all_.without_events;
    } else {
      all_.programs.push_back(std::move(program));
    }
  }

  EventPrograms all_;
  std::set<std::string> texts_;
};

}  // namespace

const EventPrograms& AllEventPrograms() {
  static const EventPrograms all = Collector().Collect();
  return all;
}

ConcreteRuns RunsOf(const ir::Graph& graph, const KnownSizes& sizes, int64_t most) {
  std::vector<ConcreteSizes> candidates;
  for (const int64_t others : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64, 96, 128, 192, 384}) {
    if (others <= most) candidates.push_back({.others = others});
  }
  for (const int64_t times : {1, 2, 3, 8}) {
    if (sizes.empty()) break;
    ConcreteSizes& larger = candidates.emplace_back(ConcreteSizes{sizes, 1});
    for (auto& [symbol, size] : larger.known) size *= times;
  }
  ConcreteRuns all;
  for (const ConcreteSizes& candidate : candidates) {
    std::vector<ConcreteRun> of_ranks;
    bool has_sizes = false;
    Status status;
    for (const int64_t rank : RanksOf(graph)) {
      auto run = ConcreteRun::Make(graph, rank, candidate);
      if (!run.ok()) {
        status = run.status();
        break;
      }
      has_sizes |= run->HasSizes();
      of_ranks.push_back(*std::move(run));
    }
    if (!status.ok()) {
      all.refused = status;
      continue;
    }
    ++all.sizes;
    std::move(of_ranks.begin(), of_ranks.end(), std::back_inserter(all.runs));
    if (!has_sizes) break;
  }
  return all;
}

std::optional<std::string> FindRace(const ConcreteRuns& runs, const DroppedOps& dropped) {
  for (const ConcreteRun& run : runs.runs) {
    if (auto race = run.FindRace(dropped)) return race;
  }
  return std::nullopt;
}

}  // namespace hir::host
