#include "csrc/ir/pass.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "csrc/base/text.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"

namespace hir::ir {
namespace {

using base::Cat;

Result<const Pass*> Find(std::span<const Pass> table, std::string_view name) {
  std::vector<std::string_view> known;
  for (const Pass& pass : table) {
    if (pass.name == name) return &pass;
    known.push_back(pass.name);
  }
  return CheckPassName(name, known);
}

}  // namespace

std::vector<std::string_view> PassNames(std::string_view names) {
  std::vector<std::string_view> list;
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, comma);
    names.remove_prefix(std::min(comma + 1, names.size()));
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) list.push_back(name);
  }
  return list;
}

Status CheckPassName(std::string_view name, std::span<const std::string_view> known) {
  if (std::ranges::find(known, name) != known.end()) return {};
  const std::string_view nearest = base::Nearest(name, known);
  return InvalidArgument(
      Cat("no pass ", name, nearest.empty() ? "" : "; did you mean ", nearest, nearest.empty() ? "" : "?"));
}

Status RunPasses(Graph& graph, std::span<const Pass> table, std::string_view names, const PassOptions& options) {
  std::vector<const Pass*> passes;
  const std::vector<std::string_view> without = PassNames(options.without);
  for (std::string_view name : PassNames(names)) {
    if (std::ranges::find(without, name) != without.end()) continue;
    HIR_ASSIGN(passes.emplace_back(), Find(table, name));
  }
  if (options.dump) options.dump("", graph);
  int done = 0;
  for (const Pass* pass : passes) {
    if (options.stop_after >= 0 && done++ >= options.stop_after) break;
    if (Status s = pass->run(graph); !s.ok()) return s.WithContext(pass->name);
    if (options.dump) options.dump(pass->name, graph);
    if (!options.verify) continue;
    if (Status s = Verify(graph); !s.ok()) {
      return Internal(Cat("after pass ", pass->name, ": ", s.ToString()));
    }
  }
  return {};
}

std::function<void(std::string_view, const Graph&)> DumpFromEnvironment(std::string_view stage) {
  const char* wanted = std::getenv("HOSTIR_DUMP");
  if (wanted == nullptr) return {};
  for (std::string_view name : PassNames(wanted)) {
    if (name != stage) continue;
    return [stage = std::string(stage)](std::string_view pass, const Graph& graph) {
      const std::string text = Print(graph);
      std::fprintf(stderr, "// %s%s%.*s\n%s\n", stage.c_str(), pass.empty() ? "" : " after ",
                   static_cast<int>(pass.size()), pass.data(), text.c_str());
    };
  }
  return {};
}

}  // namespace hir::ir
