#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "host_ir/lower/segmentation.h"

namespace hir::host {
namespace {

bool Communicates(const segment::Group& group) { return (group.ops[0]->info->effects & ir::kComm) != 0; }

}  // namespace

std::vector<segment::Group> OrderForOverlap(std::vector<segment::Group> groups) {
  std::map<const ir::Value*, size_t> maker;  // Lookup only.
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const ir::Value* output : groups[i].outputs) maker[output] = i;
  }
  std::vector<std::set<size_t>> readers(groups.size());
  std::vector<size_t> missing(groups.size(), 0);
  // 0: communicates. 1: neither. 2: reads what was communicated.
  std::vector<int> rank(groups.size(), 1);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const ir::Value* input : groups[i].inputs) {
      const auto found = maker.find(input);
      if (found == maker.end()) continue;
      if (readers[found->second].insert(i).second) ++missing[i];
      if (Communicates(groups[found->second])) rank[i] = 2;
    }
    if (Communicates(groups[i])) rank[i] = 0;
  }
  std::set<std::tuple<int, size_t>> ready;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (missing[i] == 0) ready.insert({rank[i], i});
  }
  std::vector<segment::Group> ordered;
  while (!ready.empty()) {
    const size_t next = std::get<1>(*ready.begin());
    ready.erase(ready.begin());
    for (size_t reader : readers[next]) {
      if (--missing[reader] == 0) ready.insert({rank[reader], reader});
    }
    ordered.push_back(std::move(groups[next]));
  }
  return ordered;
}

}  // namespace hir::host
