#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "csrc/base/check.h"
#include "csrc/fusion/fusion_ops.h"
#include "host_ir/host_ops.h"
#include "host_ir/lower/segmentation.h"

namespace hir::host {
namespace {

bool Communicates(const segment::Group& group) { return (group.ops[0]->info->effects & ir::kComm) != 0; }

// Sizes are constants, and so few bytes that the start is all that it costs.
bool IsSmall(const segment::Group& group) {
  if (!Communicates(group) || fusion::IsBetweenMeshes(fusion::CodeOf(*group.ops[0]))) return false;
  for (const ir::Value* value : {group.ops[0]->operands[0], group.ops[0]->results[0]}) {
    for (const ir::Axis& axis : ir::ValueAxes(*value->type)) {
      if (!axis.extent->IsConst()) return false;
    }
    if (segment::StorageBytes(*value) > kGroupedBytesMax) return false;
  }
  return true;
}

bool SameTeam(const ir::Op& a, const ir::Op& b) {
  return a.MeshOf("mesh") == b.MeshOf("mesh") && a.Name("dim") == b.Name("dim");
}

bool Reads(const segment::Group& reader, const segment::Group& group) {
  return std::ranges::any_of(reader.inputs, [&](const ir::Value* value) {
    return std::ranges::find(group.outputs, value) != group.outputs.end();
  });
}

// Small communications go to the next of their team, unless something in between reads them.
void BringTogether(std::vector<segment::Group>& groups) {
  for (size_t i = groups.size(); i-- > 0;) {
    if (!IsSmall(groups[i])) continue;
    for (size_t j = i + 1; j < groups.size() && !Reads(groups[j], groups[i]); ++j) {
      if (!IsSmall(groups[j]) || !SameTeam(*groups[i].ops[0], *groups[j].ops[0])) continue;
      const auto at = groups.begin() + static_cast<ptrdiff_t>(i);
      std::rotate(at, at + 1, groups.begin() + static_cast<ptrdiff_t>(j));
      break;
    }
  }
}

}  // namespace

bool PassesOn(const ir::Op& op) {
  const auto is_permute = [](const ir::Op* each) {
    return each != nullptr && fusion::CodeOf(*each) == fusion::FusionOp::kCollectivePermute;
  };
  return is_permute(&op) && is_permute(op.operands[0]->def);
}

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
    if (Communicates(groups[i])) rank[i] = PassesOn(*groups[i].ops[0]) ? 2 : 0;
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
  HIR_CHECK(ordered.size() == groups.size());  // They are topological.
  BringTogether(ordered);
  return ordered;
}

}  // namespace hir::host
