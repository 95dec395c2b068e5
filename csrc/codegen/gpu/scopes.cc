// Scopes, names and definitions.
#include "csrc/codegen/gpu/scopes.h"

#include <iterator>

namespace hir::codegen::gpu {

using base::Append;

std::string Scopes::Close() {
  std::string code = std::move(levels_.back().code);
  levels_.pop_back();
  return code;
}

void Scopes::At(size_t level, const std::function<void()>& body) {
  std::vector<Level> inner(std::make_move_iterator(levels_.begin() + static_cast<std::ptrdiff_t>(level) + 1),
                           std::make_move_iterator(levels_.end()));
  levels_.resize(level + 1);
  const size_t lane_level = lane_level_;
  body();
  lane_level_ = lane_level;
  std::move(inner.begin(), inner.end(), std::back_inserter(levels_));
}

const std::string* Scopes::Find(size_t level, const Key& key) const {
  const auto known = levels_[level].memo.find(key);
  return known == levels_[level].memo.end() ? nullptr : &known->second;
}

std::string Scopes::Named(const Key& key, size_t level, std::string_view type, const std::string& text) {
  std::string name = NewName("e");
  Append(levels_[level].code, "const ", type, " ", name, " = ", text, ";\n");
  levels_[level].memo[key] = name;
  return name;
}

void Scopes::Lanes(int lanes, const std::function<void()>& body) {
  Open();
  lane_level_ = level();
  body();
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes, "; ++e) {\n", lane, "}");
}

void Scopes::Define(int variable, std::string text) {
  definitions_.levels[variable] = level();
  definitions_.texts[variable] = std::move(text);
}

std::optional<size_t> Scopes::LevelOf(int variable) const {
  const auto at = definitions_.levels.find(variable);
  if (at == definitions_.levels.end() || at->second >= levels_.size()) return std::nullopt;
  return at->second;
}

}  // namespace hir::codegen::gpu
