// One op for equal ops on equal operands.
//
// Before: %a = exp(%x)  %b = exp(%x)  %c = add(%a, %b)
// After:  %a = exp(%x)  %c = add(%a, %a)
//
// Equal: the same row, operands and attributes, and results with one layout (or both without): the same elements in the
// same place. The first one stays, so it is defined wherever the second was read. A segment_set is never merged: it is
// there to keep its readers apart.
#include "csrc/fusion/passes/cse.h"

#include <bit>
#include <string>
#include <unordered_map>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {
namespace {

void AppendNumber(std::string& key, uint64_t number) {
  for (int i = 0; i < 8; ++i) key += static_cast<char>(number >> (8 * i));
}

// Equal for equal attributes: extents and meshes are interned per graph.
struct AppendAttr {
  std::string& key;
  void operator()(int64_t v) const { AppendNumber(key, static_cast<uint64_t>(v)); }
  void operator()(double v) const { AppendNumber(key, std::bit_cast<uint64_t>(v)); }
  void operator()(bool v) const { AppendNumber(key, v); }
  void operator()(const ir::Expr* v) const { AppendNumber(key, reinterpret_cast<uint64_t>(v)); }
  void operator()(const ir::Mesh* v) const { AppendNumber(key, reinterpret_cast<uint64_t>(v)); }
  void operator()(std::string_view v) const {
    AppendNumber(key, v.size());
    key += v;
  }
  template <typename T>
  void operator()(std::span<const T> values) const {
    AppendNumber(key, values.size());
    for (const T& v : values) (*this)(v);
  }
};

std::string KeyOf(const ir::Op& op) {
  std::string key;
  AppendNumber(key, op.info->code);
  AppendNumber(key, op.operands.size());
  for (const ir::Value* operand : op.operands) AppendNumber(key, static_cast<uint64_t>(operand->id));
  for (const ir::Attr& attr : op.attrs) std::visit(AppendAttr{key}, attr.value);
  return key;
}

bool SameLayout(const ir::Layout* a, const ir::Layout* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return ir::Equal(*a, *b);
}

}  // namespace

Status Cse(ir::Graph& graph) {
  std::unordered_multimap<std::string, ir::Op*> known;
  Replacements replaced;
  for (ir::Op* op = graph.body.first; op != nullptr;) {
    ir::Op* const next = op->next;
    replaced.Apply(*op);
    if ((op->info->effects & ~static_cast<uint32_t>(ir::kLibrary)) == 0 && CodeOf(*op) != FusionOp::kSegmentSet) {
      std::string key = KeyOf(*op);
      const auto [first, last] = known.equal_range(key);
      auto same = first;
      while (same != last && !SameLayout(same->second->results[0]->layout, op->results[0]->layout)) ++same;
      if (same == last) {
        known.emplace(std::move(key), op);
      } else {
        replaced.Replace(op->results[0], same->second->results[0]);
        graph.body.Erase(op);
      }
    }
    op = next;
  }
  replaced.ApplyToOutputs(graph);
  return {};
}

}  // namespace hir::fusion
